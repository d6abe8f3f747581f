"""Records of Aerospike sets, changed by compare-and-swap: in batches, under a condition that the server checks.

A record carries a nonce, a random integer that is new with each change. A swap is carried out if the record is new, or
still has the nonce that was read. (Aerospike's own generation is not enough: a record that was removed and recreated
counts from 1 again.)

The client does not raise when the server fails: the result of every record counts, and a record that looks fine but has
no answer was never sent.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import aerospike
from aerospike import exception
from aerospike_helpers.batch.records import BatchRecord, BatchRecords, Write
from aerospike_helpers.expressions import Eq, IntBin
from aerospike_helpers.operations import operations

from teacup.storage.backends.aerospike.facts import Node
from teacup.storage.backends.entries import LOST
from teacup.storage.errors import StorageConfigInvalid, StorageUnavailable
from teacup.storage.model import Status, WriteResult

_NONCE = "nonce"
_TIMEOUT_MS = 5_000
_TIMED_OUT = {9, -15}
_NO_RECORD = 2
_RACE_LOST = {_NO_RECORD, 3, 5, 27}  # gone, another generation, it exists, filtered out
_TOO_BIG = 13

_REFUSED = {
    8: WriteResult(
        Status.RETRYABLE,
        "the store is full: the server has stopped writes, or its device has no room; give it more (its stop-writes "
        "settings say what is full), or let items expire",
    ),
    22: WriteResult(
        Status.RETRYABLE,
        "the server forbids writes: the set is full (stop-writes-count, stop-writes-size), nsup-period is 0, or the "
        "clocks of the nodes differ; its log says which",
    ),
}


def is_full(outcome: object) -> bool:
    """Returns whether the outcome says that the server answers but takes no writes."""
    return outcome in _REFUSED.values()


@dataclass(frozen=True, slots=True)
class ReadRecord:
    """A record as it was read; nonce None: there is no record."""

    nonce: int | None
    value: Any = None


@dataclass(frozen=True, slots=True)
class Swap:
    """A record to be written if it is still as it was read."""

    key: Any
    before: ReadRecord
    bin: str
    value: bytearray | str
    ttl_s: int


ABSENT = ReadRecord(None)


class AerospikeRecords:
    """The records of an Aerospike namespace. Thread-safe.

    Raises `StorageUnavailable`, and `StorageConfigInvalid` if the namespace evicts live records, or never removes
    expired ones.
    """

    def __init__(self, hosts: Sequence[tuple[str, int]], namespace: str) -> None:
        self.where = f"Aerospike's namespace {namespace} at {', '.join(f'{host}:{port}' for host, port in hosts)}"
        self._namespace = namespace
        timeouts = {"total_timeout": _TIMEOUT_MS, "socket_timeout": _TIMEOUT_MS}
        try:
            self._client = aerospike.client(
                {
                    "hosts": list(hosts),
                    "connect_timeout": _TIMEOUT_MS,
                    "policies": {
                        "batch": timeouts,
                        "batch_parent_write": timeouts | {"max_retries": 0},
                        "info": {"timeout": _TIMEOUT_MS},
                    },
                }
            )
        except exception.AerospikeError as error:
            raise StorageUnavailable(f"{self.where} cannot be reached: {_message(error)}") from error
        try:
            for answer in self._ask(f"namespace/{namespace}").values():
                check_namespace(self.where, _settings(answer))
        except BaseException:
            self.close()
            raise

    def cluster(self) -> dict[str, Node]:
        """Asks every node, in this order, for its start, its namespace, and whether anything has changed since.

        Raises `StorageUnavailable`, also for a namespace that now evicts.
        """
        statistics = self._ask("statistics")
        namespaces = {node: _settings(answer) for node, answer in self._ask(f"namespace/{self._namespace}").items()}
        stable = self._ask(f"cluster-stable:ignore-migrations=false;namespace={self._namespace}")
        try:
            for settings in namespaces.values():
                check_namespace(self.where, settings)
            return {
                name: Node.of(_settings(statistics[name]), namespaces[name], stable[name].strip().split("\t")[-1])
                for name in statistics.keys() | namespaces.keys() | stable.keys()
            }
        except StorageConfigInvalid as error:
            raise StorageUnavailable(str(error)) from error
        except KeyError as error:
            raise StorageUnavailable(f"{self.where}: its nodes change, or say nothing about {error}") from error

    def _ask(self, request: str) -> dict[str, str]:
        """Returns the answers of all nodes, by name."""
        try:
            answers = self._client.info_all(request)
        except exception.AerospikeError as error:
            raise StorageUnavailable(f"{self.where} cannot be queried: {_message(error)}") from error
        for node, (failure, _) in answers.items():
            if failure is not None:
                raise StorageUnavailable(f"{self.where}: node {node} answers {failure}")
        return {node: str(answer) for node, (_, answer) in answers.items()}

    def close(self) -> None:
        """Closes the connections of this process."""
        self._client.close()

    def fetch(self, set_name: str, keys: Sequence[Any], name: str) -> list[ReadRecord | WriteResult]:
        """Reads the records of different keys; gives an outcome where the server gave no result."""
        try:
            batch = self._client.batch_read([self._key(set_name, key) for key in keys], [name, _NONCE])
        except exception.AerospikeError as error:
            return [WriteResult(Status.RETRYABLE, f"reading failed: {_message(error)}")] * len(keys)
        if len(batch.batch_records) != len(keys):
            return [WriteResult(Status.RETRYABLE, f"reading failed as a whole: result {batch.result}")] * len(keys)
        return [kept_of(record, name) for record in batch.batch_records]

    def swap(self, set_name: str, swaps: Sequence[Swap]) -> list[WriteResult | None]:
        """Carries out the swaps. Returns the failure of each; None if it was done."""
        if not swaps:
            return []
        batch = BatchRecords([self._conditional(set_name, swap) for swap in swaps])
        try:
            self._client.batch_write(batch)
        except exception.AerospikeError as error:
            return [WriteResult(Status.IN_DOUBT, f"writing failed: {_message(error)}")] * len(swaps)
        return [failure_of(record) for record in batch.batch_records]

    def _conditional(self, set_name: str, swap: Swap) -> Write:
        ops = [operations.write(swap.bin, swap.value), operations.write(_NONCE, secrets.randbits(62))]
        policy: dict[str, Any] = {"ttl": swap.ttl_s, "exists": aerospike.POLICY_EXISTS_CREATE}
        if swap.before.nonce is not None:
            policy["exists"] = aerospike.POLICY_EXISTS_REPLACE
            policy["expressions"] = Eq(IntBin(_NONCE), swap.before.nonce).compile()
        return Write(self._key(set_name, swap.key), ops, policy=policy)

    def remove(self, set_name: str, keys: Sequence[bytes]) -> list[WriteResult]:
        """Removes records. Returns an outcome for each key."""
        if not keys:
            return []
        try:
            batch = self._client.batch_remove([self._key(set_name, key) for key in keys])
        except exception.AerospikeError as error:
            return [WriteResult(Status.IN_DOUBT, f"deleting failed: {_message(error)}")] * len(keys)
        if len(batch.batch_records) != len(keys):
            return [WriteResult(Status.IN_DOUBT, f"deleting failed as a whole: result {batch.result}")] * len(keys)
        outcomes = []
        for record in batch.batch_records:
            failure = failure_of(record)
            gone = WriteResult(Status.NOT_FOUND if record.result == _NO_RECORD else Status.OK)
            outcomes.append(failure if failure is not None and failure is not LOST else gone)
        return outcomes

    def _key(self, set_name: str, key: bytes | int) -> tuple[str, str, bytearray | int]:
        """Returns the client's key; `bytes` would be hashed like text."""
        return self._namespace, set_name, bytearray(key) if isinstance(key, bytes) else key


