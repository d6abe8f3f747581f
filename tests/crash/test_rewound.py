"""How often a join that is rewound must have written each left record, and what is found if it has not."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.crash import checks, traffic
from tests.crash.reader import Seen
from tests.crash.rewound_job import RewoundJob
from tests.crash.traffic import PARTITIONS, START_MS

TOPICS = {role: role for role in RewoundJob.roles}
SECOND = START_MS + 5_000
"""A time in the middle of what there is."""


@dataclass
class Written:
    """Stands for the reader of what the job has written, of a generation at a time."""

    job: RewoundJob
    seen: list[Seen] = field(default_factory=list)

    def of(self, topic: str) -> list[Seen]:
        return [record for record in self.seen if record.topic == topic]

    def write(self, generation: str, lefts: list[str]) -> None:
        """Their rows, in the order of left; or their dead letters."""
        right_of = dict(self.job.traffic.expected().keys())
        for left in sorted(lefts, key=lambda one: [*map(int, one.split(":"))]):
            topic = "dead" if left in self.job.traffic.dead else "out"
            right = right_of.get(left)
            headers = {"teacup": f"1 {left} {right or '-'} {generation}:1"}
            if topic == "out" and left in self.job.traffic.late:
                headers["teacup.late"] = "true"
            self.seen.append(Seen(topic, int(left.partition(":")[0]), len(self.seen), headers))
            for side in ("late", "unmatched") if topic == "out" else ():
                if "teacup.late" in headers if side == "late" else right is None:
                    self.seen.append(Seen(side, 0, len(self.seen), headers))


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RewoundJob:
    """With its first records, on no broker."""
    monkeypatch.setattr(traffic, "produce", lambda *_: None)
    job = RewoundJob("job", {}, TOPICS, tmp_path, 7)
    job.traffic.chunk, job.traffic.keys = 40, 12
    job.feed()
    return job


def goes_on(job: RewoundJob, to_ms: int) -> dict[int, int]:
    """By partition, the first left record of the time."""
    times = {p: [put.time_ms for put in job.traffic.left if put.partition == p] for p in range(PARTITIONS)}
    return {p: next(at for at, time_ms in enumerate(some) if time_ms >= to_ms) for p, some in times.items()}


def behind(job: RewoundJob, begins: dict[int, int]) -> list[str]:
    lefts = traffic.by_position(job.traffic.left)
    return [one for one, put in lefts.items() if int(one.partition(":")[2]) >= begins[put.partition]]


def wrong_rows(job: RewoundJob, written: Written) -> list[str | None]:
    return [*job._wrong_rows(checks.rows_of(written.of("out")))]


@pytest.mark.parametrize("again", [False, True])
def test_what_lies_behind_a_rewind_is_written_again_if_that_was_asked_for(job: RewoundJob, again: bool) -> None:
    """Dead letters are, in any case; one row too many, or too few, is found."""
    written = Written(job)
    assert job.missing(written) == len(job.traffic.left)
    written.write("first", [*traffic.by_position(job.traffic.left)])
    assert job.missing(written) == 0
    begins = goes_on(job, SECOND)
    twice = [left for left in behind(job, begins) if again or left in job.traffic.dead]

    assert job.went_back(SECOND, begins, again=again, stays=not again) is None
    assert job.missing(written) == len(twice) > 0
    written.write("second", twice)
    assert job.missing(written) == 0
    found = [fault for fault in (*job.faults(written), *wrong_rows(job, written)) if fault]
    assert found == []
    one = next(left for left in twice if left not in job.traffic.dead | job.traffic.late) if again else "0:0"
    written.write("second", [one])
    (fault,) = [fault for fault in wrong_rows(job, written) if fault]
    assert fault.startswith("1 rows too many")


def test_what_a_rewind_has_passed_over_is_found(job: RewoundJob) -> None:
    """A record before the place where the job goes on must have its rows."""
    written = Written(job)
    lefts = [*traffic.by_position(job.traffic.left)]
    written.write("first", [left for left in lefts if left != "1:2"])
    job.missing(written)

    lost = job.went_back(SECOND, goes_on(job, SECOND), again=False, stays=True)

    assert lost is not None
    assert "are missing or too many: ['1:2']" in lost


def test_rows_of_a_batch_that_was_killed_stay_before_the_time(job: RewoundJob) -> None:
    """They are not written again, the others once; behind the time each has one more."""
    written = Written(job)
    begins, goes = goes_on(job, SECOND), goes_on(job, SECOND - 1_000)
    read_again, later = set(behind(job, goes)), set(behind(job, begins))
    there = sorted(read_again - later - job.traffic.dead)[:3]
    written.write("first", [left for left in traffic.by_position(job.traffic.left) if left not in read_again])
    written.write("first", there)
    job.missing(written)

    assert job.went_back(SECOND, goes, again=True, stays=True) is None
    assert job.missing(written) == len(read_again) - len(there)
    assert Counter(map(job.times, there)) == {1: 3}
