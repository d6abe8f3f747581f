"""What is read of a range that retention overtakes: before it is read, and in the middle."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dedup.errors import RecordsGone
from dedup.topic.source import Remaining
from teacup.kafka.errors import OffsetOutOfRange

END = 20
moves = st.lists(st.integers(0, 8), max_size=12)


class Log:
    """Offsets [0, END) in batches of three; before each batch retention may delete what lies before it, and more."""

    def __init__(self, moves, readable):
        self.start, self.moves, self.readable, self.deleted = 0, iter(moves), readable, set()

    def read(self, start, end):
        while start < end:
            self.start += next(self.moves, 0)
            if start < self.start or start > END:
                raise OffsetOutOfRange("in", 0, start, self.start, END)
            found = [at for at in range(start, min(start + 3, end)) if at in self.readable]
            start = min(start + 3, end)
            if found:
                yield pa.record_batch({"offset": found})


@given(moves=moves, readable=st.sets(st.integers(0, END - 1)), first=st.integers(0, END))
def test_every_record_is_read_once_or_counted(moves, readable, first):
    """In order; what a gap hides is not asked for again."""
    log = Log(moves, readable)
    remaining = Remaining(log.read, "continue")

    read = [at for batch in remaining.of(first, END) for at in batch.column("offset").to_pylist()]

    wanted = [at for at in range(first, END) if at in readable]
    assert read == sorted(set(read))
    assert set(read) <= set(wanted)
    lost = set(wanted) - set(read)
    assert len(lost) <= remaining.skipped
    assert all(at < log.start for at in lost)
    if not any(moves):
        assert remaining.skipped == 0


def test_a_job_that_stops_says_how_to_continue():
    """And one that continues stops, too, where the partition was truncated."""
    stops = Remaining(Log([5], set()).read, "stop")
    truncated = Remaining(Log([], set()).read, "continue")

    with pytest.raises(RecordsGone, match=r"offset 0 of in-0.*`on_data_loss: continue`"):
        list(stops.of(0, END))
    with pytest.raises(RecordsGone, match=r"truncated .* new checkpoint"):
        list(truncated.of(END + 1, END + 5))
