"""Joins of each type on a real broker: the rows are those of DuckDB, audits are clean, and left records explained."""

from __future__ import annotations

import json
from typing import Any

import duckdb
import pytest
import yaml

from deploy.inspection.audit.run import audit
from deploy.jobfile.load import load_job
from joins.spec import JoinType
from teacup.base.errors import ExitCode
from tests.deploy.inspection.explain.asking import answers
from tests.deploy.jobs.filling import START_MS
from tests.support.jobprocess import records
from tests.support.sparkjoin import Put, produce

SQL = {
    JoinType.LEFT: "SELECT l.n, count(r.t) > 0 FROM l LEFT JOIN r ON {on} GROUP BY l.n",
    JoinType.INNER: "SELECT DISTINCT l.n, true FROM l JOIN r ON {on}",
    JoinType.SEMI: "SELECT l.n, true FROM l SEMI JOIN r ON {on}",
    JoinType.ANTI: "SELECT l.n, false FROM l ANTI JOIN r ON {on}",
    JoinType.FULL: "SELECT l.n, count(r.t) > 0 FROM l LEFT JOIN r ON {on} GROUP BY l.n",
}
ON = "l.k = r.k AND r.t BETWEEN l.t - 1000 AND l.t + 500"


@pytest.mark.parametrize("kind", JoinType)
def test_rows_are_those_of_duckdb(kind: JoinType, kafka: Any, job: Any, here: Any, tmp_path: Any) -> None:
    """A third of left has a match, a null key never has; what is left out is counted and explained."""
    content = job(join={"before": "1s", "after": "500ms", "type": str(kind)})
    for refused, topic in ((JoinType.ANTI, "unmatched"), (JoinType.FULL, "unjoined")):
        if kind is refused:  # it writes them to the output
            content["topics"].pop(topic, None)
    if kind is JoinType.FULL:  # all of right is judged
        content["complete"] = True
    times = [START_MS + 700 * i for i in range(60)]
    left = [(i, None if i % 10 == 9 else b"%d" % (i % 3), t) for i, t in enumerate(times)]
    right = [(None if i % 11 == 7 else b"%d" % (i % 5), t + (i * 37) % 900) for i, t in enumerate(times)]
    produce(kafka, content["left"]["topic"], [Put(0, key, t, b'{"n":%d}' % n) for n, key, t in left])
    produce(kafka, content["right"]["topic"], [Put(0, key, t, b"right") for key, t in right])

    ran = here.run(content)

    assert ran.code == ExitCode.DONE
    with duckdb.connect() as con:
        con.execute("CREATE TABLE l (n INT, k BLOB, t BIGINT); CREATE TABLE r (k BLOB, t BIGINT)")
        con.executemany("INSERT INTO l VALUES (?, ?, ?)", left)
        con.executemany("INSERT INTO r VALUES (?, ?)", right)
        expected = con.execute(SQL[kind].format(on=ON)).fetchall()
        alone = con.execute(f"SELECT r.k, r.t FROM r ANTI JOIN l ON {ON}").fetchall() if kind is JoinType.FULL else []
    rows = records(kafka, content["output"]["topic"])
    values = [json.loads(record["value"]) for record in rows]
    assert sorted(
        ((record["key"] or b"", record["time"]) for record, of in zip(rows, values, strict=True) if not of["left"])
    ) == sorted((key or b"", t) for key, t in alone)
    assert all(of["outcome"] == "unjoined" and of["right"] for of in values if not of["left"])
    values = [of for of in values if of["left"]]
    assert sorted((of["left"]["value"]["n"], of["outcome"] == "matched") for of in values) == sorted(expected)
    assert all((of["right"] is not None) is (of["outcome"] == "matched" and not kind.left_alone) for of in values)
    assert sum(line["left_out"] for line in ran.lines if line.get("event") == "batch") == 60 - len(expected)

    left_out = next((n for n, *_ in left if n not in {n for n, _ in expected}), None)
    if left_out is not None:
        explained, _ = answers(content, [f"0:{left_out}"])
        (answer,) = explained.values()
        assert answer["outcome"] in kind.left_out
        assert any(f"`type: {kind}` leaves {answer['outcome']} records out" in note for note in answer["notes"])

    if kind is JoinType.FULL:
        at = next(n for n, each in enumerate(right) if each in alone and each[0])
        _, explained = answers(content, [], [f"0:{at}"])
        (answer,) = explained.values()
        assert (answer["outcome"], answer["reason"]) == ("unjoined", "expired")
        assert [copy["topic"] for copy in answer["copies"]] == [content["output"]["topic"]]
    path = tmp_path / "typed.yaml"
    path.write_text(yaml.safe_dump(content))
    found = audit(load_job(path), START_MS, START_MS + 100_000, folder=tmp_path)
    assert found.clean, [*found.lines()]
    assert found.checked == 60
