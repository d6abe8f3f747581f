"""The publishing rules one by one, with their exact answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from datadelay import publish
from datadelay.errors import SubmissionInvalid, SubmissionLate
from datadelay.model import TEXT_MAX, TIME_MAX_MS, DelayState, PartitionReport, Submission
from datadelay.publish import Published, SkewLimits, accept, rewind, state_at, view
from datadelay.watermark import UNKNOWN

Make = Callable[..., Submission]

STALE_AFTER_MS = 180_000
T0 = 1_795_176_000_000


def run(*submissions: Submission, before: Published | None = None) -> Published:
    """Accepts all, each a second after its ends were listed."""
    for submission in submissions:
        before = accept(before, submission, now_ms=submission.listed_ms + 1_000, stale_after_ms=STALE_AFTER_MS)
    assert before is not None
    return before


def at(minutes: int) -> int:
    return T0 + minutes * 60_000


def test_publishes_the_first_value_as_it_was_submitted(submission: Make) -> None:
    """Without a past there is nothing to compare with."""
    published = run(submission(T0 - 5_000))

    delay = view(published, now_ms=T0 + 2_000, stale_after_ms=STALE_AFTER_MS)
    assert (delay.state, delay.consumed_until_ms, delay.delay_ms) == (DelayState.OK, T0 - 5_000, 7_000)
    assert (delay.age_ms, delay.since_ms, delay.reason) == (2_000, T0 + 1_000, None)


def test_says_caught_up_when_the_submission_does(submission: Make) -> None:
    """It lets operators distinguish an idle topic from a slow consumer."""
    published = run(submission(caught_up=True))

    assert state_at(published, T0, STALE_AFTER_MS) is DelayState.CAUGHT_UP


def test_never_lets_the_value_go_back_while_the_positions_advance(submission: Make) -> None:
    """Disorder may lower the partition watermark of a later record; what was promised holds."""
    published = run(submission(T0 - 5_000), submission(T0 - 9_000, position=11, listed_ms=at(1)))

    assert published.value_ms == T0 - 5_000


def test_is_unknown_with_the_reason_of_a_submission_without_a_value(submission: Make) -> None:
    """Never 0, never the last value."""
    published = run(submission(T0 - 5_000), submission(None, position=None, listed_ms=at(1)))

    delay = view(published, now_ms=at(1), stale_after_ms=STALE_AFTER_MS)
    assert (delay.state, delay.consumed_until_ms, delay.delay_ms) == (DelayState.UNKNOWN, None, None)
    assert delay.reason == "the broker does not answer"
    assert delay.success_ms == T0


def test_continues_after_a_failed_run_without_a_rewind(submission: Make) -> None:
    """A failed run does not mean that the consumer went back."""
    published = run(
        submission(T0 - 5_000),
        submission(None, position=None, listed_ms=at(1)),
        submission(T0 - 6_000, position=10, listed_ms=at(2)),
    )

    assert published.value_ms == T0 - 5_000


def test_notices_a_position_that_went_back_behind_a_failed_run(submission: Make) -> None:
    """Positions are remembered while the collector knows none."""
    published = run(
        submission(T0 - 5_000, position=10),
        submission(None, position=None, listed_ms=at(1)),
        submission(T0, position=9, listed_ms=at(2)),
    )

    assert published.value_ms is None
    assert published.reason is not None
    assert published.reason.startswith("partition 0 went back from position 10 to 9")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"position": 9}, "partition 0 went back from position 10 to 9"),
        ({"generation": "second"}, "new generation of the consumer (first -> second)"),
        ({"store_generation": "s2"}, "new generation of the store (none -> s2)"),
        (
            {"partitions": (PartitionReport(1, 5, T0 + 50_000),)},
            "partition 0 is gone (its position was 10)",
        ),
    ],
)
def test_holds_when_the_premise_breaks_even_for_a_newer_value(
    submission: Make, change: dict[str, object], reason: str
) -> None:
    """The submission that shows the break never settles it."""
    first = submission(T0 - 5_000)

    published = run(first, submission(T0 + 50_000, listed_ms=at(1), **change))

    assert published.value_ms is None
    assert published.reason == f"{reason}; settled by a value beyond {T0 - 5_000}, or by a rewind"


@pytest.mark.parametrize("rewound", [False, True])
def test_positions_that_no_longer_name_the_store_are_no_claim_about_it(submission: Make, rewound: bool) -> None:
    """A tool that sets a feeder's positions removes the note of the store: the records it skipped are not stored."""
    fed = run(submission(T0 - 5_000, position=10, store_generation="store-1"))
    before = rewind(fed, now_ms=T0 + 2_000) if rewound else fed
    set_by_hand = submission(T0 + 50_000, position=900, listed_ms=at(1))

    moved = run(set_by_hand, before=before)
    repeated = run(set_by_hand, before=moved)
    later = run(submission(T0 + 90_000, position=950, listed_ms=at(2)), before=repeated)
    fed_again = run(submission(T0, position=20, listed_ms=at(3), store_generation="store-1"), before=later)

    assert repeated is moved
    for published in (moved, later):
        delay = view(published, now_ms=at(2), stale_after_ms=STALE_AFTER_MS)
        assert (delay.state, delay.consumed_until_ms, delay.store_generation) == (DelayState.UNKNOWN, None, "store-1")
        assert "store-1" in (delay.reason or "")
    assert (fed_again.value_ms, fed_again.reason) == (T0, None)


