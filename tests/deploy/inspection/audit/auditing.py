"""What audits of real jobs need: job files, topics with records changed, and corrections applied to an output."""

from __future__ import annotations

import re
from contextlib import closing

import duckdb
import yaml
from confluent_kafka import Producer

from tests.support.jobprocess import records
from tests.support.packages import ROOT
from tests.support.provenance import left_of


def written(folder, content):
    path = folder / "audited.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def rows(kafka, topic):
    return sorted(((row["key"], row["value"]) for row in records(kafka, topic)), key=repr)


def applied(kafka, output, corrections, *, each_pair=False):
    """Key and value of each row, by the statement in the documentation."""
    section = (ROOT / "docs" / "watch.md").read_text().partition("### Corrections")[2]
    (statement,), (pairs,) = (re.findall(of, section, re.DOTALL) for of in (r"```sql\n(.*?)```", "the id is `(.*?)`"))
    with closing(duckdb.connect()) as con:
        for name, topic in (("output", output), ("corrections", corrections)):
            con.execute(f"CREATE TABLE {name} (key BLOB, value BLOB, teacup VARCHAR)")
            for row in records(kafka, topic):
                columns = [row["key"], row["value"], row["headers"]["teacup"]]
                con.execute(f"INSERT INTO {name} VALUES (?, ?, ?)", columns)
        if each_pair:
            statement = re.sub(r"'\^1 .*?'", lambda _: pairs, statement)
        return sorted(con.execute(statement).fetchall(), key=repr)


def copied(kafka, topic, to, change):
    """What is in a topic, changed, in another one: `change(number, record)` returns the records in its place."""
    with closing(_Producer(kafka)) as producer:
        for number, record in enumerate(records(kafka, topic)):
            for one in change(number, record):
                producer.put(to, one)


class _Producer:
    def __init__(self, kafka):
        self._producer = Producer({**kafka, "acks": "all"})

    def put(self, topic, record):
        headers = [(name, value) for name, value in record["headers"].items()]
        self._producer.produce(
            topic, record["value"], record["key"], partition=0, timestamp=record["time"], headers=headers
        )

    def close(self):
        assert self._producer.flush(60) == 0


def position(record):
    partition, offset = left_of(record["headers"]).split(":")
    return int(partition), int(offset)
