"""`teacup audit` on a real broker of jobs of every shape: what their settings allow is understood, and nothing more."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from deploy.checkpoint.join_checkpoint import Checkpoint
from deploy.checkpoint.place import folder
from deploy.cli.app import app
from deploy.cli.runs import move_of
from deploy.inspection.audit.run import audit
from deploy.jobfile.load import load_job
from teacup.base.errors import ExitCode
from teacup.base.now import wall_ms
from teacup.base.times import iso
from tests.deploy.inspection.audit.auditing import copied, position, written
from tests.deploy.jobs.filling import START_MS, fill
from tests.joins.lookup.conftest import RETENTION_MS, world
from tests.support import movedjob
from tests.support.jobprocess import forget_last_commit, records
from tests.support.provenance import batch_of, header, left_of
from tests.support.sparkjoin import Put, produce
from tests.support.storage_process import TOKEN

__all__ = ["world"]

pytestmark = pytest.mark.slow
HOUR_MS = 3_600_000


@pytest.fixture
def audited(tmp_path, kafka, topic_factory):
    """`audited(content)`: the findings; with `change`, about an output that was changed like that (see `copied`)."""

    def run(content, change=None, from_ms=START_MS, to_ms=START_MS + HOUR_MS):
        if change is not None:
            faulty = topic_factory(1, prefix="faulty")
            copied(kafka, content["output"]["topic"], faulty, change)
            content = {**content, "output": {**content["output"], "topic": faulty}}
        return audit(load_job(written(tmp_path, content)), from_ms, to_ms, folder=tmp_path)

    return run


def clean(found):
    assert found.clean, [*found.lines()]
    return found


def without(at):
    """Drops one row."""
    return lambda number, record: [] if number == at else [record]


def twice(at):
    """Doubles one row."""
    return lambda number, record: [record, record] if number == at else [record]


def other_right(at, right):
    """Another right record is in one row, which says so in its headers only."""

    def change(number, record):
        told = header(left_of(record["headers"]), right, batch_of(record["headers"]))
        return [{**record, "headers": {**record["headers"], **dict([told])}} if number == at else record]

    return change


def named(found):
    """The kind and the left record of each fault; a right record whose only row is missing is one, too."""
    return [(fault.kind, fault.left) for fault in found.faults]


def first(rows, what):
    """The number of the first row of which this holds."""
    return next(number for number, row in enumerate(rows) if what(row))


def test_rows_of_before_a_move_are_another_joins(kafka, window_job, here, audited, tmp_path):
    """Nothing matched before, everything afterwards. Rows that are missing or doubled are found, and other keys."""
    content = window_job(name="audited-moves")
    movedjob.fill(kafka, content, 0, 40)
    assert here.run(content).code == ExitCode.DONE
    moved = {**content, "join": {"before": "5s"}, "checkpoint": str(tmp_path / "new")}
    movedjob.fill(kafka, content, 40, 80)
    assert move_of(movedjob.file_of(tmp_path, moved), content["checkpoint"]) == ExitCode.DONE
    assert here.run(moved).code == ExitCode.DONE

    found = clean(audited(moved))
    rows = records(kafka, content["output"]["topic"])
    old = first(rows, lambda row: b'"unmatched"' in row["value"])
    new = first(rows, lambda row: b'"matched"' in row["value"])

    assert found.outcomes == {"matched": 40, "unmatched": 40, "dead_letter": 0}
    assert any("before `teacup move`" in note for note in found.notes)
    for at in (old, new):
        (missing,) = audited(moved, without(at)).faults
        assert (missing.kind, missing.left) == ("missing", position(rows[at]))
        (doubled,) = audited(moved, twice(at)).faults
        assert (doubled.kind, doubled.left) == ("doubled", position(rows[at]))
    (wrong,) = (fault for fault in audited(moved, other_right(old, "0:1")).faults if fault.kind != "altered")
    assert (wrong.kind, wrong.left) == ("wrong right", position(rows[old]))


@pytest.mark.parametrize("written", ["keep", "again"])
def test_what_a_rewound_job_has_read_twice_may_be_there_twice(kafka, job, here, audited, tmp_path, written):
    """Dead letters and unjoined records are, and with `again` rows; missing rows and other right records are found."""
    content = job(outliers=1)
    fill(kafka, content, 100)
    dead = [Put(p, b"4", START_MS + 95_000, b"\xff no text") for p in (0, 1)]
    alone = [Put(p, b"zz", START_MS + 90_000 + i * 500, b"alone") for p in (0, 1) for i in range(20)]
    produce(kafka, content["left"]["topic"], dead)
    produce(kafka, content["right"]["topic"], [*dead, *alone])
    assert here.run(content).code == ExitCode.DONE
    asked = ["--to", iso(START_MS + 60_000), "--written", written]
    ran = CliRunner().invoke(app, ["rewind", str(movedjob.file_of(tmp_path, content)), *asked])
    assert ran.exit_code == ExitCode.DONE, ran.output
    fill(kafka, content, 50, START_MS + 120_000)
    assert here.run(content).code == ExitCode.DONE

    found = clean(audited(content))
    rows = records(kafka, content["output"]["topic"])
    at = len(rows) - 1 - first(rows[::-1], lambda row: b'"matched"' in row["value"] and b'"n": 7' in row["value"])

    assert found.checked == 152
    assert found.side["dead_letter"] == {"left": 2, "right": 2}  # records: each has several copies
    assert any("were written again by `teacup rewind`" in note for note in found.notes) == (written == "again")
    assert ("missing", position(rows[at])) in named(audited(content, without(at)))
    assert named(audited(content, twice(at))) == [("doubled", position(rows[at]))]
    assert not audited(content, other_right(at, "0:1")).clean


def test_what_was_written_is_audited_between_a_rewind_or_its_undo_and_the_next_start(
    kafka, job, here, audited, tmp_path
):
    """The rewound job has run, but not as far as the job had got before: what both wrote is audited."""
    content = job()
    fill(kafka, content, 60)
    assert here.run(content).code == ExitCode.DONE
    file = str(movedjob.file_of(tmp_path, content))

    def rewind(*asked):
        ran = CliRunner().invoke(app, ["rewind", file, *asked])
        assert ran.exit_code == ExitCode.DONE, ran.output

    rewind("--to", iso(START_MS + 20_000), "--written", "again")
    assert clean(audited(content)).checked == 60

    part = replace(load_job(Path(file)), until={0: 20, 1: 15})
    assert here.run_job(part).code == ExitCode.DONE
    rewound = Path(folder(content["checkpoint"], 1))
    shutil.copytree(rewound / "commits", tmp_path / "commits")
    forget_last_commit(rewound)  # as if it had been killed in its first batch
    assert not [*(rewound / "commits").glob("[0-9]*")]
    assert clean(audited(content)).checked == 60
    shutil.copytree(tmp_path / "commits", rewound / "commits", dirs_exist_ok=True)

    rewind("--undo")
    assert Checkpoint(folder(content["checkpoint"], 2)).moved().left == {0: 30, 1: 30}
    rows = records(kafka, content["output"]["topic"])
    assert clean(audited(content)).checked == 60
    for spot in ((0, 3), (0, 25), (1, 29)):
        at = first(rows, lambda row, spot=spot: position(row) == spot)
        assert named(audited(content, without(at))) == [("missing", spot)]


def test_two_jobs_write_to_the_same_topics(kafka, job, here, audited, tmp_path):
    """Each is clean, and misses its own rows only."""
    one, two = job(), job()
    two |= {"output": one["output"], "topics": one["topics"]}
    two |= {name: f"{two[name]}-two" for name in ("name", "checkpoint", "window_folder")}
    for content, count in ((one, 60), (two, 90)):
        fill(kafka, content, count)
        produce(kafka, content["left"]["topic"], [Put(0, b"4", START_MS + 10_000, b"\xff no text")])
        assert here.run(content).code == ExitCode.DONE

    rows = records(kafka, one["output"]["topic"])
    at = first(rows, lambda row: one["left"]["topic"].encode() in row["value"])

    for content, count in ((one, 60), (two, 90)):
        found = clean(audited(content))
        assert (found.checked, found.outcomes["dead_letter"]) == (count + 1, 1)
        assert any("of another job were left out" in note for note in found.notes)
    assert ("missing", position(rows[at])) in named(audited(one, without(at)))
    assert clean(audited(two, without(at)))


def test_records_that_came_late_before_a_move_or_were_read_otherwise(kafka, job, here, audited, tmp_path):
    """What their header says is believed; with another format nothing is known of their rows."""
    content = job()
    fill(kafka, content, 60)
    late = [Put(0, b"4", START_MS + 10_000, b'{"late": 1}')]
    produce(kafka, content["left"]["topic"], late)
    assert here.run(content).code == ExitCode.DONE
    produce(kafka, content["left"]["topic"], late)
    assert here.run(content).code == ExitCode.DONE
    longer = {**content, "join": {"before": "5s"}, "checkpoint": str(tmp_path / "longer")}
    text = {**longer, "left": {**content["left"], "format": "text"}, "checkpoint": str(tmp_path / "text")}

    for before, moved, known in ((content, longer, True), (longer, text, False)):
        assert move_of(movedjob.file_of(tmp_path, moved), before["checkpoint"]) == ExitCode.DONE
        fill(kafka, content, 20, START_MS + 200_000)
        assert here.run(moved).code == ExitCode.DONE
        found = clean(audited(moved))
        assert (found.side["late"].get("left", 0) > 0) is known  # of the records that are compared

    assert any("were read differently (left.format): they were left out" in note for note in found.notes)


def test_rows_of_a_select_and_copies_are_known_after_several_moves(kafka, job, here, audited, tmp_path):
    """Nothing but their batch says whose they are."""
    content = job()
    content["output"]["select"] = {"key": "'k'", "value": "outcome"}
    for number in range(3):
        fill(kafka, content, 20, START_MS + 100_000 * number)
        produce(kafka, content["left"]["topic"], [Put(0, b"4", START_MS + 100_000 * number + 10_000, b"\xff no text")])
        assert here.run(content).code == ExitCode.DONE
        before, content = content, {**content, "checkpoint": str(tmp_path / f"moved-{number}")}
        assert move_of(movedjob.file_of(tmp_path, content), before["checkpoint"]) == ExitCode.DONE

    found = clean(audited(before))

    assert (found.checked, found.outcomes["dead_letter"], found.side["dead_letter"]) == (63, 3, {"left": 3})
    assert not any("of another job were left out" in note for note in found.notes)


def test_rows_of_a_select_and_left_that_did_not_wait(kafka, job, here, audited):
    """`max_wait`: right stalls in one partition. `select`: rows are compared by the positions in their headers."""
    content = job(idle="hold", max_wait="1s")
    content["output"]["select"] = {"key": "'k'", "value": "outcome", "headers": {"what": "outcome"}}
    fill(kafka, content, 60)
    produce(kafka, content["left"]["topic"], [Put(0, b"1", START_MS + 200_000 + i * 1_000, b"{}") for i in range(20)])
    assert here.run(content).code == ExitCode.DONE

    found = clean(audited(content))
    rows = records(kafka, content["output"]["topic"])
    at = first(rows, lambda row: row["value"] == b"matched")

    assert found.checked == len(rows) == 80
    assert any("output.select" in note for note in found.notes)
    # Its right record is then in no row, and lacks its copy once it has expired.
    (missing,) = (fault for fault in audited(content, without(at)).faults if fault.left)
    assert (missing.kind, missing.left) == ("missing", position(rows[at]))
    (wrong,) = (fault for fault in audited(content, other_right(at, "1:0")).faults if fault.left)
    assert (wrong.kind, wrong.left) == ("wrong right", position(rows[at]))


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_a_batch_that_ran_twice(kafka, job, here, audited, tmp_path, delivery):
    """Repeated rows are said, not counted as faults, where they are allowed; a row of another kind never is."""
    content = job(records_per_batch=100)
    content["output"]["delivery"] = delivery
    fill(kafka, content, 100)
    assert here.run(content).code == ExitCode.DONE
    forget_last_commit(tmp_path / "checkpoint")
    fill(kafka, content, 100, START_MS + 200_000)
    assert here.run(content).code == ExitCode.DONE

    found = clean(audited(content))
    again = delivery == "at-least-once"
    assert (found.repeated > 0) == again
    assert any("rows are repeated" in note for note in found.notes) == again
    counts = audited(content, twice(3)).counts
    assert counts == ({} if again else {"doubled": 1})

    rows = records(kafka, content["output"]["topic"])
    at = first(rows, lambda row: b'"matched"' in row["value"])

    def beside(number, record):
        other = {**record, "value": record["value"].replace(b'"n"', b'"m"')}
        return [record, other] if number == at else [record]

    assert not audited(content, beside).clean


@pytest.mark.parametrize("start", ["latest", iso(START_MS + 100_000)])
def test_what_lies_before_the_first_plan_is_not_due(kafka, job, here, audited, start):
    """A job that began at the end of its topics, or at a time: earlier records have no rows, later ones do."""
    content = job(start=start)
    fill(kafka, content, 100)
    if start == "latest":
        assert here.run(content).code == ExitCode.DONE
    fill(kafka, content, 100, START_MS + 200_000)
    assert here.run(content).code == ExitCode.DONE

    rows = records(kafka, content["output"]["topic"])
    assert clean(audited(content)).checked == len(rows) == 100
    found = audited(content, without(7))
    (missing,) = (fault for fault in found.faults if fault.topic.startswith("faulty"))
    assert (missing.kind, missing.left) == ("missing", position(rows[7]))


def test_a_lookup_join_is_audited_against_the_topic_that_was_fed(kafka, world, window_job, here, audited):
    """A row that the store has lost says so; another right record, a missing and a doubled row are found."""
    now = wall_ms()
    content = window_job(1, join={"before": "2s", "after": "1s"}, producer_delay="1s")
    left, right = (content[name]["topic"] for name in ("left", "right"))
    del content["window_folder"]
    content |= {
        "kind": "lookup-join",
        "storage": {"url": world.url, "namespace": "right", "token": TOKEN},
        "delay": {"url": world.delays.url, "consumer": "feeder", "token": world.delays.secrets["reader"]},
        "on_expired": "unmatched",
    }
    stored = [Put(0, b"%d" % (i % 5), now - 200_000 + i * 1_000) for i in range(60)]
    produce(kafka, right, stored)
    old = [Put(0, b"0", now - RETENTION_MS - 60_000)]
    produce(kafka, left, [*old, *(Put(0, b"%d" % (i % 7), now - 200_000 + i * 1_000 + 300) for i in range(60))])
    with world.storage_here():
        world.feed(stored)
        world.publish(right, now - 60_000)
        assert here.run(content).code == ExitCode.DONE

    span = {"from_ms": now - 2 * HOUR_MS, "to_ms": now}
    found = clean(audited(content, **span))
    rows = records(kafka, content["output"]["topic"])
    at = first(rows, lambda row: b'"matched"' in row["value"])

    assert found.checked == len(rows) == 61
    assert found.outcomes["matched"] > 10
    (missing,) = audited(content, without(at), **span).faults
    assert (missing.kind, missing.left) == ("missing", position(rows[at]))
    (doubled,) = audited(content, twice(at), **span).faults
    assert (doubled.kind, doubled.left) == ("doubled", position(rows[at]))
    assert "wrong right" in audited(content, other_right(at, "0:59"), **span).counts
