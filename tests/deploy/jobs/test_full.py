"""A full join that is rewound or moved: no right record gets a false row, and none a second one."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from deploy.cli.runs import move_of
from teacup.base.errors import ExitCode
from tests.support.jobprocess import records
from tests.support.movedjob import START_MS, file_of
from tests.support.rewinding import at, rewind
from tests.support.sparkjoin import Put, produce


@pytest.fixture
def full(window_job):
    """A job file's content; every left record has its match, three seconds before it."""
    return window_job(join={"before": "5s", "type": "full"})


def fill(kafka, job, begin, end):
    """A left record every second, its right one three seconds before it, and one that no left record matches."""
    times = [(i, START_MS + i * 1_000) for i in range(begin, end)]
    produce(kafka, job["left"]["topic"], [Put(i % 2, b"%d" % i, t + 3_000) for i, t in times])
    keys = [(i, t, key) for i, t in times for key in (b"%d" % i, b"alone%d" % i)]
    produce(kafka, job["right"]["topic"], [Put(i % 2, key, t) for i, t, key in keys])


def rows(kafka, job):
    """The keys of the rows, and their outcomes: no right record is in a row of each kind."""
    found = records(kafka, job["output"]["topic"])
    positions = Counter()
    for record in found:
        right = json.loads(record["value"])["right"]["position"]
        positions[right["partition"], right["offset"], json.loads(record["value"])["outcome"]] += 1
    assert not {at[:2] for at in positions if at[2] == "matched"} & {at[:2] for at in positions if at[2] == "unjoined"}
    return Counter((record["key"].decode(), json.loads(record["value"])["outcome"]) for record in found)


def expected(begin, end, *, alone=(0, 0), times=1):
    both = {(f"{i}", "matched"): times for i in range(begin, end)}
    return Counter({**both, **{(f"alone{i}", "unjoined"): times for i in range(*alone)}})


def test_rows_that_stay_are_those_of_right_alone_too(kafka, full, here, tmp_path):
    """A right record whose only left one is not read again is joined nevertheless."""
    fill(kafka, full, 0, 60)
    assert here.run(full).code == ExitCode.DONE
    assert rows(kafka, full) == expected(0, 60, alone=(0, 60))

    assert rewind(tmp_path, full, to=at(40), written="keep") == ExitCode.DONE
    fill(kafka, full, 60, 70)
    assert here.run(full).code == ExitCode.DONE

    assert rows(kafka, full) == expected(0, 70, alone=(0, 70))


@pytest.mark.slow
def test_rows_that_are_written_again_are_those_of_right_alone_from_where_right_is_read(kafka, full, here, tmp_path):
    fill(kafka, full, 0, 60)
    assert here.run(full).code == ExitCode.DONE

    assert rewind(tmp_path, full, to=at(40), written="again") == ExitCode.DONE
    assert here.run(full).code == ExitCode.DONE

    found = rows(kafka, full)
    again = sum(found[f"alone{i}", "unjoined"] - 1 for i in range(60))
    assert found == expected(0, 40, alone=(0, 60 - again)) + expected(40, 60, alone=(60 - again, 60), times=2)
    assert 20 <= again <= 25


@pytest.mark.slow
def test_a_moved_join_gives_no_right_record_a_row_that_one_before_it_has_joined(kafka, full, here, tmp_path):
    """With a longer interval, so that right is read from further back."""
    fill(kafka, full, 0, 60)
    assert here.run(full).code == ExitCode.DONE

    old = full["checkpoint"]
    full |= {"checkpoint": str(tmp_path / "second"), "join": {"before": "20s", "type": "full"}}
    assert move_of(file_of(tmp_path, full), old) == ExitCode.DONE
    fill(kafka, full, 60, 80)
    assert here.run(full).code == ExitCode.DONE

    assert rows(kafka, full) == expected(0, 80, alone=(0, 80))


def test_a_backfill_is_refused(kafka, full, here, tmp_path, capsys, topic_factory):
    """Which right records are joined is decided by left records outside of the range, too."""
    fill(kafka, full, 0, 10)
    topic = topic_factory(2, prefix="backfill")

    code = rewind(tmp_path, full, lambda job: here.run_job(job).code, to=at(2), until=at(5), into=topic)

    assert code == ExitCode.BAD_JOB_FILE
    assert "`--set join.type=left`" in capsys.readouterr().err
