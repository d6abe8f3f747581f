"""`teacup run dedup.yaml` as a process: one topic to another, each id once, killed and restarted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from dedup.errors import RecordsGone, SourceChanged
from dedup.topic.source import Ranges, check_log, following
from dedup.topic.stage import TopicSummary
from deploy.cli.app import app
from deploy.errors import AccountsDiffer
from deploy.jobfile.load import load_job
from deploy.jobs.dedup import gathered, without_any_id
from teacup.base.errors import ExitCode
from teacup.kafka.log.topic_log import Ends
from teacup.kafka.write.writer import TopicWriter
from tests.support.jobprocess import JobProcess, forget_last_commit, records, uncommitted
from tests.support.recreating import recreate

ROOT = Path(__file__).parents[3]
START_MS = 1_700_000_000_000


@pytest.fixture
def job(kafka, topic_factory, tmp_path):
    """A job file's content over new topics."""

    def make(out_partitions=2, **changes):
        topics = topic_factory(2, prefix="in"), topic_factory(out_partitions, prefix="out")
        return {
            "name": topics[1],
            "kind": "dedup",
            "kafka": kafka,
            "source": {"topic": topics[0]},
            "output": {"topic": topics[1], "kafka": {"delivery.timeout.ms": 2_000}},
            "id": "header:id",
            "trigger": "available_now",
            "checkpoint": str(tmp_path / "checkpoint"),
            "spark": {"master": "local[2]"},
            **changes,
        }

    return make


def put(kafka, topic, ids, partition=0, start_ms=START_MS):
    """Records with these ids in a header, None without."""
    writer = TopicWriter(kafka)
    writer.write(
        topic,
        None,
        [b"v%d" % i for i in range(len(ids))],
        headers=[None if number is None else [("id", b"%d" % number)] for number in ids],
        timestamps=[start_ms + i for i in range(len(ids))],
        partitions=[partition] * len(ids),
    )
    writer.flush()
    writer.close()


def ids_of(kafka, topic):
    return [(r["partition"], r["headers"].get("id")) for r in records(kafka, topic)]


def test_each_id_is_written_once_across_batches_kills_and_restarts(kafka, job, here, tmp_path):
    """Every id comes three times; the job is killed in between; a batch whose commit was lost runs again."""
    content = job(records_per_batch=500, trigger={"every": "0s"})
    source, out = content["source"]["topic"], content["output"]["topic"]
    for partition in (0, 1):
        put(kafka, source, [*range(2_000), None], partition)
    first = JobProcess(tmp_path, content)
    first.until(lambda: sum(line["written"] for line in first.lines) > 1_000, "a thousand records are through")
    first.kill()
    for partition in (0, 1):
        put(kafka, source, [*range(2_000), *range(2_000)], partition)
    if not uncommitted(tmp_path / "checkpoint"):
        forget_last_commit(tmp_path / "checkpoint")

    second = here.run({**content, "records_per_batch": 1_000_000, "trigger": "available_now"})

    assert second.code == ExitCode.DONE
    expected = [(p, str(i)) for p in (0, 1) for i in range(2_000)] + [(0, None), (1, None)]
    assert sorted(ids_of(kafka, out), key=str) == sorted(expected, key=str)
    assert sum(line["dropped"] for line in second.lines) >= 8_000
    assert sum(line["without_id"] for line in first.lines + second.lines) >= 2
    assert all(line["read"] == line["written"] + line["dropped"] for line in first.lines + second.lines)


def test_a_signal_stops_it_cleanly(kafka, job, here, tmp_path):
    """Exit code 0, after a batch with nothing to read, and others with one partition of two."""
    content = job(trigger={"every": "0s"})
    with here.running(content) as running:
        running.until(lambda: (tmp_path / "checkpoint" / "commits" / "0").exists(), "a batch with nothing is committed")
        put(kafka, content["source"]["topic"], [1, 1, 2])
        running.until(lambda: sum(line["written"] for line in running.lines) == 2, "both ids are out")

        code = running.stop()

    assert code == ExitCode.DONE
    assert sorted(ids_of(kafka, content["output"]["topic"])) == [(0, "1"), (0, "2")]


def test_topics_of_different_partition_counts_are_refused(job, here, caplog):
    """With an exit code and both counts, before Spark is started."""
    refused = here.run(job(out_partitions=3))

    assert refused.code == ExitCode.NOT_CO_PARTITIONED
    assert "2 partitions" in caplog.text
    assert "has 3" in caplog.text


def test_a_topic_is_not_deduplicated_into_itself(job, tmp_path):
    """Records without an id would circulate for ever."""
    content = job()
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump({**content, "source": {"topic": content["output"]["topic"]}}))

    done = CliRunner().invoke(app, ["check", str(path)])

    assert done.exit_code == ExitCode.BAD_JOB_FILE
    assert "output.topic" in done.output
    assert "is source.topic as well" in done.output


def test_the_example_is_valid():
    """As it is shipped."""
    done = CliRunner().invoke(app, ["check", str(ROOT / "deploy" / "examples" / "dedup.yaml")])

    assert done.exit_code == 0, done.output


def test_the_schema_of_the_kind_is_printed():
    """And an unknown kind is refused."""
    table = CliRunner().invoke(app, ["schema", "--kind", "dedup", "--table"])

    assert "| `window` | `10m` |" in table.stdout
    assert CliRunner().invoke(app, ["schema", "--kind", "x"]).exit_code == ExitCode.BAD_JOB_FILE


