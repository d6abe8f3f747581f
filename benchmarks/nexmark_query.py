"""One Nexmark query as a join of ours, in a process of its own.

    python -m benchmarks.nexmark_query --query q20 --path shuffled --bootstrap … --checkpoint new/folder --out folder

A batch of the join is a DataFrame; `Query.rows` makes the query's rows of it, and they are written as Parquet, one
folder per batch. That needs no state of Spark's, because all pairs of a left record are in one batch.

    direct     key and time are Kafka's: both topics are partitioned by the join key
    shuffled   key and time are fields of the JSON values, as in the queries: Spark's shuffle brings records together

With `--topic` the join is run as a job instead, as by `teacup run`: every left record to that topic, exactly once, in
the default envelope, and nothing of the query behind it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from benchmarks.ours import run_to_kafka
from joins import Format, JoinSpec, Policy, Right, Side, window_join
from joins.spec import JoinPath
from teacup.spark.session import Session

MASTER = "local[2]"
DISORDER_MS = 4_000  # the watermark of Nexmark's Kafka table
SPAN_MS, LEAD_MS = 10_000, 1_000
TUMBLE_MS = 10_000
BID = "auction bigint, bidder bigint, price bigint, channel string, url string, dateTime timestamp, extra string"
AUCTION = (
    "id bigint, itemName string, description string, initialBid bigint, reserve bigint, dateTime timestamp, "
    "expires timestamp, seller bigint, category bigint, extra string"
)


def _value(side: str, schema: str) -> Column:
    return sf.from_json(sf.col(f"{side}_value").cast("string"), schema).alias(side)


def expanded_bids(joined: DataFrame) -> DataFrame:
    """Returns the rows of q20: bids with their auction, of category 10."""
    category = sf.get_json_object(sf.col("right_value").cast("string"), "$.category")
    pairs = joined.where((joined.outcome == "matched") & (category == "10"))
    bid, auction = sf.col("left"), sf.col("right")
    columns = [bid[name].alias(name) for name in ("auction", "bidder", "price", "channel", "url")]
    columns += [bid["dateTime"].alias("bid_dateTime"), bid["extra"].alias("bid_extra")]
    columns += [auction[name].alias(name) for name in ("itemName", "description", "initialBid", "reserve")]
    columns += [auction["dateTime"].alias("auction_dateTime")]
    columns += [auction[name].alias(name) for name in ("expires", "seller", "category")]
    return pairs.select(_value("left", BID), _value("right", AUCTION)).select(
        *columns, auction["extra"].alias("auction_extra")
    )


def new_sellers(joined: DataFrame) -> DataFrame:
    """Returns the rows of q8: people who opened an auction in the ten seconds (of a tumbling window) they came in."""
    begin_ms = joined.left_time - joined.left_time % TUMBLE_MS
    same = joined.where((joined.outcome == "matched") & (joined.right_time - joined.right_time % TUMBLE_MS == begin_ms))
    person = _value("left", "id bigint, name string")
    rows = same.select(person, sf.timestamp_millis(begin_ms).alias("starttime"))
    return rows.select("left.id", "left.name", "starttime").distinct()


def highest_bids(joined: DataFrame) -> DataFrame:
    """Returns the rows of q101: every auction with its highest bid, or null."""
    price = sf.get_json_object(sf.col("right_value").cast("string"), "$.price").cast("bigint")
    highest = joined.groupBy("left_partition", "left_offset").agg(
        sf.first("left_value").alias("left_value"), sf.max(price).alias("max_price")
    )
    auction = _value("left", "id bigint, itemName string")
    return highest.select(auction, "max_price").select("left.id", "left.itemName", "max_price")


@dataclass(frozen=True, slots=True)
class Query:
    """A query of Nexmark.

    left, right   topic and the field with the join key
    policy        of the join
    interval_ms   before, after: wide enough for every pair of the query
    rows          the query's rows, from the rows of the join
    sql           the same query as published, for DuckDB: no interval, no stream
    """

    left: tuple[str, str]
    right: tuple[str, str]
    policy: Policy
    interval_ms: tuple[int, int]
    rows: Callable[[DataFrame], DataFrame]
    sql: str


QUERIES = {
    "q20": Query(
        left=("bid", "$.auction"),
        right=("auction", "$.id"),
        policy=Policy.NEAREST,
        interval_ms=(SPAN_MS, LEAD_MS),
        rows=expanded_bids,
        sql="""
            SELECT auction, bidder, price, channel, url, B.dateTime AS bid_dateTime, B.extra AS bid_extra,
                itemName, description, initialBid, reserve, A.dateTime AS auction_dateTime, expires, seller, category,
                A.extra AS auction_extra
            FROM bid B JOIN auction A ON B.auction = A.id WHERE A.category = 10""",
    ),
    "q8": Query(
        left=("person", "$.id"),
        right=("auction", "$.seller"),
        policy=Policy.ALL,
        interval_ms=(TUMBLE_MS, TUMBLE_MS),
        rows=new_sellers,
        sql=f"""
            SELECT P.id, P.name, P.starttime FROM
            (SELECT DISTINCT id, name, dateTime - dateTime % {TUMBLE_MS} AS starttime FROM person) P JOIN
            (SELECT DISTINCT seller, dateTime - dateTime % {TUMBLE_MS} AS starttime FROM auction) A
            ON P.id = A.seller AND P.starttime = A.starttime""",
    ),
    "q101": Query(
        left=("auction", "$.id"),
        right=("bid", "$.auction"),
        policy=Policy.ALL,
        interval_ms=(LEAD_MS, SPAN_MS),
        rows=highest_bids,
        sql="""
            SELECT a.id, a.itemName, b.max_price FROM auction a
            LEFT JOIN (SELECT auction, max(price) AS max_price FROM bid GROUP BY auction) b ON a.id = b.auction""",
    ),
}


def spec_of(name: str, path: JoinPath, bootstrap: str, max_records: int) -> JoinSpec:
    query = QUERIES[name]

    def side(topic: str, key: str) -> dict[str, Any]:
        where = {} if path is JoinPath.DIRECT else {"key": key, "time": "$.dateTime"}
        return {"topic": topic, "disorder_ms": DISORDER_MS, "format": Format.JSON, **where}

    before_ms, after_ms = query.interval_ms
    right = Right(**side(*query.right), before_ms=before_ms, after_ms=after_ms, policy=query.policy)
    return JoinSpec(
        name=name,
        left=Side(**side(*query.left)),
        right=right,
        max_records=max_records,
        path=path,
        kafka={"bootstrap.servers": bootstrap},
    )


def run(name: str, spec: JoinSpec, checkpoint: Path, out: Path) -> None:
    """Joins what the topics hold, and writes the query's rows."""
    settings = {"master": MASTER, "spark.ui.enabled": "false", "spark.sql.session.timeZone": "UTC"}
    settings["spark.sql.shuffle.partitions"] = "4"

    def write(joined: DataFrame, batch: int) -> None:
        QUERIES[name].rows(joined).write.mode("overwrite").parquet(str(out / str(batch)))

    with closing(Session(name, settings)) as session:
        session.warm_up()
        joined = window_join(session.spark, spec, windows=checkpoint.with_name("windows"))
        writer = joined.writeStream.foreachBatch(write).option("checkpointLocation", str(checkpoint))
        writer.trigger(availableNow=True).start().awaitTermination()


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.nexmark_query", description="One query.")
    parser.add_argument("--query", choices=[*QUERIES], required=True)
    parser.add_argument("--path", type=JoinPath, choices=[*JoinPath], required=True)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--max-records", type=int, required=True, help="a batch, left and right together")
    parser.add_argument("--checkpoint", type=Path, required=True)
    to = parser.add_mutually_exclusive_group(required=True)
    to.add_argument("--out", type=Path, help="a folder for the rows")
    to.add_argument("--topic", help="for the rows of the join, as a job")
    asked = parser.parse_args()
    spec = spec_of(asked.query, asked.path, asked.bootstrap, asked.max_records)
    if asked.topic:
        windows = asked.checkpoint.with_name("windows")
        run_to_kafka(spec, asked.topic, "exactly-once", asked.checkpoint, windows, MASTER)
    else:
        run(asked.query, spec, asked.checkpoint, asked.out)
    sys.stdout.write("done\n")


if __name__ == "__main__":
    _main()