def check_namespace(where: str, settings: Mapping[str, str]) -> None:
    """Raises `StorageConfigInvalid` if the server would evict records, or never free expired ones."""
    if "nsup-period" not in settings:
        raise StorageConfigInvalid(f"{where}: the server has no such namespace")
    evicting = sorted(
        f"{name} {value}"
        for name, value in settings.items()
        if ".evict-" in f".{name}" and name.endswith("-pct") and not name.endswith("evict-tenths-pct") and value != "0"
    )
    if evicting:
        raise StorageConfigInvalid(f"{where} evicts live records ({', '.join(evicting)}): set that to 0 on every node")
    if settings["nsup-period"] == "0":
        raise StorageConfigInvalid(f"{where} never removes what expired: set nsup-period, e.g. to 120, on every node")


def _settings(answer: str) -> dict[str, str]:
    """Parses the settings in the answer to the info request `namespace/...`."""
    values = answer.strip().split("\t")[-1]
    return dict(pair.split("=", 1) for pair in values.split(";") if "=" in pair)


def kept_of(record: BatchRecord, name: str) -> ReadRecord | WriteResult:
    """Returns what was read of a record; an outcome if the server gave no result."""
    if record.result == 0 and record.record is not None:
        bins = record.record[2]
        return ReadRecord(bins[_NONCE], bins[name])
    if record.result == _NO_RECORD:
        return ABSENT
    return WriteResult(Status.RETRYABLE, f"reading failed: {_described(record)}")


def failure_of(record: BatchRecord) -> WriteResult | None:
    """Returns the failure of a write; None if it was done."""
    if record.result == 0 and record.record is not None:
        return None
    if record.result in _RACE_LOST and not record.in_doubt:
        return LOST
    if record.result in _REFUSED and not record.in_doubt:
        return _REFUSED[record.result]
    if record.result == _TOO_BIG:
        return WriteResult(
            Status.REJECTED, f"the items of this key exceed the server's max-record-size: {_described(record)}"
        )
    in_doubt = record.in_doubt or record.result <= 0 or record.result in _TIMED_OUT
    return WriteResult(Status.IN_DOUBT if in_doubt else Status.RETRYABLE, f"writing failed: {_described(record)}")


def _described(record: BatchRecord) -> str:
    if record.result == 0:
        return "the server did not answer"
    return f"result {record.result}" + (f", {record.message}" if record.message else "")


def _message(error: exception.AerospikeError) -> str:
    return f"{type(error).__name__} {error.msg or ''}".strip()