def test_canary_without_the_name_of_the_store_positions_set_by_hand_are_believed(
    submission: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The position lies further ahead, so that nothing else contradicts it."""
    monkeypatch.setattr(publish, "_without_claim", lambda _, submission: submission)

    moved = run(
        submission(T0 - 5_000, position=10, store_generation="store-1"),
        submission(T0 + 50_000, position=900, listed_ms=at(1)),
        submission(T0 + 50_000, position=900, listed_ms=at(2)),
    )

    assert moved.value_ms == T0 + 50_000


def test_believes_the_first_value_after_runs_that_could_not_look(submission: Make) -> None:
    """For example, a topic that did not exist yet: nothing was promised, so no generation contradicts it."""
    failed = submission(None, position=None, generation="unknown")

    published = run(failed, submission(T0 - 5_000, listed_ms=at(1)))

    assert (published.value_ms, published.held) == (T0 - 5_000, None)


def test_stays_held_until_a_later_value_is_beyond_the_last_published_one(submission: Make) -> None:
    """Equal is not beyond: the records between may still be unread."""
    held = run(submission(T0 - 5_000, position=10), submission(T0 - 60_000, position=3, listed_ms=at(1)))

    equal = run(submission(T0 - 5_000, position=9, listed_ms=at(2)), before=held)
    beyond = run(submission(T0 - 4_999, position=10, listed_ms=at(3)), before=equal)

    assert equal.value_ms is None
    assert (beyond.value_ms, beyond.reason) == (T0 - 4_999, None)


def test_believes_the_next_submission_after_a_rewind(submission: Make) -> None:
    """Even one of another generation, with lower positions and an earlier value."""
    before = run(submission(T0 - 5_000))

    rewound = rewind(before, now_ms=T0 + 5_000, note="ada: replay since 09:00")
    after = run(submission(T0 - 9_000_000, position=1, generation="second", listed_ms=at(1)), before=rewound)

    assert rewound.value_ms is None
    assert rewound.reason is not None
    assert "ada: replay since 09:00" in rewound.reason
    assert after.value_ms == T0 - 9_000_000


def test_refuses_what_was_listed_before_the_rewind(submission: Make) -> None:
    """A collector that was running during the rewind saw the old positions."""
    rewound = rewind(run(submission()), now_ms=at(2))

    with pytest.raises(SubmissionLate, match="older than the rewind"):
        run(submission(listed_ms=at(1)), before=rewound)


@pytest.mark.parametrize(("listed_ms", "word"), [(T0 - 1, "older than"), (T0, "unlike")])
def test_refuses_late_and_contradicting_submissions(submission: Make, listed_ms: int, word: str) -> None:
    """Two collectors may run, or the network may delay one submission."""
    published = run(submission(T0 - 5_000))

    with pytest.raises(SubmissionLate, match=word):
        run(submission(T0 - 1_000, listed_ms=listed_ms), before=published)


def test_takes_the_very_same_submission_again_without_effect(submission: Make) -> None:
    """A sender without an answer repeats it, even much later."""
    held = run(submission(T0 - 5_000), submission(T0, generation="second", listed_ms=at(1)))

    again = accept(held, held.last, now_ms=at(60), stale_after_ms=STALE_AFTER_MS)

    assert again is held


def test_becomes_stale_after_the_limit_and_keeps_its_value(submission: Make) -> None:
    """The value is still true, only old; the limit itself is not beyond the limit."""
    published = run(submission(T0 - 5_000))

    assert state_at(published, T0 + STALE_AFTER_MS, STALE_AFTER_MS) is DelayState.OK
    delay = view(published, now_ms=T0 + STALE_AFTER_MS + 1, stale_after_ms=STALE_AFTER_MS)
    assert (delay.state, delay.consumed_until_ms) == (DelayState.STALE, T0 - 5_000)
    assert delay.since_ms == T0 + STALE_AFTER_MS
    assert delay.reason is not None
    assert "180 s" in delay.reason


def test_unknown_does_not_turn_stale(submission: Make) -> None:
    """Stale means that there is a value."""
    published = run(submission(None, position=None))

    assert state_at(published, T0 + 10 * STALE_AFTER_MS, STALE_AFTER_MS) is DelayState.UNKNOWN


def test_a_state_begins_when_it_changes_and_not_at_every_submission(submission: Make) -> None:
    """`since` shows operators how long the state has lasted."""
    first = run(submission(T0 - 5_000))
    same = run(submission(T0, position=11, listed_ms=at(1)), before=first)
    after_silence = run(submission(T0 + 1, position=12, listed_ms=at(60)), before=same)

    assert same.since_ms == first.since_ms
    assert after_silence.since_ms == at(60) + 1_000


def test_refuses_times_from_the_future(submission: Make) -> None:
    """Each would block all later ones."""
    bounds = SkewLimits(clock_skew_ms=1_000, future_skew_ms=2_000)
    ahead = submission(T0, listed_ms=T0 + 1_001)
    far = submission(T0 + 2_001)

    for bad, what in ((ahead, "listed_ms"), (far, "consumed_until_ms")):
        with pytest.raises(SubmissionInvalid, match=what):
            accept(None, bad, now_ms=T0, stale_after_ms=1, bounds=bounds)
    edge = replace(submission(T0 + 2_000), listed_ms=T0 + 1_000)
    assert accept(None, edge, now_ms=T0, stale_after_ms=1, bounds=bounds).value_ms == T0 + 2_000


def test_names_the_partition_without_progress_as_the_slowest(submission: Make) -> None:
    """That is the one to look at; otherwise the one with the smallest partition watermark is."""
    lost = PartitionReport(2, None, None, "its position was deleted")
    reports = (PartitionReport(0, 5, T0 - 9), PartitionReport(1, 5, T0 - 8), lost)

    unknown = run(submission(None, partitions=reports))
    known = run(submission(T0 - 9, partitions=reports[:2]))

    assert unknown.slowest == lost
    assert known.slowest == reports[0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"consumed_until_ms": None, "reason": None}, "null without a reason"),
        ({"reason": "why"}, "has both a value"),
        ({"consumed_until_ms": T0}, "beyond the progress"),
        ({"consumed_until_ms": UNKNOWN}, "not a time in milliseconds"),
        ({"listed_ms": TIME_MAX_MS + 1}, "not a time in milliseconds"),
        ({"partitions": ()}, "without any partition"),
        ({"partitions": (PartitionReport(0, 1, T0), PartitionReport(0, 1, T0))}, "more than once"),
        ({"partitions": (PartitionReport(0, None, None, "gone"),)}, "progress of partition 0 is not known"),
        ({"consumer": "a/b"}, "consumer 'a/b'"),
        ({"topic": ".."}, r"topic '\.\.'"),
        ({"topic": "t\n"}, "topic"),
        ({"generation": ""}, "generation"),
        ({"generation": "x" * (TEXT_MAX + 1)}, "generation"),
        ({"generation": "a\0"}, "generation"),
        ({"store_generation": "\ud800"}, "store_generation"),
        ({"consumed_until_ms": None, "reason": "a\0"}, "the reason of consumed_until_ms"),
    ],
)
def test_refuses_submissions_that_contradict_themselves(
    submission: Make, change: dict[str, object], message: str
) -> None:
    """The message names the value that was wrong."""
    good = submission()

    with pytest.raises(SubmissionInvalid, match=message):
        replace(good, **change)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ((-1, 0, 0, None), "partition -1"),
        ((0, -1, 0, None), "position -1"),
        ((0, 2**63, 0, None), "is not an offset"),
        ((0, 0, None, None), "without a reason"),
        ((0, 0, 5, "why"), "drop one"),
        ((0, 0, UNKNOWN, None), "not a time"),
    ],
)
def test_refuses_partitions_that_contradict_themselves(
    values: tuple[int, int | None, int | None, str | None], message: str
) -> None:
    """Kafka's clients use -1 for "no offset": it must not be taken for an offset."""
    with pytest.raises(SubmissionInvalid, match=message):
        PartitionReport(*values)
