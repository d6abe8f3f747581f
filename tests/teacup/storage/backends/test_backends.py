"""Every back end keeps the rules of the model, whatever is done to it in whatever order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import run_state_machine_as_test

from teacup.base.now import wall_ms
from teacup.storage.backends import entries
from teacup.storage.errors import GenerationChanged, StorageConfigInvalid
from teacup.storage.model import Backend, Item, Keep, Namespace, Status
from tests.support.redis_server import RedisProcess
from tests.teacup.storage.backends.model_machine import LONG, AgreesWithTheModel, statuses
from tests.teacup.storage.stores import NEEDS_AEROSPIKE, Open, item_maker, namespace, opened, opener


@pytest.fixture(params=["lmdb", "redis", pytest.param("aerospike", marks=NEEDS_AEROSPIKE)])
def kind(request: pytest.FixtureRequest) -> str:
    """Names each back end."""
    return str(request.param)


@pytest.fixture
def open_store(kind: str, tmp_path: Path, redis: RedisProcess) -> Open:
    return opener(kind, tmp_path, redis)


@pytest.fixture
def latest(open_store: Open) -> Iterator[tuple[Backend, Namespace]]:
    """Opens a back end with a namespace that keeps the latest version."""
    space = namespace()
    with opened(open_store, space) as store:
        yield store, space


@pytest.fixture
def keep_two(open_store: Open) -> Iterator[tuple[Backend, Namespace]]:
    """Opens a back end with a namespace that keeps two versions."""
    space = namespace(Keep.ALL, 2)
    with opened(open_store, space) as store:
        yield store, space


NOW = wall_ms()
item: Callable[..., Item] = item_maker(NOW)


@pytest.mark.hypothesis
def test_a_back_end_agrees_with_the_model(kind: str, redis: RedisProcess):
    """Random operations, times and restarts give the same answers as a dict."""
    run_state_machine_as_test(
        lambda: AgreesWithTheModel(kind, redis),
        settings=settings(stateful_step_count=25, suppress_health_check=list(HealthCheck)),
    )


def test_a_repeated_write_never_prolongs_a_life(latest: tuple[Backend, Namespace]):
    """Though it names a later expiry and another value."""
    store, space = latest
    store.write(space, [item(lives_ms=5_000)], NOW)

    again = store.write(space, [item(lives_ms=50_000, value=b"other")], NOW + 1_000)

    assert statuses(again) == [Status.OK]
    assert store.read(space, [b"k"], NOW + 4_999)[0].items == (item(lives_ms=5_000),)
    assert statuses(store.read(space, [b"k"], NOW + 5_000)) == [Status.NOT_FOUND]


def test_a_look_up_that_names_another_generation_is_not_answered(latest: tuple[Backend, Namespace]):
    """Found or not, that says nothing about the generation which was asked for."""
    store, space = latest
    store.write(space, [item()], NOW)
    present = store.state(space, NOW).generation

    assert statuses(store.read(space, [b"k", b"none"], NOW, present)) == [Status.OK, Status.NOT_FOUND]
    with pytest.raises(GenerationChanged, match=f"is {present}, not another"):
        store.read(space, [b"k"], NOW, "another")


def test_a_write_that_names_another_generation_is_not_acknowledged(latest: tuple[Backend, Namespace]):
    """So a feeder's acknowledgements all come from the store that it feeds."""
    store, space = latest
    present = store.state(space, NOW).generation

    assert statuses(store.write(space, [item()], NOW, present)) == [Status.OK]
    with pytest.raises(GenerationChanged, match=f"is {present}, not another"):
        store.write(space, [item()], NOW, "another")


def test_an_older_version_never_overwrites_a_newer_one(latest: tuple[Backend, Namespace]):
    """It is a conflict, by version and then by tag, and changes nothing."""
    store, space = latest
    store.write(space, [item(version=1, tag=b"m")], NOW)

    outcomes = store.write(space, [item(version=0, tag=b"z"), item(version=1, tag=b"a")], NOW)

    assert statuses(outcomes) == [Status.CONFLICT] * 2
    assert store.read(space, [b"k"], NOW)[0].items == (item(version=1, tag=b"m"),)


def test_the_order_of_writes_does_not_matter(open_store: Open):
    """Of any order the newest version is what is left; under `all` the items come back by version and tag."""
    several = [item(version=version, tag=tag) for version in (2, 0, 1) for tag in (b"b", b"a")]
    latest, every = namespace(), namespace(Keep.ALL, 6)

    with opened(open_store, latest, every) as store:
        for single in several:
            store.write(latest, [single], NOW)
            store.write(every, [single], NOW)
        newest, ordered = store.read(latest, [b"k"], NOW)[0], store.read(every, [b"k"], NOW)[0]

    assert newest.items == (item(version=2, tag=b"b"),)
    assert ordered.items == tuple(sorted(several, key=lambda single: (single.version, single.tag)))


