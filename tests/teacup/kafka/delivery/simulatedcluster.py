"""A simulated Kafka for one output: a transaction coordinator, one topic, committed offsets, and a clock that advances
only on request. The parts of delivery run against it unchanged; `teacup.kafka.write.producer` is the seam.

    Cluster    the state of the brokers. Requests change it in the order of their arrival
    Worker     a process that runs one task after another, in its own thread. Before each request it stops until a test
               lets it continue and decides what becomes of the request (`Fate`)

What it does as Kafka does:

- `init` ends the open transaction of the id and gives a new epoch; requests of older epochs are refused from then on.
- A transaction that is open for longer than its time-out is aborted, and its producer is fenced.
- Offsets count with the transaction that they belong to; a reader waits until it has ended.
- A request may get lost, its answer may get lost, or it may arrive after its sender has given up.
- A fenced producer is unusable: each of its calls fails, most with messages that do not say why.

What it does not do: there is one broker, which is never down; all records of a transaction are in one partition; a
request that arrives is executed completely.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from types import SimpleNamespace
from typing import Any

from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, TopicPartition

from teacup.kafka.delivery.transactional import Producers
from teacup.kafka.write.producer import RecordCounts
from tests.support.writtenrows import plain


class Fate(Enum):
    """What becomes of a request."""

    ANSWERED = "answered"
    ANSWER_LOST = "carried out, the answer is lost"
    LOST = "lost"
    LATE = "arrives after its sender has given up"


class Killed(BaseException):
    """The process is gone: none of its code runs any more."""


@dataclass(slots=True)
class Transaction:
    """An open transaction: its records in the log, and the offsets that it will commit."""

    began_s: float
    timeout_s: float
    records: list[list[Any]] = field(default_factory=list)
    offsets: dict[str, tuple[int, str]] = field(default_factory=dict)


class Cluster:
    """Epochs and open transactions by transactional id; the log as [value, is it committed]; offsets by group."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.epochs: dict[str, int] = {}
        self.open: dict[str, Transaction] = {}
        self.log: list[list[Any]] = []
        self.offsets: dict[str, tuple[int, str]] = {}
        self.late: list[Callable[[], object]] = []

    def committed(self) -> list[Any]:
        """What a reader of committed records sees."""
        return [value for value, state in self.log if state == "committed"]

    def advance(self, seconds: float) -> None:
        """Advance the clock; the coordinator aborts transactions that take too long."""
        self.now_s += seconds
        for name, transaction in list(self.open.items()):
            if self.now_s - transaction.began_s > transaction.timeout_s:
                self.time_out(name)

    def time_out(self, name: str) -> None:
        """The coordinator aborts a transaction and fences its producer."""
        self._end(name, commit=False)
        self.epochs[name] += 1

    def init(self, name: str) -> int:
        if name in self.open:
            self._end(name, commit=False)
        self.epochs[name] = self.epochs.get(name, -1) + 1
        return self.epochs[name]

    def produce(self, name: str, epoch: int, timeout_s: float, values: list[Any]) -> None:
        self._check(name, epoch)
        for value in values:
            record = [value, "open"]
            self.log.append(record)
            self._opened(name, timeout_s).records.append(record)

    def add_offsets(self, name: str, epoch: int, timeout_s: float, group: str, offset: tuple[int, str]) -> None:
        self._check(name, epoch)
        self._opened(name, timeout_s).offsets[group] = offset

    def end(self, name: str, epoch: int, *, commit: bool) -> None:
        self._check(name, epoch)
        if name not in self.open:
            raise KafkaException(KafkaError(KafkaError.INVALID_TXN_STATE))
        self._end(name, commit=commit)

    def unstable(self, group: str) -> bool:
        return any(group in transaction.offsets for transaction in self.open.values())

    def _check(self, name: str, epoch: int) -> None:
        if self.epochs[name] != epoch:
            raise KafkaException(KafkaError(KafkaError._FENCED, "fenced by a newer one", True))

    def _opened(self, name: str, timeout_s: float) -> Transaction:
        return self.open.setdefault(name, Transaction(self.now_s, timeout_s))

    def _end(self, name: str, *, commit: bool) -> None:
        transaction = self.open.pop(name)
        for record in transaction.records:
            record[1] = "committed" if commit else "aborted"
        if commit:
            self.offsets.update(transaction.offsets)


