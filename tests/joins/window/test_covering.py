"""Which files of a bucket are copied, offset by offset."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from joins.testing.simulation import through_json
from joins.window.covering import EVERY_MS, Copied, Entry, is_below, runs
from joins.window.slices import OffsetRanges

SIDES = ("left", "right")
spans = st.tuples(st.integers(0, 30), st.integers(0, 12)).map(lambda drawn: (drawn[0], sum(drawn)))
offset_ranges = st.dictionaries(st.integers(0, 2), spans, max_size=3)


def offsets(*some: OffsetRanges) -> set[tuple[int, int]]:
    return {(p, offset) for offset_ranges in some for p, span in offset_ranges.items() for offset in range(*span)}


def entry(side: str, its: OffsetRanges) -> Entry:
    return Entry(f"{side}-{sorted(its.items())}", side, its)


@st.composite
def lives(draw: st.DrawFn) -> list[tuple[dict[str, OffsetRanges], bool]]:
    """What a bucket needs, batch after batch: positions and low ends never go back; whether the copy succeeds."""
    low, end = ({(side, p): 0 for side in SIDES for p in range(2)} for _ in range(2))
    found = []
    for _ in range(draw(st.integers(1, 12))):
        for key in end:
            end[key] += draw(st.integers(0, 4))
            low[key] = draw(st.integers(low[key], end[key]))
        wanted = {side: {p: (low[side, p], end[side, p]) for p in range(2)} for side in SIDES}
        found.append((wanted, draw(st.booleans())))
    return found


@given(lives())
def test_the_copies_are_what_the_window_needs_and_each_offset_is_copied_once(life):
    """Also where a copy failed, and its ranges are copied with the next ones; what is over has gone."""
    copied, ever = Copied(), {side: list[tuple[int, int]]() for side in SIDES}

    for number, (wanted, succeeds) in enumerate(life):
        added = [entry(side, missing) for side in SIDES if (missing := copied.missing(side, wanted[side]))]
        below = {side: {p: low for p, (low, _) in wanted[side].items()} for side in SIDES}
        if not succeeds:
            continue
        for copy in added:
            ever[copy.side] += offsets(copy.offset_ranges)
        copied = copied.after(number, added, copied.obsolete(below))
        for side in SIDES:
            here = offsets(*(entry.offset_ranges for entry in copied.entries if entry.side == side))
            assert offsets(wanted[side]) <= here
        assert not any(is_below(entry.offset_ranges, below[entry.side]) for entry in copied.entries)

    for side in SIDES:
        assert len(ever[side]) == len(set(ever[side]))


@given(st.lists(offset_ranges, max_size=4), offset_ranges)
def test_what_is_missing_lies_beyond_the_copies(known, wanted):
    """Partition by partition."""
    copied = Copied(entries=tuple(entry("right", offset_ranges) for offset_ranges in known))
    last = {p: max((offset_ranges[p][1] for offset_ranges in known if p in offset_ranges), default=0) for p in wanted}

    found = copied.missing("right", wanted)

    assert offsets(found) == {(p, offset) for p, offset in offsets(wanted) if offset >= last[p]}
    assert copied.missing("left", wanted) == {p: span for p, span in wanted.items() if span[0] < span[1]}


@given(st.lists(st.tuples(offset_ranges, st.integers(0, 5)), max_size=8), st.integers(0, 10))
def test_pieces_become_one_file_only_if_it_covers_nothing_else(pieces, most):
    """Nothing between them, nothing twice, and not more than fits; their order stays."""
    found = runs(pieces, lambda piece: piece[0], lambda piece: piece[1], most)

    assert [piece for some, _ in found for piece in some] == pieces
    for some, together in found:
        sizes = [offset for its, _ in some for offset in offsets(its)]
        assert offsets(together) == set(sizes)
        assert len(some) == 1 or (len(sizes) == len(set(sizes)) and sum(size for _, size in some) <= most)


def test_neighbours_become_one_file():
    """Also if one has nothing of a partition."""
    pieces = [{0: (0, 5), 1: (2, 4)}, {0: (5, 9)}, {0: (9, 10), 1: (4, 7)}, {0: (11, 12)}]

    found = runs(pieces, lambda piece: piece, lambda _: 1, 3)

    assert [together for _, together in found] == [{0: (0, 10), 1: (2, 7)}, {0: (11, 12)}]


@given(st.integers(), st.lists(st.tuples(st.sampled_from(SIDES), offset_ranges), max_size=4))
def test_copies_are_known_again(at_ms, known):
    """As they were noted on the machine."""
    copied = Copied(at_ms).after(at_ms, [entry(side, its) for side, its in known])

    assert through_json(copied) == copied


def test_it_is_time_again_after_a_while_or_if_the_clock_was_set_back():
    """The first time is at once."""
    copied = Copied().after(50_000, [])

    assert Copied().is_due(50_000)
    assert [copied.is_due(50_000 + ms) for ms in (0, EVERY_MS - 1, EVERY_MS, -1)] == [False, False, True, True]
