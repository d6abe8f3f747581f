"""When a queue is flushed while somebody waits for it. The producer is scripted, and so is the clock."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from teacup.kafka.write.producer import ConnectionWatch, Drain


class ScriptedQueue:
    """One partition of a broker that answers after `answer_s`: full batches follow each other, the rest needs a pulse.

    full, rest   full batches, and records beside them, still to be sent
    pulses       when, since the beginning
    spun_s       for how long flushing went on while a request was in flight and records were left
    """

    def __init__(self, full: int, rest: int, answer_s: float, *, up: bool = True, loses: int = 0) -> None:
        self.full, self.rest, self.up = full, rest, up
        self.pulses: list[float] = []
        self.looks = 0
        self.now_s = self.spun_s = 0.0
        self._answer_s, self._loses = answer_s, loses
        self._flying: list[tuple[float, int]] = []
        self.counted = 0
        self._send(flushing=False)

    def __len__(self) -> int:
        return 10 * self.full + self.rest + sum(count for _, count in self._flying)

    def in_flight(self) -> int:
        return self.counted

    def poll(self, timeout: float, /) -> int:
        self.looks += 1
        self._pass(timeout, flushing=False)
        return 0

    def flush(self, timeout: float, /) -> int:
        self.pulses.append(round(self.now_s, 4))
        self._pass(timeout, flushing=True)
        return len(self)

    def _pass(self, time_s: float, *, flushing: bool) -> None:
        self._send(flushing=flushing)
        if flushing and self._flying and (self.full or self.rest):
            self.spun_s += time_s
        self.now_s += time_s
        if self._flying and self._flying[0][0] <= self.now_s:
            self._flying.pop()
            if self._loses:  # the connection has swallowed it; librdkafka sends the next one all the same
                self._loses -= 1
            else:
                self.counted -= 1
            self._send(flushing=False)

    def _send(self, *, flushing: bool) -> None:
        if self._flying or not self.up:
            return
        count = 10 if self.full else self.rest if flushing else 0
        if count:
            self.full, self.rest = (self.full - 1, self.rest) if self.full else (0, 0)
            self._flying.append((self.now_s + self._answer_s, count))
            self.counted += 1


def drained(queue: ScriptedQueue, *, until: Callable[[], bool] | None = None) -> None:
    drain = Drain(queue, queue.in_flight, lambda: queue.now_s)
    drain.begin(at_once=True)
    while len(queue) and not (until and until()):
        drain.poll()


@pytest.mark.parametrize("answer_s", [0.0005, 0.004, 0.2])
def test_full_batches_go_by_themselves(answer_s: float) -> None:
    """One pulse for the rest, and none before, however slow the broker is."""
    queue = ScriptedQueue(full=5, rest=3, answer_s=answer_s)

    drained(queue)

    assert len(queue.pulses) == 1
    assert queue.spun_s == 0
    assert queue.now_s < 6 * answer_s * 1.1 + 0.03


def test_a_small_batch_is_sent_at_once() -> None:
    """By the pulse that begins the wait."""
    queue = ScriptedQueue(full=0, rest=3, answer_s=0.003)

    drained(queue)

    assert queue.pulses == [0.0]
    assert queue.now_s < 0.006


def test_without_a_broker_pulses_become_rare() -> None:
    """And come back once records move."""
    queue = ScriptedQueue(full=0, rest=3, answer_s=0.01, up=False)
    drained(queue, until=lambda: queue.now_s > 10)
    while_down = len(queue.pulses)
    queue.up = True

    drained(queue)

    assert while_down < 10 / 0.02
    assert queue.now_s < 10.3


def test_a_broker_may_be_away_for_long() -> None:
    """More pulses than a number of seconds can be doubled."""
    queue = ScriptedQueue(0, 5, 0.1, up=False)

    drained(queue, until=lambda: queue.now_s > 600)

    assert len(queue.pulses) > 1_100


def test_a_request_that_is_never_answered_does_not_block() -> None:
    """The rest goes after a second."""
    queue = ScriptedQueue(full=1, rest=3, answer_s=0.01, loses=1)

    drained(queue)

    assert 1 < queue.now_s < 1.1


def test_who_waits_looks_seldom() -> None:
    """About a hundred times a second, once it takes long."""
    queue = ScriptedQueue(full=1, rest=0, answer_s=3.0)

    drained(queue)

    assert queue.looks < 400


def test_a_producer_that_lost_a_connection_is_waited_for_as_long_as_something_moves() -> None:
    lost = [4]
    watch = ConnectionWatch(lambda: lost[0])
    assert not watch.has_lost_one
    assert not watch.is_stuck(0.0, 50)
    assert not watch.is_stuck(1_000.0, 50)

    lost[0] += 1
    assert watch.has_lost_one
    assert not watch.is_stuck(1_000.0, 50)
    assert not watch.is_stuck(1_002.9, 50)
    assert not watch.is_stuck(1_003.0, 49)  # one was acknowledged
    assert not watch.is_stuck(1_005.9, 49)
    assert watch.is_stuck(1_006.0, 49)

    watch.begin()
    assert not watch.has_lost_one
    assert not watch.is_stuck(2_000.0, 49)