def test_more_than_the_bound_is_rejected_until_something_expires(keep_two: tuple[Backend, Namespace]):
    """Only live items count."""
    store, space = keep_two
    store.write(space, [item(version=0, lives_ms=1_000), item(version=1)], NOW)

    (third,) = store.write(space, [item(version=2)], NOW)
    (later,) = store.write(space, [item(version=2)], NOW + 1_000)

    assert third.status is Status.REJECTED
    assert "bound is 2" in str(third.reason)
    assert later.status is Status.OK
    assert store.read(space, [b"k"], NOW + 1_000)[0].items == (item(version=1), item(version=2))


def test_an_item_is_gone_at_its_expiry(latest: tuple[Backend, Namespace]):
    """To the millisecond; and an older version may come in again then."""
    store, space = latest
    store.write(space, [item(version=5, lives_ms=1_500)], NOW)

    assert statuses(store.read(space, [b"k"], NOW + 1_499)) == [Status.OK]
    assert statuses(store.read(space, [b"k"], NOW + 1_500)) == [Status.NOT_FOUND]
    assert statuses(store.write(space, [item(version=4)], NOW + 1_500)) == [Status.OK]


@pytest.fixture
def keep_versions(open_store: Open) -> Iterator[tuple[Backend, Namespace]]:
    """Opens a back end with a namespace that keeps up to three versions, for ten seconds."""
    space = namespace(Keep.VERSIONS, 3, 10_000)
    with opened(open_store, space) as store:
        yield store, space


def version(number: int, value: bytes = b"v", tag: bytes = b"", lives_ms: int = 60_000) -> Item:
    return item(version=number, value=value, tag=tag, lives_ms=lives_ms)


def was(store: Backend, space: Namespace, *versions: int, now: int = NOW) -> list[bytes | Status]:
    """What the key was as of these versions: the value, or why it is not known."""
    found = store.read(space, [b"k"] * len(versions), now, as_of=[NOW + number for number in versions])
    return [result.items[0].value if result.items else result.status for result in found]


def test_a_key_is_what_its_newest_version_says(keep_versions: tuple[Backend, Namespace]):
    """At or below the time asked about; of one time the larger tag; a delete is a version."""
    store, space = keep_versions
    store.write(space, [version(0, b"a", b"1"), version(0, b"b", b"2"), version(5, b"")], NOW)

    assert was(store, space, 5, 4, 0, -1) == [b"", b"b", b"b", Status.NOT_FOUND]
    assert len(store.read(space, [b"k"], NOW)[0].items) == 3


def test_the_newest_version_below_the_retention_stays_for_ever(keep_versions: tuple[Backend, Namespace]):
    """It is what the key was then; those before it go, and nothing is found below `retained_from`."""
    store, space = keep_versions
    store.write(space, [version(-20_000, b"a"), version(0, b"b")], NOW)
    years = 10 * 365 * 86_400_000

    assert was(store, space, -9_999, -10_001) == [b"a", Status.NO_LONGER_STORED]
    assert store.purge(NOW + years, 10) >= 0
    assert was(store, space, years, now=NOW + years) == [b"b"]
    assert [kept.value for kept in store.read(space, [b"k"], NOW + years)[0].items] == [b"b"]


def test_a_deleted_key_is_hidden_as_long_as_its_delete_is_kept_and_then_goes(
    keep_versions: tuple[Backend, Namespace],
):
    """A version before it may come late; afterwards nothing of the key is left."""
    store, space = keep_versions
    store.write(space, [version(-20_000, b"", lives_ms=5_000), version(-30_000, b"late")], NOW)

    hidden = was(store, space, 0)
    gone = was(store, space, 5_000, now=NOW + 5_000)

    assert (hidden, gone) == ([b""], [Status.NOT_FOUND])


def test_of_more_versions_than_the_bound_the_oldest_are_known_to_be_gone(keep_versions: tuple[Backend, Namespace]):
    """In any order of writing; a late one among those that went changes nothing."""
    store, space = keep_versions
    numbers = [4, 0, 3, 1, 2]
    store.write(space, [version(number, b"%d" % number) for number in numbers], NOW)
    store.write(space, [version(-1, b"late"), version(1, b"again")], NOW)

    lost = [Status.NO_LONGER_STORED] * 3
    assert was(store, space, 5, 4, 3, 2, 1, 0, -5) == [b"4", b"4", b"3", b"2", *lost]
    assert was(store, space, 10_003, 20_000, now=NOW + 10_003) == [b"4", b"4"]


