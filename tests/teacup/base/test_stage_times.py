"""How long stages take that call each other."""

from __future__ import annotations

from collections.abc import Generator, Iterator

from teacup.base.stage_times import StageTimes, longest


class Ticking:
    """A clock that is moved."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_a_second_counts_for_the_innermost_stage() -> None:
    """What happens between two items counts for no stage, or for one around it."""
    clock = Ticking()
    times = StageTimes(clock)

    def fetched() -> Iterator[int]:
        for number in range(2):
            clock.now_s += 1
            yield number

    def matched() -> Iterator[int]:
        for number in times.over("fetch", fetched()):
            clock.now_s += 10
            yield number

    for _ in times.over("match", matched()):
        clock.now_s += 100
        with times.within("produce"):
            clock.now_s += 1_000

    assert times.seconds == {"fetch": 2.0, "match": 20.0, "produce": 2_000.0}


def test_an_iterator_is_closed_with_the_one_around_it() -> None:
    """It may hold a consumer."""
    closed = []

    def items() -> Generator[int, None, None]:
        try:
            yield 1
            yield 2
        finally:
            closed.append(True)

    timed = StageTimes().over("fetch", items())
    next(timed)
    timed.close()

    assert closed == [True]


def test_an_error_leaves_no_stage_open() -> None:
    """Whoever catches it goes on with its own."""
    clock = Ticking()
    times = StageTimes(clock)
    try:
        with times.within("match"):
            raise ValueError
    except ValueError:
        clock.now_s += 5

    assert times.seconds == {"match": 0.0}


def test_the_longest_of_several_is_what_a_batch_waits_for() -> None:
    """Stage by stage."""
    assert longest([{"match": 1.0, "fetch": 2.0}, {"match": 3.0}]) == {"match": 3.0, "fetch": 2.0}
