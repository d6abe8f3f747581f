"""Keyed results survive failures at any write and replays that differ."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dedup import keyed
from dedup.errors import CommitOrder, StoredValueInvalid
from dedup.keyed import KeyedResults, add_int


class Broken(Exception):
    """The store failed in the middle of a put."""


class Memory:
    """A `KeyValue` that fails after a number of puts; the items of one call count separately."""

    def __init__(self):
        self.items = {}
        self.puts_left = None

    def get_many(self, keys):
        return [self.items.get(key) for key in keys]

    def put_many(self, items):
        for key, value in items.items():
            if self.puts_left == 0:
                raise Broken
            if self.puts_left is not None:
                self.puts_left -= 1
            self.items[key] = value


KEYS = st.sampled_from([b"a", b"b", b"c", b"d"])
CHANGES = st.dictionaries(KEYS, st.integers(-5, 5), max_size=4)


def as_bytes(changes):
    return {key: b"%d" % value for key, value in changes.items()}


@given(
    batches=st.lists(st.lists(st.tuples(CHANGES, st.integers(0, 8)), max_size=3), max_size=6),
    last=st.lists(CHANGES, min_size=6, max_size=6),
    repeat=st.booleans(),
)
def test_opaque_sums_are_those_of_the_last_attempts(batches, last, repeat):
    """Any failures in the middle of puts, any differing replays: each transaction counts once, as last applied."""
    store, truth = Memory(), Counter()
    results = KeyedResults(store, add_int, opaque=True)

    for txid, (attempts, final) in enumerate(zip(batches, last, strict=False)):
        for changes, puts in attempts:
            store.puts_left = puts
            with suppress(Broken):
                results.apply(txid, as_bytes(changes))
        store.puts_left = None
        results.apply(txid, as_bytes(final))
        if repeat:
            results.apply(txid, as_bytes(final))
        truth.update(final)

        found = results.read([b"a", b"b", b"c", b"d"])
        assert [int(value or b"0") for value in found] == [truth[key] for key in (b"a", b"b", b"c", b"d")]


@given(st.lists(st.tuples(CHANGES, st.lists(st.integers(0, 6), max_size=3)), max_size=6))
def test_transactional_sums_count_each_batch_once(batches):
    """The same batch again, after failures in the middle of puts, does not count twice."""
    store, truth = Memory(), Counter()
    results = KeyedResults(store, add_int, opaque=False)

    for txid, (changes, failures) in enumerate(batches):
        for puts in failures:
            store.puts_left = puts
            with suppress(Broken):
                results.apply(txid, as_bytes(changes))
        store.puts_left = None
        results.apply(txid, as_bytes(changes))
        truth.update(changes)

    found = results.read([b"a", b"b", b"c", b"d"])
    assert [int(value or b"0") for value in found] == [truth[key] for key in (b"a", b"b", b"c", b"d")]


@pytest.mark.parametrize("opaque", [True, False])
def test_canary_without_its_transaction_a_value_counts_a_repeated_batch_twice(opaque, monkeypatch):
    """What is stored for a key must say which batch was added last."""
    unpacked = keyed._Stored.unpacked
    monkeypatch.setattr(keyed._Stored, "unpacked", lambda key, data: replace(unpacked(key, data), txid=-1))
    results = KeyedResults(Memory(), add_int, opaque=opaque)

    for _ in range(2):
        results.apply(0, {b"a": b"1"})

    assert results.read([b"a"]) == [b"2"]


@pytest.mark.parametrize("opaque", [True, False])
@pytest.mark.parametrize(("txid", "why"), [(7, "5 was not committed"), (3, "a later one is committed already")])
def test_transactions_out_of_order_are_refused(opaque, txid, why):
    """Neither a gap nor an older one is applied, and nothing is written."""
    store = Memory()
    results = KeyedResults(store, add_int, opaque=opaque)
    results.apply(4, {b"a": b"1"})
    before = dict(store.items)

    with pytest.raises(CommitOrder, match=why):
        results.apply(txid, {b"a": b"1"})

    assert store.items == before


@pytest.mark.parametrize("opaque", [True, False])
def test_the_first_transaction_is_repeated_before_any_other(opaque):
    """It failed in the middle of its values: another transaction would leave what it wrote for ever."""
    store = Memory()
    results = KeyedResults(store, add_int, opaque=opaque)
    store.puts_left = 4 if opaque else 2  # the first value is in, the second one is not
    with pytest.raises(Broken):
        results.apply(0, {b"a": b"1", b"b": b"1"})
    store.puts_left = None

    with pytest.raises(CommitOrder, match="1 is out of order: 0 was begun"):
        results.apply(1, {b"b": b"1"})
    results.apply(0, {b"a": b"1", b"b": b"1"})

    assert results.read([b"a", b"b"]) == [b"1", b"1"]


def test_many_keys_are_intended_in_pieces():
    """An intent larger than one value of the store is kept in several."""
    store = Memory()
    results = KeyedResults(store, add_int, opaque=True)
    many = {b"%0500d" % i: b"1" for i in range(300)}
    store.puts_left = 200
    with pytest.raises(Broken):
        results.apply(0, many)
    store.puts_left = None

    results.apply(0, {b"other": b"2"})

    assert set(results.read(list(many))) == {None}
    assert results.read([b"other"]) == [b"2"]
    assert max(len(value) for value in store.items.values()) < 64_000


def test_writers_of_one_store_count_for_themselves():
    """Scopes keep the transaction numbers separate."""
    store = Memory()
    first, other = (KeyedResults(store, add_int, opaque=True, scope=scope) for scope in (b"0", b"1"))
    first.apply(5, {b"a": b"1"})

    other.apply(0, {b"b": b"1"})

    assert (first.committed(), other.committed()) == (5, 0)


def test_a_value_of_somebody_else_is_not_taken_for_ours():
    """The error says which key holds it."""
    store = Memory()
    store.items[b"a"] = b"17"

    with pytest.raises(StoredValueInvalid, match="b'a'"):
        KeyedResults(store, add_int, opaque=False).apply(0, {b"a": b"1"})