@pytest.mark.canary
def test_canary_without_the_mark_versions_that_went_are_taken_for_another_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, redis: RedisProcess
):
    """If nothing says that older versions went, the key seems to have been deleted."""
    monkeypatch.setattr(entries._Version, "is_mark", property(lambda version: False))
    space = namespace(Keep.VERSIONS, 3, 10_000)

    with opened(opener("lmdb", tmp_path, redis), space) as store:
        store.write(space, [version(number, b"%d" % number) for number in range(5)], NOW)

        assert was(store, space, 1) == [b""]


def test_versions_below_a_raised_floor_are_not_answered(keep_versions: tuple[Backend, Namespace]):
    """Some may never have been stored."""
    store, space = keep_versions
    store.write(space, [version(-5, b"a")], NOW)
    store.raise_retained_from(space, NOW - 2)
    store.state(space, NOW)

    assert was(store, space, -2, -3) == [b"a", Status.NO_LONGER_STORED]


@pytest.mark.hypothesis
@given(
    numbers=st.lists(st.tuples(st.integers(-15_000, 5), st.sampled_from([b"", b"v"])), max_size=7, unique=True),
    data=st.data(),
)
@settings(suppress_health_check=list(HealthCheck))
def test_the_order_of_versions_does_not_matter(
    keep_versions: tuple[Backend, Namespace], numbers: list[tuple[int, bytes]], data: st.DataObject
):
    """Written in any order, and twice, a key has the same content."""
    store, space = keep_versions
    first, second = uuid4().bytes, uuid4().bytes
    again = data.draw(st.permutations(numbers + numbers[:2]))
    for key, order in ((first, numbers), (second, again)):
        tags = [b"d" if value else b"" for _, value in order]
        store.write(
            space,
            [item(key, n, tag, value) for (n, value), tag in zip(order, tags, strict=True)],
            NOW,
        )

    found = [
        [(kept.version, kept.tag, kept.value) for kept in result.items]
        for result in store.read(space, [first, second], NOW)
    ]
    asked = range(-15_000, 6, 500)
    as_of = [
        [(result.status, [kept.value for kept in result.items]) for result in store.read(space, keys, NOW, as_of=times)]
        for key in (first, second)
        for keys, times in [([key] * len(asked), [NOW + at for at in asked])]
    ]

    assert found[0] == found[1]
    assert as_of[0] == as_of[1]


def test_an_expiry_far_away_is_kept(latest: tuple[Backend, Namespace]):
    """Also beyond what a server's time to live can say."""
    store, space = latest
    far = item(lives_ms=50 * 365 * 24 * 3_600_000)

    assert statuses(store.write(space, [far], NOW)) == [Status.OK]
    assert store.read(space, [b"k"], NOW)[0].items == (far,)


def test_an_expiry_before_the_promised_one_is_rejected(open_store: Open):
    """Of a namespace with a retention."""
    space = namespace(retention_ms=10_000)

    with opened(open_store, space) as store:
        outcomes = store.write(space, [item(lives_ms=9_999), item(b"other", lives_ms=10_000)], NOW)

    assert statuses(outcomes) == [Status.REJECTED, Status.OK]
    assert "retention_ms 10000" in str(outcomes[0].reason)


def test_delete_removes_all_items_of_a_key(keep_two: tuple[Backend, Namespace]):
    """And of no other."""
    store, space = keep_two
    store.write(space, [item(version=0), item(version=1), item(b"other")], NOW)

    outcomes = store.delete(space, [b"k", b"none", b"k"], NOW)

    assert statuses(outcomes) == [Status.OK, Status.NOT_FOUND, Status.NOT_FOUND]
    assert statuses(store.read(space, [b"k", b"other"], NOW)) == [Status.NOT_FOUND, Status.OK]


def test_a_key_twice_in_a_request_is_carried_out_in_its_order(latest: tuple[Backend, Namespace]):
    """The second item sees the first."""
    store, space = latest

    outcomes = store.write(space, [item(version=1), item(version=2), item(version=1), item(version=2)], NOW)
    found = store.read(space, [b"k", b"k"], NOW)

    assert statuses(outcomes) == [Status.OK, Status.OK, Status.CONFLICT, Status.OK]
    assert [result.items for result in found] == [(item(version=2),)] * 2


@pytest.mark.parametrize("key", [LONG, b"\0", b"a" * 510, b"a" * 511, b"\xff\xfe"], ids=len)
def test_any_key_of_one_byte_or_more(latest: tuple[Backend, Namespace], key: bytes):
    """Long ones that differ only at their end are distinguished."""
    store, space = latest
    near = key + b"x"
    store.write(space, [item(key, value=b"1"), item(near, value=b"2")], NOW)

    found = store.read(space, [key, near, near + b"x"], NOW)

    assert [tuple(kept.value for kept in result.items) for result in found] == [(b"1",), (b"2",), ()]
    assert found[0].items[0].key == key


