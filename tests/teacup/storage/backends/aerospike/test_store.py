"""What is specific to the back end on Aerospike: what the server frees, and how its failures are reported."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import aerospike
import pytest
from aerospike_helpers.batch.records import BatchRecord, BatchRecords

from deploy.broker.lifeline import free_port
from teacup.base.now import wall_ms
from teacup.storage.backends.aerospike.records import (
    LOST,
    AerospikeRecords,
    ReadRecord,
    Swap,
    check_namespace,
    failure_of,
    is_full,
    kept_of,
)
from teacup.storage.backends.aerospike.store import AerospikeStore
from teacup.storage.backends.namespaces import FREED_AFTER_MS
from teacup.storage.backends.opening import open_backend
from teacup.storage.errors import StorageConfigInvalid, StorageUnavailable
from teacup.storage.model import Keep, Namespace, Status, WriteResult
from tests.teacup.storage.backends.model_machine import statuses
from tests.teacup.storage.stores import AEROSPIKE, NEEDS_AEROSPIKE, item_maker, namespace, opened

NOW = wall_ms()
item = item_maker(NOW)
SOUND = {"nsup-period": "120", "evict-tenths-pct": "5", "evict-hist-buckets": "10000", "evict-indexes-memory-pct": "0"}
ALL = namespace(Keep.ALL, 10)
FOR_EVER = 2**32 - 1
"""The TTL that the client reports for what never expires."""


@pytest.fixture
def store() -> Iterator[AerospikeStore]:
    """Opens a store with the namespace ALL."""
    with opened(lambda *spaces: open_backend(f"aerospike://{os.environ[AEROSPIKE]}", spaces), ALL) as backend:
        assert isinstance(backend, AerospikeStore)
        yield backend


@pytest.fixture
def client() -> Iterator[aerospike.Client]:
    """Connects to the server past the back end."""
    host, port = os.environ[AEROSPIKE].split("/")[0].split(":")
    client = aerospike.client({"hosts": [(host, int(port))]})
    yield client
    client.close()


def place(space: Namespace, key: bytes) -> tuple[str, str, bytearray]:
    return os.environ[AEROSPIKE].split("/")[1], space.name, bytearray(key)


def record(result: int, content: object = None, in_doubt: bool = False) -> BatchRecord:
    """Makes a record as the client leaves it behind."""
    made = BatchRecord(("namespace", "set", bytearray(b"k")))
    made.result, made.record, made.in_doubt = result, content, in_doubt
    return made


def overwrite(store: AerospikeStore, before: ReadRecord | WriteResult) -> WriteResult | None:
    """Overwrites the record `raced`, if it still is what it was."""
    assert isinstance(before, ReadRecord)
    return store._records.swap(ALL.name, [Swap(b"raced", before, "items", bytearray(b"overwritten"), 60)])[0]


@NEEDS_AEROSPIKE
def test_the_server_keeps_a_record_as_long_as_its_longest_item(store: AerospikeStore, client: aerospike.Client):
    """An item that expires earlier does not shorten its time to live, a repeated one does not prolong it."""
    store.write(ALL, [item(b"ttl", version=1, lives_ms=600_000)], NOW)
    _, before = client.exists(place(ALL, b"ttl"))

    store.write(ALL, [item(b"ttl", version=0, lives_ms=30_000)], NOW)
    _, after_shorter = client.exists(place(ALL, b"ttl"))
    store.write(ALL, [item(b"ttl", version=1, lives_ms=9_000_000)], NOW)
    _, after_repeated = client.exists(place(ALL, b"ttl"))

    margin_s = FREED_AFTER_MS // 1_000
    assert 590 <= before["ttl"] - margin_s <= 601
    assert before["ttl"] - 5 <= after_shorter["ttl"] <= before["ttl"]
    assert after_repeated["ttl"] <= before["ttl"]
    assert after_repeated["gen"] == after_shorter["gen"]


@NEEDS_AEROSPIKE
def test_the_server_frees_a_key_with_versions_only_after_its_delete(client: aerospike.Client):
    """A version counts until another one replaces it, however long ago its own expiry was."""
    space = namespace(Keep.VERSIONS, 10, 60_000)
    lives_s: list[int] = []

    with opened(lambda *spaces: open_backend(f"aerospike://{os.environ[AEROSPIKE]}", spaces), space) as store:
        for version, value in enumerate((b"first", b"", b"again")):
            store.write(space, [item(version=version, value=value, lives_ms=600_000)], NOW)
            _, about = client.exists(place(space, b"k"))
            lives_s.append(about["ttl"])

    assert lives_s[0] == lives_s[2] == FOR_EVER
    assert 590 <= lives_s[1] - FREED_AFTER_MS // 1_000 <= 601


@NEEDS_AEROSPIKE
def test_a_truncated_set_has_another_generation(store: AerospikeStore, client: aerospike.Client):
    """And nothing of it is found, once the server has removed it in the background."""
    before = store.state(ALL, NOW)
    store.write(ALL, [item(b"truncated")], NOW)

    deadline = time.monotonic() + 20
    while Status.OK in statuses(store.read(ALL, [b"truncated"], NOW)) and time.monotonic() < deadline:
        client.truncate(place(ALL, b"")[0], ALL.name, 0)  # spares what was written in the same millisecond
    after = store.state(ALL, NOW)

    assert statuses(store.read(ALL, [b"truncated"], NOW)) == [Status.NOT_FOUND]
    assert before.generation != after.generation


@NEEDS_AEROSPIKE
def test_items_beyond_the_servers_record_size_are_rejected(store: AerospikeStore):
    """One by one; the others of the request are kept."""
    items = [item(b"large", value=bytes(1 << 20)), item(b"small")]

    outcomes = store.write(ALL, items, NOW)

    assert statuses(outcomes) == [Status.REJECTED, Status.OK]
    assert "max-record-size" in str(outcomes[0].reason)


@NEEDS_AEROSPIKE
def test_a_record_that_changed_since_it_was_read_is_not_overwritten(store: AerospikeStore, client: aerospike.Client):
    """Also when it was removed and recreated, so that the server counts its generations from 1."""
    stale = store._records.fetch(ALL.name, [b"raced"], "items")
    store.write(ALL, [item(b"raced", version=1)], NOW)
    (first,) = store._records.fetch(ALL.name, [b"raced"], "items")
    client.remove(place(ALL, b"raced"))
    store.write(ALL, [item(b"raced", version=2)], NOW)

    outcomes = [overwrite(store, kept) for kept in (*stale, first)]

    assert outcomes == [LOST, LOST]
    assert store.read(ALL, [b"raced"], NOW)[0].items == (item(b"raced", version=2),)


@NEEDS_AEROSPIKE
def test_a_lost_connection_is_reported(store: AerospikeStore):
    """Nothing was done."""
    store.close()

    with pytest.raises(StorageUnavailable, match="reading failed"):
        store.write(ALL, [item()], NOW)
    with pytest.raises(StorageUnavailable, match="reading failed"):
        store.read(ALL, [b"k"], NOW)
    with pytest.raises(StorageUnavailable, match="reading failed"):
        store.delete(ALL, [b"k"], NOW)


@NEEDS_AEROSPIKE
def test_a_namespace_that_the_server_does_not_have_is_refused():
    """By name."""
    server = os.environ[AEROSPIKE].split("/")[0]

    with pytest.raises(StorageConfigInvalid, match=r"nowhere .*no such namespace"):
        open_backend(f"aerospike://{server}/nowhere", [])


def test_a_missing_server_is_reported():
    """With its address."""
    port = free_port()

    with pytest.raises(StorageUnavailable, match=rf"127\.0\.0\.1:{port} cannot be reached"):
        open_backend(f"aerospike://127.0.0.1:{port}/namespace", [])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"storage-engine.evict-used-pct": "50"}, "evicts .*evict-used-pct 50.*set that to 0"),
        ({"evict-indexes-memory-pct": "80"}, "evict-indexes-memory-pct 80"),
        ({"index-type.evict-mounts-pct": "80"}, "index-type.evict-mounts-pct 80"),
        ({"nsup-period": "0"}, "never removes .*set nsup-period"),
    ],
)
def test_a_namespace_that_evicts_or_never_frees_is_refused(change: dict[str, str], words: str):
    """With the remedy; settings that say how, and not whether, do not matter."""
    check_namespace("here", SOUND)

    with pytest.raises(StorageConfigInvalid, match=words):
        check_namespace("here", SOUND | change)


@pytest.mark.parametrize(
    ("result", "content", "in_doubt", "status"),
    [
        (0, ("key", {}, {}), False, None),
        (0, None, False, Status.IN_DOUBT),  # never sent, or never answered
        (9, None, True, Status.IN_DOUBT),
        (9, None, False, Status.IN_DOUBT),
        (-15, None, False, Status.IN_DOUBT),
        (-10, None, False, Status.IN_DOUBT),
        (5, None, True, Status.IN_DOUBT),
        (8, None, False, Status.RETRYABLE),  # stopped writes
        (14, None, False, Status.RETRYABLE),  # the key is busy
        (18, None, False, Status.RETRYABLE),  # the device is overloaded
        (13, None, False, Status.REJECTED),
    ],
)
def test_the_result_of_each_written_record_counts(result: int, content: object, in_doubt: bool, status: Status | None):
    """One that looks well without an answer is in doubt."""
    failure = failure_of(record(result, content, in_doubt))

    assert (None if failure is None else failure.status) is status


@pytest.mark.parametrize("result", [8, 22])
def test_a_server_that_stopped_writes_is_full(result: int):
    """Nothing was done; it may be sent again."""
    failure = failure_of(record(result))

    assert is_full(failure)
    assert failure is not None
    assert failure.status is Status.RETRYABLE
    assert "full" in str(failure.reason)
    assert not is_full(failure_of(record(18)))


class FailsAsAWhole:
    """A client whose batches fail before any record is sent: it raises nothing, and gives back no records."""

    def answer(self, *_: object) -> BatchRecords:
        """Answers every call."""
        batch = BatchRecords([])
        batch.result = -8
        return batch

    batch_read = batch_remove = answer


def test_a_batch_that_failed_as_a_whole_is_sent_again():
    """One outcome for each key, with the client's result; what was to be removed is in doubt."""
    records = AerospikeRecords.__new__(AerospikeRecords)
    records._client, records._namespace = FailsAsAWhole(), "namespace"

    read = records.fetch("set", [b"a", b"b"], "items")
    removed = records.remove("set", [b"a", b"b"])

    assert read == [WriteResult(Status.RETRYABLE, "reading failed as a whole: result -8")] * 2
    assert removed == [WriteResult(Status.IN_DOUBT, "deleting failed as a whole: result -8")] * 2


@pytest.mark.parametrize("result", [2, 3, 5, 27])
def test_a_lost_race_is_run_again(result: int):
    """What the server's condition refused was not done."""
    assert failure_of(record(result)) is LOST


@pytest.mark.parametrize("result", [0, 9, -15, -10, 8, 11])
def test_the_result_of_each_read_record_counts(result: int):
    """Only the server's word counts for `not found`."""
    assert isinstance(kept_of(record(result), "items"), WriteResult)
    assert kept_of(record(2), "items") == ReadRecord(None)
    assert kept_of(record(0, ("key", {}, {"items": b"x", "nonce": 7})), "items") == ReadRecord(7, b"x")
