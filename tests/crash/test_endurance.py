"""What the long run takes for an error, and for growth."""

from __future__ import annotations

import numpy as np
import pytest

from tests.crash.endurance import Seen, Violated, grown


def take(seen, *rows):
    seen.take(np.array([number for number, _ in rows], np.int64), np.array([matched for _, matched in rows]))


def test_each_number_is_there_once_and_as_it_has_to_be():
    seen = Seen()
    take(seen, (0, True), (3, False))
    take(seen, (5_000_000, True), (1, True))
    assert seen.count == 4
    for wrong in ([(2, True), (2, True)], [(3, False)], [(7, True)], [(2, False)]):
        with pytest.raises(Violated):
            take(seen, *wrong)


def test_what_is_larger_in_the_last_quarter_has_grown():
    steady = [("pause", {"MB": 800 + number % 7, "files": 3 + number % 3}) for number in range(40)]
    growing = [(name, {**one, "MB": 800 + 25 * number}) for number, (name, one) in enumerate(steady)]
    assert grown(steady) == []
    (found,) = grown(growing)
    assert found.startswith("MB")
    assert grown(growing[:3]) == []


def test_quarters_are_compared_by_fault():
    """More of the faults that leave much behind are no growth; more after each of them is."""
    faults = [["pause", "kill", "pause", "pause"], ["kill", "pause", "kill", "kill"]]
    for more, expected in ((0, 0), (20, 1)):
        left = [{"pause": 30, "kill": 150}, {"pause": 30 + more, "kill": 150 + more}]
        quarters = [[(name, {"files": left[i][name]}) for name in faults[i]] for i in range(2)]
        assert len(grown([("none", {"files": 0})] * 8 + quarters[0] + quarters[1])) == expected