class Worker:
    """Runs tasks; `go_on` lets it make its next request. Implements `Clients` for the code that runs in it.

    doing   "idle", "running", or the request that it is about to make
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.producers = Producers(self)
        self.doing = "idle"
        self.outcome: object = None
        self._fate: Fate | None = None
        self._killed = False
        self._changed = threading.Condition()

    def begin(self, task: Callable[[Worker], object]) -> None:
        """Let it run a task up to its first request; `outcome` is what the task returns or raises."""
        self._resume("running")
        threading.Thread(target=self._run, args=(task,), daemon=True).start()
        self._await()

    def go_on(self, fate: Fate = Fate.ANSWERED) -> None:
        """Let it make the pending request, and run up to its next one."""
        self._resume("running", fate)
        self._await()

    def kill(self) -> None:
        """As by `kill -9`: the pending request is never made. One already under way may still arrive."""
        with self._changed:
            self._killed = True
        self._resume("killed", Fate.LOST)

    def request(self, what: str, effect: Callable[[], Any], timeout_s: float) -> Any:
        """Wait before a request until a test decides what becomes of it."""
        with self._changed:
            if self._killed:
                raise Killed
            self.doing, self._fate = what, None
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._fate is not None)
            if self._killed:
                raise Killed
            fate = self._fate
        if fate in (Fate.ANSWERED, Fate.ANSWER_LOST):
            answer = effect()
            if fate is Fate.ANSWERED:
                return answer
        if fate is Fate.LATE:
            self.cluster.late.append(effect)
        self.cluster.advance(timeout_s)
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    def producer(
        self, kafka: Mapping[str, str], tuning: object, on_error: Any, name: str | None = None
    ) -> tuple[SimulatedProducer, SimulatedRows]:
        assert name is not None
        timeout_s = int(kafka["transaction.timeout.ms"]) / 1000
        made = SimulatedProducer(self, name, timeout_s, on_error)
        return made, SimulatedRows(made)

    def consumer(self, kafka: Mapping[str, str], tuning: object, on_error: object) -> SimulatedConsumer:
        return SimulatedConsumer(self, kafka["group.id"])

    def _run(self, task: Callable[[Worker], object]) -> None:
        try:
            outcome = task(self)
        except BaseException as error:
            outcome = error
        with self._changed:
            self.outcome = outcome
            if not self._killed:
                self.doing = "idle"
            self._changed.notify_all()

    def _resume(self, doing: str, fate: Fate | None = None) -> None:
        with self._changed:
            self.doing, self._fate = doing, fate
            self._changed.notify_all()

    def _await(self) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.doing != "running", 30), "the worker neither asks nor ends"


class SimulatedProducer:
    """As librdkafka's transactional producer: records are collected, and sent when it is polled or flushed."""

    def __init__(self, worker: Worker, name: str, timeout_s: float, on_error: Any) -> None:
        self._worker, self._name, self._timeout_s = worker, name, timeout_s
        self._on_error = on_error
        self.counts = RecordCounts(0, 0, frozenset(), "", -1, 0)
        self._epoch = -1
        self._queue: list[Any] = []
        self._fatal: KafkaError | None = None
        self._begun = self._ending = False

    def __len__(self) -> int:
        return len(self._queue)

    def list_topics(self, topic: str, timeout: float) -> Any:
        return SimpleNamespace(topics={topic: SimpleNamespace(topic=topic, error=None, partitions={})})

    def produce(self, values: list[Any]) -> int:
        """Returns librdkafka's code; 0: they are taken."""
        if self._fatal is not None:
            return int(KafkaError._FATAL)
        self._queue += values
        return 0

    def poll(self, timeout: float) -> int:
        self._send()
        return 0

    def flush(self, timeout: float) -> int:
        self._send()
        return 0

    def purge(self) -> None:
        self._queue = []

    def close(self) -> None:
        """Aborts the open transaction; a failure to do so is ignored."""
        if self._begun and self._fatal is None:
            try:
                self._asked("abort", lambda: self._worker.cluster.end(self._name, self._epoch, commit=False))
            except KafkaException:
                return

    def init_transactions(self, timeout: float) -> None:
        self._epoch = self._asked("init", lambda: self._worker.cluster.init(self._name))

    def begin_transaction(self) -> None:
        if self._fatal is not None:
            raise KafkaException(self._fatal)
        if self._begun or self._epoch < 0:
            raise KafkaException(KafkaError(KafkaError._STATE))
        self._begun = True

    def send_offsets_to_transaction(self, positions: list[TopicPartition], group: Any, timeout: float) -> None:
        (at,) = positions
        cluster, offset = self._worker.cluster, (at.offset, at.metadata)
        self._asked("offsets", lambda: cluster.add_offsets(self._name, self._epoch, self._timeout_s, group, offset))

    def commit_transaction(self, timeout: float) -> None:
        self._asked("commit", lambda: self._worker.cluster.end(self._name, self._epoch, commit=True))
        self._begun = False

    def _send(self) -> None:
        values, self._queue = self._queue, []
        if not values:
            return
        cluster = self._worker.cluster
        try:
            self._asked("produce", lambda: cluster.produce(self._name, self._epoch, self._timeout_s, values))
        except KafkaException as error:
            code, before = error.args[0].code(), self.counts
            codes, failed = before.codes | {code}, before.failed + len(values)
            self.counts = RecordCounts(before.acknowledged, failed, codes, "out", 0, code)
        else:
            self.counts = replace(self.counts, acknowledged=self.counts.acknowledged + len(values))

    def _asked(self, what: str, effect: Callable[[], Any]) -> Any:
        if self._fatal is not None:
            raise KafkaException(self._fatal)
        try:
            return self._worker.request(what, effect, self._timeout_s)
        except KafkaException as error:
            if error.args[0].fatal():
                self._fatal = error.args[0]
                self._on_error(self._fatal)
            raise


