"""`teacup audit` of jobs that ran on a real broker: clean as they are, and every injected fault found and named."""

import json

import pytest
from typer.testing import CliRunner

from deploy.cli.app import app
from deploy.inspection.audit.run import audit
from deploy.jobfile.load import load_job
from teacup.base.errors import ExitCode
from teacup.base.times import iso
from tests.deploy.inspection.audit.auditing import copied, position, written
from tests.deploy.jobs.filling import START_MS, fill
from tests.support.jobprocess import records
from tests.support.sparkjoin import Put, produce

END_MS = START_MS + 400_000


@pytest.fixture
def audited(tmp_path):
    """`audited(content, **changes)`: the findings about a job."""

    def run(content, from_ms=START_MS, to_ms=END_MS, **more):
        return audit(load_job(written(tmp_path, content)), from_ms, to_ms, folder=tmp_path, **more)

    return run


def test_a_job_is_clean_and_each_injected_fault_is_found_and_named(kafka, job, here, audited, topic_factory, tmp_path):
    """Late records of both sides, dead letters, null keys, unmatched and unjoined records; then one of each fault."""
    content = job(outliers=1, records_per_batch=100)
    fill(kafka, content)
    late = START_MS + 20_000
    more = [Put(0, b"0", START_MS + 300_000, b"no json"), Put(0, None, START_MS + 201_000, b"{}")]
    produce(kafka, content["left"]["topic"], [*more, Put(0, b"4", late, b'{"n": "late"}')])
    right = [Put(0, b"zz", START_MS + 100_000, b"nobody's"), Put(0, b"4", late, b"late"), Put(0, None, START_MS, b"x")]
    produce(kafka, content["right"]["topic"], right)

    assert here.run(content).code == ExitCode.DONE

    found = audited(content)
    assert found.clean, [*found.lines()]
    assert found.checked == found.strict == 203
    assert found.outcomes["dead_letter"] == 1
    assert found.side["late"]["left"] >= 1
    assert found.side["unjoined"]["right"] >= 2
    assert f"{found.read['rows']:,} rows read: no differences" in found.summary()

    faulty = topic_factory(1, prefix="faulty")
    copied(kafka, content["output"]["topic"], faulty, one_of_each)
    side = topic_factory(1, prefix="faulty-side")
    copied(kafka, content["topics"]["unmatched"], side, lambda _, record: [record])
    matched = next(r for r in records(kafka, content["output"]["topic"]) if b'"matched"' in r["value"])
    copied(kafka, content["output"]["topic"], side, lambda _, r: [r] if r["headers"] == matched["headers"] else [])
    changed = {**content, "output": {"topic": faulty}, "topics": {**content["topics"], "unmatched": side}}

    found = audited(changed)
    kinds = {fault.kind: fault for fault in found.faults if fault.topic == faulty}
    assert {kind: count for kind, count in found.counts.items() if kind not in ("missing", "altered")} == {
        "doubled": 1,
        "wrong side topic": 1,
    }
    dropped, doubled, altered = (records(kafka, content["output"]["topic"])[at] for at in (3, 5, 7))
    assert kinds["missing"].left == position(dropped)
    assert kinds["missing"].key == json.dumps(dropped["key"].decode())
    assert kinds["doubled"].left == position(doubled)
    assert kinds["altered"].left == position(altered)
    (wrong,) = (fault for fault in found.faults if fault.kind == "wrong side topic")
    assert (wrong.topic, wrong.left) == (side, position(matched))

    ran = CliRunner().invoke(
        app,
        [
            *("audit", str(written(tmp_path, changed)), "--from", iso(START_MS), "--to", iso(END_MS), "--json"),
            *("--report", str(tmp_path / "report.html")),
        ],
    )
    assert ran.exit_code == ExitCode.DIFFERS, ran.output
    assert json.loads(ran.stdout)["counts"] == found.counts
    assert "wrong side topic" in (tmp_path / "report.html").read_text()


def test_a_record_of_the_time_0_has_a_row_of_that_time_and_not_of_now(kafka, job, here, audited):
    """As near as Kafka's clients can write it: a job that reads the output by Kafka's time joins it as it should."""
    content = job(1)
    content["left"] |= {"time": "$.at"}
    produce(kafka, content["left"]["topic"], [Put(0, b"k", START_MS, b'{"at": %d}' % at) for at in (0, 1)])

    assert here.run(content).code == ExitCode.DONE

    out = records(kafka, content["output"]["topic"])
    assert [json.loads(row["value"])["left"]["time"] for row in out] == [0, 1]
    assert [row["time"] for row in out] == [1, 1]
    assert [row["headers"].get("teacup.time") for row in out] == ["0", None]
    assert [copy["time"] for copy in records(kafka, content["topics"]["unmatched"])] == [1, 1]
    found = audited(content, 0, END_MS)
    assert found.clean, [*found.lines()]


def one_of_each(number, record):
    match number:
        case 3:
            return []
        case 5:
            return [record, record]
        case 7:
            return [{**record, "value": record["value"].replace(b'"n"', b'"m"')}]
        case _:
            return [record]
