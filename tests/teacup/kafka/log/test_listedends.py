"""Up to where a run under `availableNow` reads."""

from __future__ import annotations

from teacup.kafka.log.topic_log import Ends, ListedEnds


def test_records_after_the_first_look_are_not_read() -> None:
    """Their offsets are behind the end; the high watermark is left as it is."""
    listed = ListedEnds()

    assert listed.cut({0: Ends(0, 5, 6)}) == {0: Ends(0, 5, 6)}
    assert listed.cut({0: Ends(1, 9, 9)}) == {0: Ends(1, 5, 9)}


def test_a_partition_that_was_not_listed_at_the_first_look_is_not_read() -> None:
    """It is known, with nothing readable in it: the next run reads it from its start."""
    listed = ListedEnds()
    listed.cut({0: Ends(0, 5, 5)})

    assert listed.cut({0: Ends(0, 5, 5), 1: Ends(3, 9, 9)})[1] == Ends(3, 3, 9)


def test_an_empty_topic_is_listed_too() -> None:
    """Nothing that comes later belongs to the run."""
    listed = ListedEnds()

    assert listed.cut({0: Ends(0, 0, 0)}) == {0: Ends(0, 0, 0)}
    assert listed.cut({0: Ends(0, 4, 4)}) == {0: Ends(0, 0, 4)}