def test_an_empty_key_is_rejected_and_an_empty_value_is_a_value(latest: tuple[Backend, Namespace]):
    """With a reason; the rest of the request is carried out."""
    store, space = latest

    outcomes = store.write(space, [item(b""), item(value=b"")], NOW)

    assert [(outcome.status, outcome.reason) for outcome in outcomes] == [
        (Status.REJECTED, "the key is empty"),
        (Status.OK, None),
    ]
    assert statuses(store.read(space, [b"", b"k"], NOW)) == [Status.REJECTED, Status.OK]
    assert statuses(store.delete(space, [b""], NOW)) == [Status.REJECTED]
    assert store.read(space, [b"k"], NOW)[0].items[0].value == b""


def test_nothing_asked_nothing_done(latest: tuple[Backend, Namespace]):
    """Empty requests have empty answers."""
    store, space = latest

    assert store.write(space, [], NOW) == store.delete(space, [], NOW) == []
    assert store.read(space, [], NOW) == []


def test_a_large_request_is_answered_in_its_order(latest: tuple[Backend, Namespace]):
    """Ten thousand keys, more than one portion of any back end."""
    store, space = latest
    keys = [number.to_bytes(4) for number in range(10_000)]

    outcomes = store.write(space, [item(key, value=key) for key in keys], NOW)
    found = store.read(space, keys[::-1], NOW)

    assert set(statuses(outcomes)) == {Status.OK}
    assert [result.items[0].value for result in found] == keys[::-1]


def test_concurrent_writers_of_one_key_leave_the_newest(open_store: Open):
    """Of `latest`; under `all` no acknowledged item is lost."""
    latest, every = namespace(), namespace(Keep.ALL, 100)

    with opened(open_store, latest, every) as store, ThreadPoolExecutor(4) as pool:
        for space in (latest, every):
            items = [item(version=version) for version in range(40)]
            done = list(pool.map(lambda single, space=space: until_settled(store, space, single), items))
            assert set(done) <= {Status.OK, Status.CONFLICT}
        newest, kept = store.read(latest, [b"k"], NOW)[0], store.read(every, [b"k"], NOW)[0]

    assert newest.items == (item(version=39),)
    assert kept.items == tuple(items)


def until_settled(store: Backend, space: Namespace, single: Item) -> Status:
    """Writes as a client does."""
    for _ in range(100):
        (outcome,) = store.write(space, [single], NOW)
        if outcome.status not in (Status.RETRYABLE, Status.IN_DOUBT):
            break
    return outcome.status


def test_the_generation_stays_and_retained_from_never_goes_back(open_store: Open):
    """Over a restart, with a clock that went back, whatever floor is named."""
    space = namespace(retention_ms=1_000)
    with opened(open_store, space) as store:
        first = store.state(space, NOW)
        store.raise_retained_from(space, NOW + 300)
        store.raise_retained_from(space, NOW + 200)

    with opened(open_store, space) as store:
        raised = store.state(space, NOW - 5_000)
        later = store.state(space, NOW + 2_000)

    assert first.retained_from == NOW - 1_000 + 1
    assert raised.retained_from == NOW + 300
    assert later.retained_from == NOW + 1_000 + 1
    assert {first.generation, raised.generation, later.generation} == {first.generation}


@pytest.mark.parametrize(
    ("before", "after", "word"),
    [
        (Namespace("", Keep.LATEST), Namespace("", Keep.ALL), "keep latest"),
        (Namespace("", retention_ms=1_000), Namespace("", retention_ms=1_001), "cannot be raised to 1001"),
        (Namespace("", retention_ms=None), Namespace("", retention_ms=1), "cannot be raised to 1"),
    ],
)
def test_settings_that_break_a_promise_are_refused(open_store: Open, before: Namespace, after: Namespace, word: str):
    """With the remedy."""
    space = namespace(before.keep, 1, before.retention_ms)
    open_store(space).close()

    with pytest.raises(StorageConfigInvalid, match=rf"{word}.*use another name"):
        open_store(Namespace(space.name, after.keep, 1, after.retention_ms))


def test_a_lower_bound_and_a_shorter_retention_are_taken(open_store: Open):
    """What is there stays."""
    space = namespace(Keep.ALL, 3, 1_000)
    with opened(open_store, space) as store:
        store.write(space, [item(version=version) for version in range(3)], NOW)
    smaller = Namespace(space.name, Keep.ALL, 2, 500)

    with opened(open_store, smaller) as store:
        (outcome,) = store.write(smaller, [item(version=3)], NOW)
        (found,) = store.read(smaller, [b"k"], NOW)

    assert outcome.status is Status.REJECTED
    assert len(found.items) == 3
