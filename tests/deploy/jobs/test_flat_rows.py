"""The example of flat, typed rows on a broker: what fits, what does not, and what is unmatched."""

from __future__ import annotations

import json
import struct
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml
from google.protobuf.descriptor_pb2 import FieldDescriptorProto

from joins import JoinSpec, Right, Side, window_join
from teacup.base.errors import ExitCode
from teacup.base.now import wall_ms
from tests.support.framed import avro
from tests.support.jobprocess import records
from tests.support.protofile import proto_file
from tests.support.registry import registry_server
from tests.support.sparkjoin import Put, produce

EXAMPLE = Path(__file__).parents[3] / "deploy" / "examples" / "window-join-flat.yaml"


def put(kafka: dict[str, str], left: str, right: str) -> None:
    """Four clicks: matched, without impression, of a user that is no number, of a price that is none."""
    at = wall_ms() - 60_000
    clicks = [{"click_id": f"c-{n}", "user": "17" if n == 2 else n} for n in range(4)]
    shown = {0: 0.25, 2: 1, 3: "free"}
    produce(kafka, left, [Put(0, b"k%d" % n, at + 100, json.dumps(click).encode()) for n, click in enumerate(clicks)])
    impressions = {n: {"campaign": "spring", "price": price, "x": 1} for n, price in shown.items()}
    produce(kafka, right, [Put(0, b"k%d" % n, at, json.dumps(value).encode()) for n, value in impressions.items()])


def test_the_example_writes_flat_rows_of_its_types(kafka, window_job, topic_factory, here) -> None:
    """With every field in every row, exactly once; a mismatch of left is counted, one of right is a dead letter."""
    shipped: dict[str, Any] = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
    ours = window_job(1)
    content = {
        **shipped,
        **{key: ours[key] for key in ("name", "kafka", "checkpoint", "window_folder", "trigger", "spark")},
    }
    for side in ("left", "right"):
        content[side] = {**shipped[side], "topic": ours[side]["topic"]}
    content["output"] = {**shipped["output"], "topic": ours["output"]["topic"]}
    content["topics"] = {"dead_letter": topic_factory(1)}
    put(kafka, content["left"]["topic"], content["right"]["topic"])

    ran = here.run(content)

    assert ran.code == ExitCode.DONE
    rows = sorted(
        (json.loads(row["value"]) for row in records(kafka, content["output"]["topic"])), key=lambda r: r["click_id"]
    )
    none = {"campaign": None, "price": None, "wait_ms": None}
    assert rows == [
        {"click_id": "c-0", "user": 0, "campaign": "spring", "price": 0.25, "wait_ms": 100, "outcome": "matched"},
        {"click_id": "c-1", "user": 1, **none, "outcome": "unmatched"},
        {"click_id": "c-2", "user": None, "campaign": "spring", "price": 1.0, "wait_ms": 100, "outcome": "matched"},
    ]
    (dead,) = records(kafka, content["topics"]["dead_letter"])
    assert json.loads(dead["value"])["click_id"] == "c-3"
    assert (dead["headers"]["teacup.reason"], dead["headers"]["teacup.expression"]) == (
        "schema_mismatch",
        "right.schema",
    )
    batches = [line for line in ran.lines if line["event"] == "batch" and line["rows"]]
    assert sum((Counter(line["mismatches"]) for line in batches), Counter()) == {"left": 1, "right": 1}
    assert sum((Counter(line["refused"]) for line in batches), Counter()) == {"schema_mismatch": 1}


def test_the_newest_schemas_of_the_registry_give_the_fields_and_types(kafka, window_job, here) -> None:
    """Of both forms; a record of an older schema lacks a field. Without a schema there the job does not start."""
    money = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
    old = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}
    new = {**old, "fields": [*old["fields"], {"name": "amount", "type": ["null", money], "default": None}]}
    content, at = window_job(1), wall_ms() - 60_000
    left, right = content["left"]["topic"], content["right"]["topic"]
    content["left"] |= {"format": "avro", "schema": "registry"}
    content["right"] |= {"format": "protobuf", "schema": "registry", "on_mismatch": "dead_letter"}
    names = ("left.id", "left.amount", "right.price")
    content["output"]["select"] = {name.replace(".", "_"): name for name in names}
    with registry_server() as registry:
        content["registry"] = {"url": registry.url}
        older, newer = registry.register(f"{left}-value", old), registry.register(f"{left}-value", new)
        without = here.run(content)
        file = proto_file("price.proto", [("Price", [("price", FieldDescriptorProto.TYPE_DOUBLE)])])
        number = registry.register_serialized(f"{right}-value", file)
        orders = [avro(older, old, {"id": "o-1"}), avro(newer, new, {"id": "o-2", "amount": Decimal("1.25")})]
        produce(kafka, left, [Put(0, b"k", at, value) for value in orders])
        produce(kafka, right, [Put(0, b"k", at, struct.pack(">bIbb", 0, number, 0, 0x09) + struct.pack("<d", 0.5))])

        ran = here.run(content)

    assert without.code == ExitCode.BAD_JOB_FILE
    assert ran.code == ExitCode.DONE
    assert [json.loads(row["value"]) for row in records(kafka, content["output"]["topic"])] == [
        {"left_id": "o-1", "left_amount": None, "right_price": 0.5},
        {"left_id": "o-2", "left_amount": 1.25, "right_price": 0.5},
    ]


def test_the_library_has_the_same_columns(
    kafka, topic_factory, spark, tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of types, for expressions of Spark; a mismatch is marked."""
    left, right = topic_factory(1, prefix="left"), topic_factory(1, prefix="right")
    put(kafka, left, right)
    spec = JoinSpec(
        name="flat",
        left=Side(topic=left, format="json", value_schema="click_id STRING, user INT"),
        right=Right(topic=right, format="json", before="10m", value_schema="price DOUBLE", on_mismatch="dead_letter"),
        kafka=kafka,
        producer_delay="0s",
    )

    joined = window_join(spark, spec, windows=tmp_path / "windows")
    flat = joined.selectExpr(
        "left.click_id", "left.user", "right.price * 2 as twice", "outcome", "reason", "left_mismatch"
    )
    query = (
        flat.writeStream.format("memory").queryName("flat").option("checkpointLocation", str(tmp_path / "c"))
        .trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()

    assert dict(flat.dtypes) | {"twice": "double"} == dict(flat.dtypes)
    assert sorted(map(tuple, spark.table("flat").collect())) == [
        ("c-0", 0, 0.5, "matched", None, False),
        ("c-1", 1, None, "unmatched", "no_candidate", False),
        ("c-2", None, 2.0, "matched", None, True),
        ("c-3", 3, None, "dead_letter", "schema_mismatch", False),
    ]
