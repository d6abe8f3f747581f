"""`teacup rewind`: a join goes back to a time, in place or beside the live job; its rows are those of the oracle."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import typer
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from deploy.checkpoint.join_checkpoint import Checkpoint
from deploy.checkpoint.lock import checkpoint_lock
from deploy.checkpoint.place import Place, place_of
from deploy.cli.runs import move_of
from teacup.base.errors import ExitCode
from tests.support.jobprocess import JobProcess, forget_last_commit
from tests.support.movedjob import expected, file_of, fill, rows
from tests.support.rewinding import at, rewind


@pytest.fixture
def content(window_job):
    """A job file's content; every left record has its match."""
    return window_job(join={"before": "5s"})


def twice(begin, end):
    found = expected(begin, end, "matched")
    return found + found


def lefts(found):
    """How often each left record is in some rows. To a join that has read all, records of so long ago come late."""
    counted = Counter()
    for (position, _), count in found.items():
        counted[position] += count
    return counted


def test_rows_that_are_missing_are_written_and_the_others_stay(kafka, content, here, tmp_path, capsys):
    fill(kafka, content, 0, 60)
    late = {**content, "start": at(30)}
    assert here.run(late).code == ExitCode.DONE
    assert rows(kafka, content) == expected(30, 60, "matched")

    code = rewind(tmp_path, content, to=at(10), written="keep")
    fill(kafka, content, 60, 80)
    ran = here.run(content)

    assert code == ExitCode.DONE, capsys.readouterr().err
    out = capsys.readouterr().out
    assert "left             from 0:5, 1:5; it was read to 0:30, 1:30 (50 offsets back)" in out
    assert "30 left records from there on have a row" in out
    assert ran.code == ExitCode.DONE
    assert rows(kafka, content) == expected(10, 80, "matched")


def test_all_rows_from_a_time_on_are_written_again(kafka, content, here, tmp_path, capsys):
    fill(kafka, content, 0, 60)
    assert here.run(content).code == ExitCode.DONE

    code = rewind(tmp_path, content, to=at(40), written="again")
    ran = here.run(content)

    assert code == ExitCode.DONE, capsys.readouterr().err
    assert ran.code == ExitCode.DONE
    assert rows(kafka, content) == expected(0, 40, "matched") + twice(40, 60)


def test_a_backfill_writes_a_range_to_another_topic_and_ends(kafka, content, here, tmp_path, capsys, topic_factory):
    fill(kafka, content, 0, 60)
    topic = topic_factory(2, prefix="backfill")
    elsewhere = {**content, "output": {"topic": topic}}
    with here.running({**content, "trigger": {"every": "0s"}}) as live:
        live.until(lambda: len(rows(kafka, content)) == 60, "the live job has written")
        code = rewind(tmp_path, content, lambda job: here.run_job(job).code, to=at(20), until=at(50), into=topic)
        fill(kafka, content, 60, 70)
        live.until(lambda: len(rows(kafka, content)) == 70, "the live job has gone on")

    assert code == ExitCode.DONE, capsys.readouterr().err
    assert rows(kafka, elsewhere) == expected(20, 50, "matched")
    assert lefts(rows(kafka, content)) == lefts(expected(0, 70, "matched"))


@pytest.mark.slow
def test_an_undo_goes_on_where_the_job_was(kafka, content, here, tmp_path, capsys):
    """Before the rewound job has started nothing has happened; after that the job goes on where either had got."""
    fill(kafka, content, 0, 60)
    assert here.run(content).code == ExitCode.DONE
    checkpoint = content["checkpoint"]

    assert rewind(tmp_path, content, undo=True) == ExitCode.CHECKPOINT
    assert "nothing to undo" in capsys.readouterr().err
    with checkpoint_lock(checkpoint):
        assert rewind(tmp_path, content, to=at(40), written="again") == ExitCode.CHECKPOINT
        assert "is in use by process" in capsys.readouterr().err
        assert rewind(tmp_path, content, to=at(40), written="again", dry_run=True) == ExitCode.DONE
    assert place_of(checkpoint) == Place(0, 0)
    assert rewind(tmp_path, content, to=at(40), written="again") == ExitCode.DONE
    assert rewind(tmp_path, content, undo=True) == ExitCode.DONE
    assert place_of(checkpoint) == Place(0, 1)
    fill(kafka, content, 60, 70)
    assert here.run(content).code == ExitCode.DONE
    assert lefts(rows(kafka, content)) == lefts(expected(0, 70, "matched"))

    assert rewind(tmp_path, content, to=at(50), written="again") == ExitCode.DONE
    fill(kafka, content, 70, 80)
    assert here.run(content).code == ExitCode.DONE
    assert rewind(tmp_path, content, undo=True) == ExitCode.DONE
    fill(kafka, content, 80, 90)
    assert here.run(content).code == ExitCode.DONE
    each = expected(0, 50, "matched") + twice(50, 70) + expected(70, 90, "matched")
    assert lefts(rows(kafka, content)) == lefts(each)
    assert rewind(tmp_path, content, undo=True) == ExitCode.CHECKPOINT


