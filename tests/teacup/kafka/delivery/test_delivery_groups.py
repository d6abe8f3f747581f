"""Exactly once, whoever is with whom: two buckets, three batches, tasks whose buckets change, every interleaving.

What a history may do, and what must hold in it: `tests.teacup.kafka.delivery.exploredgroups`. The canaries each remove
one safeguard, and some history must show it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from teacup.base.process import no_garbage_collection
from teacup.kafka.delivery import delivery
from teacup.kafka.delivery.delivery import ExactlyOnce
from teacup.kafka.delivery.fencing import PREFIX, OutputBucket
from tests.teacup.kafka.delivery.exploredgroups import Broken, Histories, State, bucket_of
from tests.teacup.kafka.delivery.missingsafeguards import done_ignored, nobody_is_fenced, receipt_read_before_fencing
from tests.teacup.kafka.delivery.replayedlanes import without_threads


@pytest.fixture(autouse=True)
def _no_threads() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        without_threads(patched)
        yield


def test_each_row_is_in_the_output_once_whoever_is_with_whom() -> None:
    """One disturbance, anywhere. Of independent steps one order is walked: these are 600,000,000,000 interleavings."""
    with no_garbage_collection():
        found = Histories(1).explore()

    assert {"lost:", "restarts", "unanswered:", "arrives", "aborts", "plans", "commits"} <= found.kinds.keys()
    assert found.states > 100_000
    assert found.interleavings > 5 * 10**11


def test_the_order_of_independent_steps_makes_no_difference() -> None:
    """Of one batch all orders are walked: each bucket comes into the same situations."""
    states, situations = [], []
    for in_any_order in (False, True):
        histories, seen = Histories(1, batches=1, in_any_order=in_any_order), set[object]()

        def look(state: State, histories: Histories = histories, seen: set[object] = seen) -> None:
            seen.update((bucket, histories.situation(state, bucket)) for bucket in (0, 1))

        states.append(histories.explore(look).states)
        situations.append(seen)

    assert situations[0] == situations[1]
    assert states[0] < states[1] / 2


def test_a_bucket_alone_comes_into_every_situation() -> None:
    """Walked without the other bucket, of which it sees only that it may fail or be lost, it misses none."""

    def situations(buckets: tuple[int, ...], only: int | None = None) -> set[object]:
        histories, seen = Histories(1, batches=2, only=only), set[object]()

        def look(state: State) -> None:
            for bucket in buckets:
                number, _, *others = histories.situation(state, bucket)  # whichever bucket was disturbed
                seen.add((bucket, number, *others))

        histories.explore(look)
        return seen

    together = situations((0, 1))

    assert together <= situations((0,), only=0) | situations((1,), only=1)


@pytest.mark.slow
@pytest.mark.parametrize("bucket", [0, 1])
def test_each_row_is_in_the_output_once_after_two_disturbances(bucket: int) -> None:
    """Anywhere, in three batches. Of the other bucket only what this one sees of it is walked."""
    with no_garbage_collection():
        found = Histories(2, only=bucket).explore()

    assert {"lost:", "restarts", "unanswered:", "arrives", "aborts", "fails", "commits"} <= found.kinds.keys()
    assert found.states > 300_000


WRONG_OUTPUT = "not each row once|rows without their receipt|the receipt differs|is committed with"


@pytest.mark.canary
@pytest.mark.parametrize("only", [None, 1])
@pytest.mark.parametrize("without", [receipt_read_before_fencing, done_ignored, nobody_is_fenced])
def test_without_a_safeguard_a_history_shows_it(
    without: Callable[[pytest.MonkeyPatch], None], only: int | None
) -> None:
    """Each missing safeguard has a history that shows it, of both buckets and of one with two disturbances."""
    with pytest.MonkeyPatch.context() as patched:
        without(patched)
        with pytest.raises(Broken, match=WRONG_OUTPUT):
            Histories(1 if only is None else 2, only=only).explore()


@pytest.mark.canary
def test_one_receipt_for_all_buckets_of_a_task_loses_rows() -> None:
    """The first bucket's receipt says that the batch is done."""

    @dataclass(frozen=True, slots=True)
    class WithOneReceipt(OutputBucket):
        @property
        def group(self) -> str:
            return f"{PREFIX}{self.job}/{self.topic}/0"

    histories = Histories(0, lambda number, _: WithOneReceipt("job", number, "out"), digest=lambda _: "of the batch")
    with pytest.raises(Broken, match="is committed with 0 of 2 rows of bucket 1"):
        histories.explore()


@pytest.mark.canary
def test_a_receipt_of_the_group_is_not_found_by_another_grouping() -> None:
    """A batch in one task, and the next one in two: these do not know what is in the output."""

    @dataclass(frozen=True, slots=True)
    class WithReceiptOfGroup(OutputBucket):
        buckets: tuple[int, ...] = ()

        @property
        def group(self) -> str:
            return f"{PREFIX}{self.job}/{self.topic}/of-{self.buckets}-{self.number}"

    histories = Histories(0, lambda number, buckets: WithReceiptOfGroup("job", number, "out", buckets=buckets))
    with pytest.raises(Broken, match=r"an attempt failed though nothing went wrong: .* has no receipt"):
        histories.explore()


@pytest.mark.canary
def test_an_id_of_the_group_does_not_fence_another_grouping() -> None:
    """After a restart in another grouping, a task of the old one goes on, and commits."""

    @dataclass(frozen=True, slots=True)
    class WithIdOfGroup(OutputBucket):
        buckets: tuple[int, ...] = ()

        @property
        def transactional_id(self) -> str:
            return f"{bucket_of(self.number).transactional_id}/of-{self.buckets}"

        @property
        def group(self) -> str:
            return bucket_of(self.number).group

    histories = Histories(1, lambda number, buckets: WithIdOfGroup("job", number, "out", buckets=buckets))
    with pytest.raises(Broken, match="not each row once"):
        histories.explore()


@pytest.mark.canary
def test_a_producer_kept_while_another_process_had_its_bucket_fails() -> None:
    """The other one has fenced it: where a grouping changes and changes back, an attempt would fail for nothing."""
    opened = ExactlyOnce._open

    def anyhow(self: ExactlyOnce) -> object:
        for made in self._producers._open._values.values():
            made.result().handled = self._batch.before
        return opened(self)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(delivery.ExactlyOnce, "_open", anyhow)
        with pytest.raises(Broken, match="an attempt failed though nothing went wrong"):
            Histories(0).explore()
