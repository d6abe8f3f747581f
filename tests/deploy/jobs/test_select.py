"""`output.select`: rows pass through Spark's expressions, which may fail."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from teacup.base.errors import ExitCode
from tests.deploy.jobs.filling import START_MS, fill
from tests.support.jobprocess import JobProcess, forget_last_commit, records
from tests.support.provenance import left_of


def test_select_writes_what_its_expressions_say(kafka, job, here):
    """Key, value and headers by Spark SQL; positions stay in the headers."""
    content = job()
    content["output"]["select"] = {
        "key": "concat('k', cast(key as string))",
        "value": "concat(cast(left_value as string), coalesce(cast(right_value as string), '-'))",
        "headers": {"what's": "outcome"},
    }
    left, _ = fill(kafka, content, 60)

    code = here.run(content).code

    out = records(kafka, content["output"]["topic"])
    assert code == ExitCode.DONE
    assert len(out) == len(left)
    assert {r["headers"]["what's"] for r in out} <= {"matched", "unmatched"}
    assert all(r["key"].startswith(b"k") and "teacup" in r["headers"] for r in out)
    assert all(b"}r" in r["value"] for r in out if r["headers"]["what's"] == "matched")


def test_a_job_goes_on_with_select_and_without(kafka, job, here):
    """With it each batch is a query of Spark SQL; both go on in the same checkpoint. A batch that either has
    delivered, and not committed, runs again under the other, and writes nothing twice."""
    content, made = job(), 0
    selected = {"key": "key", "value": "left_value", "headers": {"what": "outcome"}}
    for number, select in enumerate((None, selected, None, selected)):
        left, _ = fill(kafka, content, 40, START_MS + number * 1_000_000)
        made += len(left)
        content["output"] = {"topic": content["output"]["topic"], **({} if select is None else {"select": select})}

        assert here.run(content).code == ExitCode.DONE

        assert len(records(kafka, content["output"]["topic"])) == made
        forget_last_commit(Path(content["checkpoint"]))


@pytest.mark.slow
def test_a_row_on_which_an_expression_fails_is_a_dead_letter(kafka, job, tmp_path):
    """Without a topic for it the job ends at once, naming it; with one all other rows are written, once each."""
    content = job()
    fill(kafka, content)
    ten_by_n = "10 / cast(get_json_object(cast(left_value as string), '$.n') as int)"
    content["output"]["select"] = {
        "key": "key",
        "value": f"concat(cast({ten_by_n} as string), ' ', cast({ten_by_n} as string))",
        "headers": {"what": "outcome"},
    }
    dead_letters = content["topics"].pop("dead_letter")

    refused = JobProcess(tmp_path, content)
    code = refused.ended()
    before = records(kafka, content["output"]["topic"])
    content["topics"]["dead_letter"] = dead_letters
    then = JobProcess(tmp_path, content)

    logged = refused.logged()
    assert code == ExitCode.REFUSED, logged
    assert f"the row about {content['left']['topic']}-0 offset 0 and" in logged
    assert "(select_failed): `output.select.value`" in logged
    assert "Lost task" not in logged
    assert not any(left_of(row["headers"]).startswith("0:") for row in before)
    assert then.ended() == ExitCode.DONE, then.logged()
    out = records(kafka, content["output"]["topic"])
    assert sorted(left_of(row["headers"]) for row in out) == sorted(f"{i % 2}:{i // 2}" for i in range(1, 200))
    assert next(row["value"] for row in out if left_of(row["headers"]) == "0:2") == b"2.5 2.5"
    (dead,) = records(kafka, dead_letters)
    assert (dead["value"], dead["headers"]["teacup.reason"]) == (b'{"n": 0}', "select_failed")
    assert dead["headers"]["teacup.expression"] == "value"


def test_rows_that_cannot_be_written_are_counted_as_dead_letters(kafka, job, here, topic_factory, caplog):
    """In each line and in the sum, by reason: a large row, and one whose expression fails. So does a batch that is
    run again although all of it is written."""
    caplog.set_level("INFO", "teacup")
    content = job(2)
    content["output"] = {"topic": topic_factory(2, {"max.message.bytes": "5000"})}
    n = "cast(get_json_object(cast(left_value as string), '$.n') as int)"
    content["output"]["select"] = {"key": "key", "value": f"concat(1 / {n}, repeat('x', if({n} = 5, 9000, 1)))"}
    left, _ = fill(kafka, content, 20)

    ran = here.run(content)
    forget_last_commit(Path(content["checkpoint"]))
    again = here.run(content)

    dead = {"select_failed": 1, "too_large": 1}
    written = len(records(kafka, content["output"]["topic"]))
    assert (ran.code, written, len(left)) == (ExitCode.DONE, 18, 20)
    for lines in (ran.lines, again.lines):
        batches = [line for line in lines if line["event"] == "batch" and line["rows"]]
        rows = sum((Counter(line["rows"]) for line in batches), Counter())
        assert (rows["matched"] + rows["unmatched"], rows["dead_letter"]) == (18, 2)
        assert sum((Counter(line["refused"]) for line in batches), Counter()) == dead
    ends = [json.loads(text) for text in caplog.messages if text.startswith('{"event": "end"')]
    assert [end["dead"] for end in ends] == [dead, dead]
    assert [end["rows"]["matched"] + end["rows"]["unmatched"] for end in ends] == [18, 18]


def test_an_expression_that_spark_refuses_is_a_mistake_in_the_job_file(job, here, caplog):
    """In one line; `teacup check` has said the same (`tests/deploy/check/test_analysis.py`)."""
    content = job()
    content["output"]["select"] = {"key": "key", "value": "left_valu"}

    refused = here.run(content)

    assert refused.code == ExitCode.BAD_JOB_FILE
    assert (
        "output.select.value: 'left_valu' is not allowed: there is no column left_valu; did you mean left_value?"
        in caplog.text
    )
    assert "Traceback" not in caplog.text
