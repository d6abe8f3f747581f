"""A producer as writing and delivery need it, and the wait for its queue.

`teacup.kafka.client` gives real clients, a simulation its own. The wait must not keep librdkafka's threads busy.

An idempotent producer has one request at a time for each partition. Full batches follow each other by themselves: the
answer to one request makes librdkafka's thread send the next. Records that do not fill a batch go only after
`linger.ms`, or while somebody flushes.

But while a partition's request is being answered, and flushing or an old record allows the next one, librdkafka checks
without any pause whether it may send it. That takes a core, slows down the broker, and makes the wait even longer.

So the queue is flushed in *pulses* of a millisecond; the wait for what a pulse releases is without flushing:

    requests in flight   pulse once nothing has moved for
    none                 1 ms; longer after each pulse that changes nothing (no broker, no leader)
    fewer than before    1 ms: no full batch has followed the one that was answered
    as many as before    1 s: librdkafka may have lost one
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from confluent_kafka import KafkaError, TopicPartition

PULSE_S = 0.001
_SHORTEST_POLL_S = 0.001
_LONGEST_POLL_S = 0.01
_POLLS = 10  # as a share of the time waited so far: nobody waits a tenth longer than needed
_IDLE_S, _LONGEST_IDLE_S = 0.001, 0.02
_DOUBLED = 10  # at most this many times, as a broker may be away for hours
_LOST_S = 1.0
_GIVES_UP_S = 3.0


class ConnectionWatch:
    """Watches a producer's connections: once it has lost one, the wait for it lasts only as long as something moves.

    librdkafka may wait for a broker that it has forgotten until a time-out strikes; another producer finds it at once.
    That happens after a broker was restarted, or was missing from its cluster's metadata for a moment.

    lost   how many connections were lost so far
    """

    def __init__(self, lost: Callable[[], int]) -> None:
        self._lost = lost
        self.begin()

    def begin(self) -> None:
        """Forgets earlier losses."""
        self._before = self._lost()
        self._since_s: float | None = None
        self._state: object = None

    @property
    def has_lost_one(self) -> bool:
        """Returns whether one was lost since `begin`."""
        return self._lost() != self._before

    def is_stuck(self, now_s: float, state: object) -> bool:
        """Returns whether a connection was lost and nothing has moved for three seconds since.

        state   something that changes whenever something moves
        """
        if not self.has_lost_one:
            return False
        if self._since_s is None or state != self._state:
            self._since_s, self._state = now_s, state
        return now_s - self._since_s >= _GIVES_UP_S


class Queue(Protocol):
    """The part of a producer that waiting needs."""

    def __len__(self) -> int: ...

    def poll(self, timeout: float, /) -> int: ...

    def flush(self, timeout: float, /) -> int: ...


class Producer(Queue, Protocol):
    """Like `confluent_kafka.Producer`; calls raise `KafkaException`."""

    def purge(self) -> None: ...

    def close(self) -> object: ...

    def list_topics(self, topic: str, timeout: float, /) -> Any: ...

    def init_transactions(self, timeout: float, /) -> None: ...

    def begin_transaction(self) -> None: ...

    def send_offsets_to_transaction(self, positions: list[TopicPartition], group: Any, timeout: float, /) -> None: ...

    def commit_transaction(self, timeout: float, /) -> None: ...


class Consumer(Protocol):
    """Like `confluent_kafka.Consumer`, but used only for committed offsets."""

    def committed(self, partitions: list[TopicPartition], timeout: float, /) -> list[TopicPartition]: ...

    def poll(self, timeout: float, /) -> Any: ...

    def consumer_group_metadata(self) -> Any: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class RecordCounts:
    """The outcome of a producer's records so far.

    codes                    error codes of failed records
    topic, partition, code   of the first failed record; code 0: there is none, or it has failed just now
    """

    acknowledged: int
    failed: int
    codes: frozenset[int]
    topic: str
    partition: int
    code: int


class RecordColumns(Protocol):
    """Columns of records, ready to be produced."""

    @property
    def count(self) -> int: ...

    def partition_of(self, row: int, /) -> int: ...


class CountingProducer(Protocol):
    """Takes whole columns and counts the outcome of the records: `teacup.kafka.write.native_producer`."""

    def rows(self, keys: Any, values: Any, headers: Any, timestamps: Any, partitions: Any, /) -> RecordColumns: ...

    def produce(self, topic: str, rows: Any, start: int, /) -> tuple[int, int]: ...

    def counts(self) -> RecordCounts: ...

    def in_flight(self) -> int: ...

    def connections_lost(self) -> int: ...

    def settled(self) -> None: ...

    def shut(self) -> None: ...

    def free(self) -> None: ...


class Clients(Protocol):
    """Creates clients from librdkafka properties; see `teacup.kafka.write.clients`."""

    def producer(
        self,
        kafka: Mapping[str, str],
        tuning: Mapping[str, Any],
        on_error: Callable[[KafkaError], None],
        transactional_id: str | None = None,
        /,
    ) -> tuple[Producer, CountingProducer]: ...

    def consumer(
        self, kafka: Mapping[str, str], tuning: Mapping[str, Any], on_error: Callable[[KafkaError], None], /
    ) -> Consumer: ...


class Drain:
    """Waits for one producer, again and again: `begin`, then `look` until what is waited for has come.

    in_flight  how many produce requests are being answered
    """

    def __init__(self, queue: Queue, in_flight: Callable[[], int], now_s: Callable[[], float] = time.monotonic) -> None:
        self._queue, self._in_flight, self._now_s = queue, in_flight, now_s
        self._length, self._flying = 0, self._in_flight()
        self._most_flying = 0  # since the last pulse
        self._still_since_s = 0.0
        self._futile = 0  # pulses since something has moved

    def begin(self, *, at_once: bool = False) -> None:
        """Begins a wait.

        at_once  nothing more will be added, so that waiting for fuller batches is pointless
        """
        self._notice_moves()
        self._still_since_s, self._futile = self._now_s(), 0
        if at_once and not self._flying:
            self._pulse()

    def poll(self) -> None:
        """Serves the producer for a moment."""
        self._notice_moves()
        still_s = self._now_s() - self._still_since_s
        if still_s >= self._patience_s():
            self._pulse()
        else:
            self._queue.poll(min(max(_SHORTEST_POLL_S, still_s / _POLLS), _LONGEST_POLL_S))

    def _notice_moves(self) -> None:
        length, flying = len(self._queue), self._in_flight()
        if (length, flying) != (self._length, self._flying):
            self._length, self._flying = length, flying
            self._most_flying = max(self._most_flying, flying)
            self._still_since_s, self._futile = self._now_s(), 0

    def _patience_s(self) -> float:
        if self._flying and self._flying >= self._most_flying:
            return _LOST_S
        return float(min(_IDLE_S * 2 ** min(self._futile, _DOUBLED), _LONGEST_IDLE_S))

    def _pulse(self) -> None:
        self._futile += 1
        self._queue.flush(PULSE_S)
        self._notice_moves()
        self._most_flying = self._flying
        self._still_since_s = self._now_s()