class Killed(Exception):
    """The process ends here."""


@pytest.mark.slow
def test_a_command_that_is_killed_has_done_nothing_or_all(kafka, content, here, tmp_path, monkeypatch):
    """At each of its writes, several times in a row: before it, or once it is on the disk. Then it is repeated."""
    fill(kafka, content, 0, 60)
    assert here.run({**content, "start": at(30)}).code == ExitCode.DONE
    checkpoint = content["checkpoint"]
    keep = Checkpoint.write_file

    def killed_at(number, *, after):
        left = [number]

        def kept(self, name, value):
            left[0] -= 1
            if left[0] == 0 and not after:
                raise Killed
            keep(self, name, value)
            if left[0] == 0:
                raise Killed

        monkeypatch.setattr(Checkpoint, "write_file", kept)

    places = []
    for after in (False, True):
        for number in (1, 2):
            killed_at(number, after=after)
            with pytest.raises(Killed):
                rewind(tmp_path, content, to=at(10), written="keep")
            places.append(place_of(checkpoint))
    monkeypatch.setattr(Checkpoint, "write_file", keep)
    again = rewind(tmp_path, content, to=at(10), written="keep")

    assert places == [Place(0, 0), Place(0, 0), Place(0, 0), Place(1, 1)]
    assert again == ExitCode.DONE
    assert place_of(checkpoint) == Place(2, 2)
    assert here.run(content).code == ExitCode.DONE
    assert rows(kafka, content) == expected(10, 60, "matched")


@pytest.mark.slow
def test_a_stop_before_the_rewound_job_has_planned_anything_is_no_dead_end(kafka, content, here, tmp_path):
    """Behind a shuffle: it goes on, and so it does once it is rewound again, or that is undone."""
    shuffled = {**content, "join": {"before": "5s", "path": "shuffled", "buckets": 3}}
    fill(kafka, shuffled, 0, 60)
    assert here.run(shuffled).code == ExitCode.DONE
    assert rewind(tmp_path, shuffled, to=at(40), written="again") == ExitCode.DONE
    rewound = Path(shuffled["checkpoint"]) / "rewound" / "1"

    with here.running({**shuffled, "trigger": {"every": "0s"}}) as job:
        job.until((rewound / "metadata").exists, "the loop")
        assert job.stop() == ExitCode.DONE
    assert [*(rewound / "offsets").iterdir()] == []
    assert rewind(tmp_path, shuffled, to=at(50), written="keep", dry_run=True) == ExitCode.DONE
    assert rewind(tmp_path, shuffled, undo=True, dry_run=True) == ExitCode.DONE
    assert here.run(shuffled).code == ExitCode.DONE

    assert rows(kafka, shuffled) == expected(0, 40, "matched") + twice(40, 60)


@pytest.mark.slow
def test_what_cannot_be_done_is_refused_and_nothing_changes(kafka, content, here, tmp_path, capsys):
    assert rewind(tmp_path, content, to=at(0), written="again") == ExitCode.CHECKPOINT
    assert "has no batch of a join" in capsys.readouterr().err
    fill(kafka, content, 0, 40)
    assert here.run(content).code == ExitCode.DONE

    def refused(changes, code, why, **asked):
        assert rewind(tmp_path, {**content, **changes}, **asked) == code
        assert why in capsys.readouterr().err

    policy = {"join": {"before": "5s", "policy": "all"}}
    refused({}, ExitCode.CHECKPOINT, "there is nothing to go back to", to=at(50), written="again")
    refused(policy, ExitCode.BAD_JOB_FILE, "has several rows", to=at(10), written="keep")
    refused(
        {}, ExitCode.BAD_JOB_FILE, "is a topic that the job reads", to=at(1), until=at(9), into=content["left"]["topic"]
    )
    refused({}, ExitCode.BAD_JOB_FILE, "has not come yet", to=at(1), until="2099-01-01T00:00Z", into="elsewhere")
    refused(
        {}, ExitCode.BAD_JOB_FILE, "--into: Kafka has no topic 'elsewhere'", to=at(1), until=at(9), into="elsewhere"
    )
    admin = AdminClient(kafka)
    for deleted in admin.delete_records([TopicPartition(content["left"]["topic"], 0, 10)]).values():
        deleted.result(30)
    refused({}, ExitCode.DATA_LOSS, "retention has deleted what was before", to=at(10), written="again")
    assert place_of(content["checkpoint"]) == Place(0, 0)
    accepting = {**content, "on_data_loss": "continue"}
    assert rewind(tmp_path, accepting, to=at(10), written="again") == ExitCode.DONE
    assert "lost" in capsys.readouterr().out
    with pytest.raises(typer.BadParameter, match="choose what happens to rows"):
        rewind(tmp_path, content, to=at(10))


