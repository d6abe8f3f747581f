"""What `teacup explain` advises for a right record that came too late is held against the rules of the join."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from datadelay.watermark import UNKNOWN
from deploy.inspection.explain.remedy import Passed, PlannedRange, passed, reaching_back, remedy
from joins.batch.rules import latest_right, left_limit
from joins.batch.state import PartitionRange
from joins.read.range_gate import WatermarkTracker
from joins.spec import JoinPath, JoinSpec
from teacup.base.times import is_wrong
from tests.support.making import join_spec

DAY = 86_400_000


def followed(spec: JoinSpec, batches: list[tuple[int, list[int], bool]]) -> list[PlannedRange]:
    """Looks at a right partition as a job has them: of batches with their clock, times, and whether read to the end."""
    tracker, watermark_ms, at, ranges = WatermarkTracker(spec.outliers, np.array([], dtype=np.int64)), UNKNOWN, 0, []
    for listed_ms, times, to_the_end in batches:
        claim_ms = listed_ms - spec.producer_delay_ms if to_the_end else UNKNOWN
        tail = tracker.carries
        read = np.array(times, dtype=np.int64)
        ranges.append(
            PlannedRange(listed_ms, PartitionRange(at, at + len(times), claim_ms, watermark_ms, tail), [read])
        )
        tracker.see(read)
        proved_ms = tracker.reached_ms - spec.right.disorder_ms if tracker.reached_ms > UNKNOWN else UNKNOWN
        watermark_ms, at = max(watermark_ms, proved_ms, claim_ms), at + len(times)
    return ranges


def goes(spec: JoinSpec, left_ms: int, batches: list[tuple[int, list[int], bool]]) -> bool:
    """Whether the left record may go before the last of these batches is carried out."""
    watermark_ms = followed(spec, batches)[-1].of.watermark_ms
    return left_limit(spec, watermark_ms, watermark_ms).limit_ms > left_ms


@st.composite
def runs(draw: st.DrawFn) -> tuple[JoinSpec, int, list[tuple[int, list[int], bool]]]:
    """A join and the batches of a right partition, in the last of which a record came that left did not wait for."""
    spec = join_spec(
        after_ms=draw(st.integers(0, 20)), producer_delay_ms=draw(st.integers(0, 30)), path=JoinPath.DIRECT
    )
    right = replace(spec.right, disorder_ms=draw(st.integers(0, 30)))
    spec = replace(spec, right=right, outliers=draw(st.integers(0, 1)))
    listed, batches = 1_000, []
    for _ in range(draw(st.integers(1, 6))):
        listed += draw(st.integers(1, 40))
        times = draw(st.lists(st.integers(listed - 60, listed), max_size=5))
        batches.append((listed, times, draw(st.booleans())))
    return spec, draw(st.integers(900, listed)), [*batches, (listed + draw(st.integers(1, 40)), [900], True)]


AT_REST_BEFORE = (
    join_spec(after_ms=1, producer_delay_ms=3, right=replace(join_spec().right, disorder_ms=9, after_ms=1)),
    1_017,
    [
        (1_001, [969], True),
        (1_028, [990, 1_020, 986, 1_022, 991], False),
        (1_062, [], False),
        (1_067, [1_057, 1_053, 1_007, 1_017, 1_029], False),
        (1_068, [900], True),
    ],
)
"""Right was at rest until 1,028; the records that let left go came two batches later."""


@example(AT_REST_BEFORE)
@settings(phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.target], max_examples=150)
@given(runs())
def test_with_the_remedy_left_waits_and_with_any_less_of_it_not(run) -> None:
    """Each key is needed, and each to the millisecond; a clock that went on until the record was read counts, too."""
    spec, left_ms, batches = run
    reached = reaching_back(spec, left_ms, reversed(followed(spec, batches)))
    if not goes(spec, left_ms, batches) or reached is None:
        return

    found = remedy(spec, left_ms, passed(spec, *reached))

    def with_keys(less: str = "") -> JoinSpec:
        given = {key: ms - (key == less) for key, ms in found.items()}
        right = replace(spec.right, disorder_ms=given.get("right.disorder", spec.right.disorder_ms))
        return replace(spec, right=right, producer_delay_ms=given.get("producer_delay", spec.producer_delay_ms))

    assert found
    assert not goes(with_keys(), left_ms, batches)
    # The planner ranges at a partition at rest again and again, until something comes.
    until = [batches[0]]
    for (_, _, to_the_end), batch in pairwise(batches):
        until += [(batch[0], [], True), batch] if to_the_end else [batch]
    assert not goes(with_keys(), left_ms, until)
    assert all(goes(with_keys(key), left_ms, until) for key in found)


def test_both_keys_are_named_where_both_bind() -> None:
    """Records prove right complete, and so does the clock: one key alone would not have helped."""
    spec = replace(join_spec(after_ms=0, producer_delay_ms=5_000), outliers=0)
    spec = replace(spec, right=replace(spec.right, disorder_ms=2_000))
    left_ms = 1_000_000
    batches = [(left_ms, [left_ms], True), (left_ms + 20_000, [left_ms + 19_000], True), (left_ms + 31_000, [1], True)]

    reached = reaching_back(spec, left_ms, reversed(followed(spec, batches)))
    assert reached is not None
    assert remedy(spec, left_ms, passed(spec, *reached)) == {"right.disorder": 19_000, "producer_delay": 31_000}


def test_what_max_wait_let_go_needs_a_longer_one() -> None:
    spec = join_spec(after_ms=0)
    assert remedy(spec, 1_000, Passed(), read_ms=61_000) == {"max_wait": 60_000}
    assert latest_right(spec.right, 1_000) == 1_000


def test_a_time_of_1970_is_wrong_and_not_late() -> None:
    assert is_wrong(20_760 * DAY, 2_000)
    assert not is_wrong(31_000, 2_000)
    assert not is_wrong(2 * DAY, 3_600_000)
