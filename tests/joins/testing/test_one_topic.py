"""One topic on both sides, and sides that take some records: the oracle, compared with DuckDB."""

from __future__ import annotations

import duckdb
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from joins.spec import JoinSpec, Policy, Side
from joins.testing import oracle
from joins.testing.history import TopicHistory
from joins.testing.strategies import histories, specs

RANKS = {
    Policy.NEAREST: "abs(r.t - l.t), r.t, r.p, r.o",
    Policy.FIRST: "r.t, r.p, r.o",
    Policy.ALL: "r.t, r.p, r.o",
    Policy.LAST: "r.t DESC, r.p DESC, r.o DESC",
}
RECORDS = pa.schema(
    [("p", pa.int32()), ("o", pa.int64()), ("t", pa.int64()), ("k", pa.binary()), ("type", pa.string())]
)


def table(topic: TopicHistory, spec: JoinSpec) -> pa.Table:
    timely = [event for event in topic.records() if not event.is_future(spec.max_future_skew_ms)]
    columns = ["partition", "offset", "time_ms", "key", "type"]
    return pa.table([[getattr(event, name) for event in timely] for name in columns], schema=RECORDS)


def taken(side: Side) -> str:
    if side.where_of is None:
        return "true"
    ((_, texts),) = side.where_of.parts
    return f"type IN ({', '.join(map(repr, texts))})"


@given(st.data(), st.booleans())
def test_the_oracle_is_what_sql_says(data: st.DataObject, one_topic: bool) -> None:
    """Every policy: a record on each side that it fits, and never with itself."""
    spec = data.draw(specs(one_topic=one_topic, filtered=not one_topic))
    history = data.draw(histories(spec))
    itself = "AND (l.p, l.o) <> (r.p, r.o)" if one_topic else ""
    with duckdb.connect(config={"threads": 1}) as sql:
        sql.register("lefts", table(history.left, spec))
        sql.register("rights", table(history.right, spec))
        pairs = sql.execute(
            f"""
            SELECT l.p, l.o, r.p, r.o, row_number() OVER (PARTITION BY l.p, l.o ORDER BY {RANKS[spec.right.policy]})
            FROM (FROM lefts WHERE {taken(spec.left)}) l LEFT JOIN (FROM rights WHERE {taken(spec.right)}) r
                ON l.k = r.k {itself}
                AND r.t BETWEEN l.t - {spec.right.before_ms} AND l.t + {spec.right.after_ms}
            ORDER BY ALL
            """
        ).fetchall()

    expected = sorted(pair[:4] for pair in pairs if pair[4] == 1 or spec.right.policy is Policy.ALL)

    found = [(row.left_partition, row.left_offset, *(row.right or (None, None))) for row in oracle.made(history, spec)]
    assert sorted(found, key=str) == sorted(expected, key=str)