@pytest.mark.slow
def test_a_batch_that_was_not_completed_is_neither_lost_nor_doubled(kafka, content, here, tmp_path, capsys):
    """Its rows are in the output, and Spark does not know it: as after a kill -9. Twice in a row, then undone."""
    fill(kafka, content, 0, 60)
    checkpoint = Path(content["checkpoint"])
    assert here.run({**content, "start": at(40)}).code == ExitCode.DONE
    forget_last_commit(checkpoint)
    assert rewind(tmp_path, content, to=at(20), written="keep") == ExitCode.DONE
    fill(kafka, content, 60, 70)
    assert here.run(content).code == ExitCode.DONE
    assert rows(kafka, content) == expected(20, 70, "matched")

    forget_last_commit(checkpoint / "rewound" / "1")
    assert rewind(tmp_path, content, to=at(10), written="keep") == ExitCode.DONE
    assert rewind(tmp_path, content, to=at(5), written="keep") == ExitCode.DONE
    assert place_of(str(checkpoint)) == Place(3, 3)
    assert here.run(content).code == ExitCode.DONE
    assert rows(kafka, content) == expected(5, 70, "matched")

    capsys.readouterr()
    assert rewind(tmp_path, content, undo=True) == ExitCode.DONE
    assert "left records from there on have a row" in capsys.readouterr().out
    fill(kafka, content, 70, 80)
    assert here.run(content).code == ExitCode.DONE
    assert rows(kafka, content) == expected(5, 80, "matched")


@pytest.mark.slow
def test_what_a_killed_batch_wrote_of_before_the_time_is_not_written_again(kafka, content, here, tmp_path, capsys):
    """Only rows from the time on are asked for again, though the batch begins before it."""
    fill(kafka, content, 0, 60)
    assert here.run({**content, "start": at(20)}).code == ExitCode.DONE
    forget_last_commit(Path(content["checkpoint"]))

    assert rewind(tmp_path, content, to=at(40), written="again") == ExitCode.DONE
    assert "but 20 left records from before that time keep theirs" in capsys.readouterr().out
    assert here.run(content).code == ExitCode.DONE

    assert rows(kafka, content) == expected(20, 40, "matched") + twice(40, 60)


@pytest.mark.slow
def test_a_rewind_after_an_undo_goes_back_from_where_the_undo_went_on(kafka, content, here, tmp_path):
    """And not from where the rewind that was undone had got; what that has written again is there twice."""
    fill(kafka, content, 0, 60)
    assert here.run(content).code == ExitCode.DONE
    assert rewind(tmp_path, content, to=at(40), written="again") == ExitCode.DONE
    assert here.run(content).code == ExitCode.DONE
    forget_last_commit(Path(content["checkpoint"]) / "rewound" / "1")

    assert rewind(tmp_path, content, undo=True) == ExitCode.DONE
    assert rewind(tmp_path, content, to=at(50), written="again") == ExitCode.DONE
    assert rewind(tmp_path, content, undo=True) == ExitCode.DONE
    assert place_of(content["checkpoint"]).number == 2
    assert rewind(tmp_path, content, to=at(50), written="again") == ExitCode.DONE
    assert here.run(content).code == ExitCode.DONE

    assert rows(kafka, content) == expected(0, 60, "matched") + expected(40, 60, "matched") + expected(
        50, 60, "matched"
    )


@pytest.mark.slow
def test_a_job_that_is_killed_and_rewound_again_and_again_writes_each_row_once(kafka, content, tmp_path):
    """kill -9 in the middle of each generation, of which every one goes back further."""
    content |= {"records_per_batch": 20}
    fill(kafka, content, 0, 200)
    starts = {**content, "start": at(120)}
    for back in (90, 60, 30):
        job = JobProcess(tmp_path, starts)
        job.until(lambda job=job: len(job.lines) >= 2, "two batches")
        job.kill()
        assert rewind(tmp_path, content, to=at(back), written="keep") == ExitCode.DONE
        starts = content
    last = JobProcess(tmp_path, content)

    assert last.ended() == ExitCode.DONE, last.logged()
    assert rows(kafka, content) == expected(30, 200, "matched")