def summary(partition, parts):
    counts = dict.fromkeys(("read", "written", "dropped", "without_id", "loaded", "known", "forgotten", "skipped"), 2)
    return TopicSummary(partition=partition, number=7, parts=parts, **counts)


@pytest.fixture
def parsed(job, tmp_path):
    """The job of the module's file, as it is loaded."""
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump({**job(), "id": "positions"}))
    return load_job(path)


def test_summaries_are_put_together(parsed):
    """Over all partitions."""
    whole = gathered(parsed, [summary(0, 2), summary(3, 2)], 0.5)

    assert (whole.number, whole.records, whole.counts["known"]) == (7, 4, 4)


@pytest.mark.parametrize("partitions", [[0], [0, 0], [0, 1, 2]])
def test_a_summary_that_is_missing_or_too_many_fails_the_batch(parsed, partitions):
    """For two ranges, whose records may be missing too."""
    with pytest.raises(AccountsDiffer, match=r"2 were expected"):
        gathered(parsed, [summary(partition, 2) for partition in partitions], 0.5)


@pytest.mark.parametrize(("without_id", "named"), [(9, None), (10, "none of the 10 records of batch 7")])
def test_a_topic_without_the_chosen_id_is_reported(parsed, without_id, named):
    """Positions need a tag, which exactly-once output lacks: silently, nothing would be deduplicated."""
    texts = [concern.text for concern in without_any_id({"read": 10, "without_id": without_id}, 7, parsed)]

    assert (texts == []) if named is None else (named in texts[0] and "'teacup'" in texts[0])


RANGES = Ranges("in", {}, 10, "earliest")
BEGUN = {"epochs": [None], "format": 2, "id": "t", "number": 4, "ranges": {"0": [0, 7]}, "skipped": 0, "topic": "in"}


def test_the_next_offset_stays_within_the_limit_and_unchanged_if_nothing_is_new():
    """Partitions share the limit; without new records the offset is exactly the same."""
    after = following(BEGUN, "t", {0: Ends(0, 100, 100), 1: Ends(0, 2, 2)}, RANGES)

    assert after == {**BEGUN, "epochs": [None, None], "number": 5, "ranges": {"0": [7, 15], "1": [0, 2]}}
    assert following(BEGUN, "t", {0: Ends(0, 7, 9)}, RANGES) == BEGUN


@pytest.mark.parametrize(
    ("ends", "topic_id", "ranges", "error"),
    [
        ({0: Ends(8, 9, 9)}, "t", RANGES, RecordsGone),
        ({0: Ends(0, 6, 6)}, "t", RANGES, RecordsGone),
        ({0: Ends(0, 9, 9), 1: Ends(3, 5, 5)}, "t", RANGES, RecordsGone),
        ({1: Ends(0, 9, 9)}, "t", RANGES, RecordsGone),
        ({0: Ends(0, 9, 9)}, "other", RANGES, RecordsGone),
        ({0: Ends(0, 9, 9)}, "t", Ranges("elsewhere", {}, 10, "earliest"), SourceChanged),
    ],
)
def test_what_is_gone_or_another_topic_is_an_error(ends, topic_id, ranges, error):
    """Never skipped silently."""
    with pytest.raises(error):
        following(BEGUN, topic_id, ends, ranges)


def test_deleted_records_are_skipped_and_counted_if_the_job_is_to_continue():
    """Also those of a partition that is new; the count goes on."""
    ranges = replace(RANGES, on_data_loss="continue")

    after = following({**BEGUN, "skipped": 1}, "t", {0: Ends(9, 12, 12), 1: Ends(3, 5, 5)}, ranges)

    assert after["ranges"] == {"0": [9, 12], "1": [3, 5]}
    assert after["skipped"] == 1 + 2 + 3


def test_a_checkpoint_of_another_version_is_refused():
    """Its offsets have other fields."""
    with pytest.raises(SourceChanged, match=r"format 1, .* 2"):
        following({**BEGUN, "format": 1}, "t", {0: Ends(0, 9, 9)}, RANGES)


class CutOff:
    """A log that another leader has cut off at an offset."""

    def __init__(self, end):
        self.end = end

    def truncated(self, positions):
        return {p for p, position in positions.items() if position.offset > self.end}


def test_a_partition_that_was_truncated_and_has_grown_again_is_an_error():
    """Even for a job that continues."""
    begun, ends = {**BEGUN, "epochs": [3]}, {0: Ends(0, 90, 90, 4)}

    for ranges in (RANGES, replace(RANGES, on_data_loss="continue")):
        check_log(begun, "t", ends, CutOff(7), ranges)
        with pytest.raises(RecordsGone, match=r" in-0 .* offset 7"):
            check_log(begun, "t", ends, CutOff(6), ranges)
    assert following(begun, "t", ends, RANGES)["epochs"] == [4]


@pytest.mark.slow
def test_a_recreated_source_is_read_with_a_new_checkpoint_as_the_message_says(kafka, job, here, tmp_path, caplog):
    """And nothing else."""
    content = job()
    put(kafka, content["source"]["topic"], range(30))
    assert here.run(content).code == ExitCode.DONE
    recreate(kafka, content["source"]["topic"], 2)
    put(kafka, content["source"]["topic"], range(20, 40))
    assert here.run(content).code == ExitCode.DATA_LOSS
    assert "start a new checkpoint" in caplog.text

    assert here.run({**content, "checkpoint": str(tmp_path / "new")}).code == ExitCode.DONE

    assert sorted(number for _, number in ids_of(kafka, content["output"]["topic"])) == sorted(map(str, range(40)))