@dataclass(frozen=True, slots=True)
class PlainRows:
    """Values of records."""

    values: list[Any]

    @property
    def count(self) -> int:
        return len(self.values)

    def partition_of(self, row: int) -> int:
        return 0


@dataclass(slots=True)
class SimulatedRows:
    """As `teacup.kafka.write.native_producer.NativeProducer`."""

    producer: SimulatedProducer

    def rows(self, keys: Any, values: Any, *_: object) -> PlainRows:
        return PlainRows(list(plain(values, None, len(values))))

    def produce(self, topic: str, rows: PlainRows, start: int) -> tuple[int, int]:
        code = self.producer.produce(rows.values[start:])
        return (0, code) if code else (rows.count - start, 0)

    def counts(self) -> RecordCounts:
        return self.producer.counts

    def in_flight(self) -> int:
        return 0

    def connections_lost(self) -> int:
        return 0

    def settled(self) -> None:
        """Nothing is in flight."""

    def shut(self) -> None:
        """Nothing more is handed over."""

    def free(self) -> None:
        """C holds nothing."""


class SimulatedConsumer:
    """Reads the committed offset of a group once it is stable."""

    def __init__(self, worker: Worker, group: str) -> None:
        self._worker, self._group = worker, group

    def committed(self, partitions: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        (asked,) = partitions
        cluster = self._worker.cluster
        while (found := self._worker.request("read", lambda: self._stable(cluster), 0.0)) is None:
            cluster.advance(1.0)
        offset, metadata = found
        return [TopicPartition(asked.topic, asked.partition, offset, metadata)]

    def poll(self, timeout: float) -> None:
        """It has no trouble to tell of."""

    def consumer_group_metadata(self) -> str:
        return self._group

    def close(self) -> None:
        """Nothing to close."""

    def _stable(self, cluster: Cluster) -> tuple[int, str] | None:
        return None if cluster.unstable(self._group) else cluster.offsets.get(self._group, (OFFSET_INVALID, ""))
