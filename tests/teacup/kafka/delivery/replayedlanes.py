"""The delivery's own code, one request at a time and without threads, so that each state of it can be returned to.

A *lane* is what one process does with one bucket: its deliveries, one after the other. What a lane does next depends on
the answers that it got so far, and on nothing else. So a lane is these answers: to see its next request, its code runs
from the beginning, is given the answers, and stops where they are used up. Between two deliveries only the producer
that is kept counts, so that lanes that remember the same are one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from teacup.kafka.delivery import claim, delivery, fencing, transactional
from teacup.kafka.delivery.transactional import Producers, TransactionalWriter
from teacup.kafka.write import writer
from tests.teacup.kafka.delivery.simulatedcluster import Cluster, Transaction, Worker

Frozen = tuple[Any, ...]
"""What `frozen` makes of a cluster: it can be compared and is a key."""
Task = Callable[[Worker], object]
Answer = tuple[str, Any]
"""("is", the answer), or ("error", code and whether it is fatal)."""
TIMED_OUT: Answer = ("error", (KafkaError._TIMED_OUT, False))
FENCED = (KafkaError._FENCED, True)
LOST: Answer = ("error", FENCED)


class Paused(BaseException):
    """The answers are used up."""


def frozen(cluster: Cluster) -> Frozen:
    """Returns the state of a cluster, without what nobody can see: aborted records, and the order between batches."""
    return (
        tuple(sorted(cluster.epochs.items())),
        tuple(
            (name, tuple(value for value, _ in open_.records), tuple(sorted(open_.offsets.items())), open_.timeout_s)
            for name, open_ in sorted(cluster.open.items())
        ),
        tuple(sorted(cluster.committed(), key=lambda row: row[:3])),
        tuple(sorted(cluster.offsets.items())),
    )


def restore(cluster: Cluster, state: Frozen) -> None:
    """Puts a cluster back into a state."""
    epochs, opened, rows, offsets = state
    cluster.epochs, cluster.offsets, cluster.open = dict(epochs), dict(offsets), {}
    cluster.log = [[row, "committed"] for row in rows]
    for name, values, held, timeout_s in opened:
        records = [[value, "open"] for value in values]
        cluster.log += records
        cluster.open[name] = Transaction(0.0, timeout_s, records, dict(held))


@dataclass(frozen=True, slots=True)
class Lane:
    """Where a lane is.

    past      its deliveries that have ended, each with the answers that it got
    asks      the request that it is about to make; "": it is between two deliveries
    effect    of that request, on the cluster of the lanes
    outcome   between two deliveries: what the last one returned or raised
    rests     between two deliveries: the lane that remembers the same
    """

    past: tuple[tuple[Task, tuple[Answer, ...]], ...]
    task: Task | None
    answers: tuple[Answer, ...]
    asks: str
    effect: Callable[[], Any]
    outcome: object
    rests: int


class Lanes(Worker):
    """All lanes that were seen, by number; 0: a process that has not begun yet. Implements `Clients` for their code."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.producers = Producers(self)
        self.seen: list[Lane] = []
        self.runs = 0
        self._numbers: dict[object, int] = {}
        self._known: dict[object, int] = {}
        self._given: Iterator[Answer] = iter(())
        self._pending: tuple[str, Callable[[], Any]] | None = None
        self._add(Lane((), None, (), "", lambda: None, None, 0))
        self._known["nothing"] = 0

    def begin(self, lane: int, task: Task) -> int:
        """Returns the lane that begins a delivery; `task` is the same object whenever it is the same delivery."""
        return self._next(self.seen[lane].past, task, ())

    def answered(self, lane: int, answer: Answer) -> int:
        """Returns the lane after its request was answered."""
        was = self.seen[lane]
        assert was.task is not None
        return self._next(was.past, was.task, (*was.answers, answer))

    def effect(self, lane: int, state: Frozen) -> tuple[Answer, Frozen]:
        """Carries out the pending request in a state: returns the answer, and the state after it."""
        restore(self.cluster, state)
        try:
            answer: Answer = ("is", self.seen[lane].effect())
        except KafkaException as error:
            answer = ("error", (error.args[0].code(), error.args[0].fatal()))
        return answer, frozen(self.cluster)

    def request(self, what: str, effect: Callable[[], Any], timeout_s: float) -> Any:
        if self._pending is None:
            kind, value = next(self._given, ("pending", None))
            if kind == "is":
                return value
            if kind == "error":
                code, fatal = value
                raise KafkaException(KafkaError(code, "as answered before", fatal))
            self._pending = what, effect
        raise Paused

    def _next(self, past: tuple[tuple[Task, tuple[Answer, ...]], ...], task: Task, answers: tuple[Answer, ...]) -> int:
        key = past, task, answers
        if key not in self._numbers:
            self._numbers[key] = self._add(self._run(past, task, answers))
        return self._numbers[key]

    def _add(self, lane: Lane) -> int:
        self.seen.append(lane)
        return len(self.seen) - 1

    def _run(self, past: Sequence[tuple[Task, tuple[Answer, ...]]], task: Task, answers: tuple[Answer, ...]) -> Lane:
        self.runs += 1
        self.producers._open._values.clear()
        outcome: object = None
        for each, given in (*past, (task, answers)):
            self._given, self._pending = iter(given), None
            try:
                outcome = each(self)
            except Paused:
                assert each is task
            except Exception as error:
                outcome = error
        if self._pending is not None:
            return Lane(tuple(past), task, answers, *self._pending, None, -1)
        remembers = self._remembers()
        if remembers not in self._known:
            self._known[remembers] = self._add(Lane((*past, (task, answers)), None, (), "", lambda: None, None, -1))
        return Lane((), None, (), "", lambda: None, outcome, self._known[remembers])

    def _remembers(self) -> object:
        """Returns all that the next delivery of the lane can see of earlier ones."""
        return tuple(map(_remembered, self.producers._open._values.values())) or "nothing"


def _remembered(made: Future[TransactionalWriter]) -> str:
    """Returns what a producer that is kept has in it."""
    one = made.result()
    of, producer = one.writer, one.writer.producer
    assert (of._sent, len(producer)) == (0, 0)
    return repr(
        (
            *(one._bucket, one.handled, one.kept, one.begun, one.perhaps_sent_twice, one.receipt),
            *(of._codes, of._acknowledged_before - producer.counts.acknowledged, producer.counts.codes),
            *(producer._epoch, producer._fatal, producer._begun),
        )
    )


class _OneAfterAnother:
    """A pool of one thread: this one."""

    def __init__(self, _: int) -> None:
        self.map = map

    def __enter__(self) -> _OneAfterAnother:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing runs any more."""


def _at_once(call: Callable[[], Any]) -> Future[Any]:
    done: Future[Any] = Future()
    try:
        done.set_result(call())
    except BaseException as error:
        done.set_exception(error)
    return done


def without_threads(patched: pytest.MonkeyPatch) -> None:
    """Makes the delivery do at once what it does in the background: other lanes may do anything meanwhile."""
    for module in (fencing, writer):
        patched.setattr(module, "within", lambda timeout_s, call, gives_up=None: call())
    for module in (delivery, transactional):
        patched.setattr(module, "begun", _at_once)
    for module in (claim, fencing):
        patched.setattr(module, "ThreadPoolExecutor", _OneAfterAnother)
    patched.setattr(claim, "_PAUSE_S", 0.0)