@pytest.mark.slow
def test_a_backfill_that_is_killed_goes_on_with_the_same_range(kafka, content, here, tmp_path, topic_factory):
    """Records of the range that come meanwhile are not in it; another range is refused."""
    content |= {"records_per_batch": 20}
    fill(kafka, content, 0, 200)
    topic = topic_factory(2, prefix="backfill")
    elsewhere = {**content, "output": {"topic": topic}}
    asked = {"to": at(50), "until": at(150), "into": topic}

    def killed(_):
        raise Killed

    with pytest.raises(Killed):
        rewind(tmp_path, content, killed, **asked)
    folder = Path(content["checkpoint"]) / "backfill" / topic
    assert rewind(tmp_path, content, lambda job: here.run_job(job).code, **asked) == ExitCode.DONE
    forget_last_commit(folder)
    fill(kafka, content, 100, 120)
    assert rewind(tmp_path, content, lambda job: here.run_job(job).code, **asked) == ExitCode.DONE
    assert rewind(tmp_path, content, killed, **{**asked, "to": at(60)}) == ExitCode.CHECKPOINT

    assert rows(kafka, elsewhere) == expected(50, 150, "matched")


@pytest.fixture
def halfway(kafka, content, here, tmp_path):
    """A job whose rewind keeps all rows, stopped before it has passed them: rows about what it has to read stay."""
    fill(kafka, content, 0, 120)
    assert here.run(content).code == ExitCode.DONE
    assert rewind(tmp_path, content, to=at(40), written="keep") == ExitCode.DONE
    content |= {"records_per_batch": 10}
    stop_halfway(here, content)
    return content


def stop_halfway(here, content):
    with here.running({**content, "trigger": {"every": "0s"}}) as job:
        job.until(lambda: job.lines, "a batch")
        assert job.stop() == ExitCode.DONE


@pytest.mark.slow
def test_rows_that_stay_also_stay_once_the_job_is_moved(kafka, halfway, here, tmp_path):
    """Twice: what is noted is handed on."""
    for name in ("second", "third"):
        old = halfway["checkpoint"]
        halfway |= {"checkpoint": str(tmp_path / name)}
        assert move_of(file_of(tmp_path, halfway), old) == ExitCode.DONE
        if name == "second":
            stop_halfway(here, halfway)
    fill(kafka, halfway, 120, 130)
    assert here.run(halfway).code == ExitCode.DONE
    assert rows(kafka, halfway) == expected(0, 130, "matched")


@pytest.mark.slow
def test_rows_that_stay_also_stay_once_a_later_rewind_is_undone(kafka, halfway, here, tmp_path):
    assert rewind(tmp_path, halfway, to=at(20), written="keep") == ExitCode.DONE
    stop_halfway(here, halfway)
    assert rewind(tmp_path, halfway, undo=True) == ExitCode.DONE
    assert here.run(halfway).code == ExitCode.DONE
    assert rows(kafka, halfway) == expected(0, 120, "matched")


@pytest.mark.slow
def test_rows_that_stay_are_written_again_only_from_the_time_of_a_later_rewind_on(kafka, halfway, here, tmp_path):
    """Though the job has not got that far again."""
    assert rewind(tmp_path, halfway, to=at(100), written="again") == ExitCode.DONE
    assert here.run(halfway).code == ExitCode.DONE
    assert rows(kafka, halfway) == expected(0, 100, "matched") + twice(100, 120)


@pytest.mark.slow
def test_a_job_starts_that_was_killed_rewound_undone_and_rewound(kafka, content, here, tmp_path):
    """What was not completed before the first rewind says nothing of the batches since."""
    fill(kafka, content, 0, 60)
    assert here.run(content).code == ExitCode.DONE
    forget_last_commit(Path(content["checkpoint"]))
    assert rewind(tmp_path, content, to=at(40), written="again") == ExitCode.DONE
    assert here.run(content).code == ExitCode.DONE

    assert rewind(tmp_path, content, undo=True) == ExitCode.DONE
    assert rewind(tmp_path, content, to=at(50), written="again") == ExitCode.DONE
    assert here.run(content).code == ExitCode.DONE

    assert rows(kafka, content) == expected(0, 40, "matched") + twice(40, 60) + expected(50, 60, "matched")


@pytest.mark.slow
def test_a_new_checkpoint_does_not_begin_in_the_output_of_a_job_that_was_rewound(kafka, halfway, here, tmp_path):
    """Although the rewound job has written nothing itself so far."""
    assert here.run({**halfway, "checkpoint": str(tmp_path / "fresh")}).code == ExitCode.OUTPUT_TAKEN
    assert rows(kafka, halfway) == expected(0, 120, "matched")
