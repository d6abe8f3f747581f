"""What every batch complains of is said when it begins, when it is ten times as large, and when it is over."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from deploy.watch.concerns import GROWN, OVER_MS, SHOWN_MS, Concern, Concerns

NOW = 1_000_000
BATCHES = st.lists(
    st.tuples(st.integers(1, OVER_MS + 10), st.dictionaries(st.sampled_from("ab"), st.integers(1, 2_000))), max_size=30
)


def concern(about: str, size: int) -> Concern:
    return Concern(about, size, f"{about} {size}")


def test_what_comes_with_each_batch_is_said_once() -> None:
    """And once more at the end of the run, with the worst."""
    concerns = Concerns()

    told = [concerns.take([concern("a", size)], NOW + at) for at, size in enumerate([19] * 100 + [20] * 77)]

    assert [text for each in told for text in each.warnings] == ["a 19"]
    assert not any(each.over for each in told)
    (over,) = concerns.end().over
    assert over.startswith("over, last seen at 1970-01-01T00:16:40.176Z: 177 times since ")
    assert over.endswith("the worst: a 20")
    assert concerns.end().over == ()


@given(BATCHES)
def test_whatever_comes_is_said_by_the_rule(batches: list[tuple[int, dict[str, int]]]) -> None:
    """Against what batches of each kind alone give, looked at as a whole."""
    concerns, now_ms = Concerns(), NOW
    said: dict[str, int] = {}
    seen: dict[str, int] = {}
    times: Counter[str] = Counter()

    for passed_ms, sizes in batches:
        now_ms += passed_ms
        told = concerns.take([concern(about, size) for about, size in sizes.items()], now_ms)

        due = [about for about in sizes if about not in said or sizes[about] >= GROWN * said[about]]
        assert sorted(told.warnings) == sorted(f"{about} {sizes[about]}" for about in due)
        said |= {about: sizes[about] for about in due}
        times.update(sizes.keys())
        seen |= dict.fromkeys(sizes, now_ms)
        ended = [about for about in said if now_ms - seen[about] >= OVER_MS]
        assert len(told.over) == len(ended)
        for about in ended:
            del said[about], times[about]
        assert {each.worst.subject for each in told.episodes if not each.over} == set(said)
        assert all(now_ms - each.last_ms <= SHOWN_MS for each in told.episodes)
    assert len(concerns.end().over) == sum(times[about] > 1 for about in said)
