"""Each recipe's job files run on a broker, and give the rows of its table."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from dev.lookup_parts import DELAY, FEEDER, LOOKUP, STORAGE, LookupParts, LookupPlan
from teacup.base.errors import ExitCode
from teacup.base.now import wall_ms
from teacup.kafka.write.writer import TopicWriter
from tests.conftest import TopicFactory
from tests.support.jobhere import JobsHere, here
from tests.support.jobprocess import records
from tests.support.sparkjoin import Put, produce

__all__ = ["here"]

PAGE = (Path(__file__).parents[1] / "docs" / "recipes.md").read_text(encoding="utf-8")
RECIPES = dict(re.findall(r"^## ([\w ]+):.*?\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE))
T = wall_ms() // 1_000 * 1_000 - 7_200_000

Records = dict[str, list[tuple[str, int, dict[str, Any]]]]
"""By topic: key, seconds, value."""

GIVEN: dict[str, Records] = {
    "Self join": {"payments": [(key, at, {"amount": at}) for key, at in
                               (("card-1", 10), ("card-1", 70), ("card-2", 80), ("card-1", 90))]},
    "Two kinds of events in one topic": {
        "vehicle-events": [("bus-1", 10, {"type": "start"}), ("bus-1", 20, {"type": "position"}),
                           ("bus-1", 30, {"type": "stop"}), ("bus-2", 40, {"type": "stop"})],
    },
    "Anti join": {
        "orders": [("o-1", 10, {}), ("o-2", 20, {}), ("o-3", 30, {})],
        "payments": [("o-1", 500, {}), ("o-2", 900, {})],
    },
    "Chain two joins": {
        "impressions": [("u-1", 10, {})],
        "clicks": [("u-1", 20, {}), ("u-2", 25, {})],
        "purchases": [("u-1", 30, {}), ("u-2", 40, {}), ("u-3", 50, {})],
    },
}  # fmt: skip
EXPECTED: dict[str, list[tuple[str, int, int | None]]] = {
    "Self join": [("card-1", 10, None), ("card-1", 70, 10), ("card-1", 90, 70), ("card-2", 80, None)],
    "Two kinds of events in one topic": [("bus-1", 30, 10), ("bus-2", 40, None)],
    "Anti join": [("o-2", 20, None), ("o-3", 30, None)],
    "Chain two joins": [("u-1", 30, 20), ("u-2", 40, 25), ("u-3", 50, None)],
}
"""Of each row of the last job: key, left's seconds, right's."""


@pytest.fixture
def as_tried(kafka: dict[str, str], topic_factory: TopicFactory, tmp_path: Path) -> Callable[[str], dict[str, Any]]:
    """`as_tried(text)`: a job file of the page, over topics of this test."""
    made: dict[str, str] = {}

    def job(text: str) -> dict[str, Any]:
        content: dict[str, Any] = yaml.safe_load(text)
        for part in (content["left"], content["right"], content["output"]):
            named = part["topic"]
            made[named] = part["topic"] = made.get(named) or topic_factory(2, prefix=named)
        name = content["name"]
        return content | {
            "name": content["output"]["topic"],
            "kafka": kafka,
            "checkpoint": str(tmp_path / name),
            "window_folder": str(tmp_path / f"{name}-windows"),
            "trigger": "available_now",
            "spark": {"master": "local[2]"},
        }

    return job


def test_every_recipe_is_run() -> None:
    """A new one needs its records and rows here."""
    assert set(RECIPES) == {*GIVEN, DEBEZIUM}
    assert set(GIVEN) == set(EXPECTED)


@pytest.mark.parametrize("name", GIVEN)
def test_a_recipe_gives_the_rows_of_its_table(
    name: str, kafka: dict[str, str], as_tried: Callable[[str], dict[str, Any]], here: JobsHere
) -> None:
    """In the order of the page, each job to its end."""
    texts = re.findall(r"```yaml\n(.*?)```", RECIPES[name], re.DOTALL)
    original = [yaml.safe_load(text) for text in texts]
    jobs = [as_tried(text) for text in texts]
    topics = {
        before[side]["topic"]: job[side]["topic"]
        for before, job in zip(original, jobs, strict=True)
        for side in ("left", "right")
    }
    writer = TopicWriter(kafka)
    for topic, given in GIVEN[name].items():
        writer.write(
            topics[topic],
            [key.encode() for key, _, _ in given],
            [json.dumps(value).encode() for _, _, value in given],
            timestamps=[T + at * 1_000 for _, at, _ in given],
        )
    writer.flush()
    writer.close()

    assert [here.run(job).code for job in jobs] == [ExitCode.DONE] * len(jobs)

    rows = [json.loads(record["value"]) for record in records(kafka, jobs[-1]["output"]["topic"])]
    assert sorted((row["key"], seconds(row["left"]), seconds(row["right"])) for row in rows) == EXPECTED[name]


def seconds(side: dict[str, Any] | None) -> int | None:
    return None if side is None else (side["time"] - T) // 1_000


DEBEZIUM = "Debezium with deletes"
TABLE = (Path(__file__).parents[1] / "docs" / "table.md").read_text(encoding="utf-8")


def change(id: int, at: int, op: str, tier: str | None) -> Put:
    """A message of Debezium: the row before it is left out."""
    after = None if tier is None else {"id": id, "tier": tier}
    value = {"op": op, "before": None, "after": after, "source": {"ts_ms": T + at * 1_000}}
    return Put(0, b'{"id": %d}' % id, T + at * 1_000 + 213, json.dumps(value).encode())


CUSTOMERS = [
    change(7, 0, "r", "basic"),
    change(8, 0, "r", "basic"),
    change(7, 600, "u", "gold"),
    change(8, 1_200, "d", None),
    Put(0, b'{"id": 8}', T + 1_200_214, None),
    change(8, 1_800, "c", "gold"),
]
ORDERS = {
    (7, 300): ("basic", None),
    (7, 900): ("gold", None),
    (8, 900): ("basic", None),
    (8, 1_500): (None, "deleted"),
    (8, 2_100): ("gold", None),
    (9, 900): (None, "no_candidate"),
}
"""By customer and seconds: the tier in its row, or why there is none."""


@pytest.mark.slow
def test_orders_have_the_customer_of_their_time(
    kafka: dict[str, str], topic_factory: TopicFactory, tmp_path: Path
) -> None:
    """With the files of the recipe and of the page of tables, each part a process."""
    pages = {
        name: yaml.safe_load(text)
        for name, text in re.findall(r"```yaml\n# (\w+)\.yaml\n(.*?)```", TABLE + RECIPES[DEBEZIUM], re.DOTALL)
    }
    customers = topic_factory(1, {"cleanup.policy": "compact"}, prefix="customers")
    orders, joined = topic_factory(1, prefix="orders"), topic_factory(1, prefix="joined")
    name = f"feeder-{customers}"
    plan = LookupPlan(name=joined, kafka=kafka, left=orders, right=customers, joined=joined, before_ms=1,
                      collected_every_s=600.0)  # fmt: skip
    with LookupParts(tmp_path, plan) as parts:
        ours = {part: yaml.safe_load(parts.file(part).read_text()) for part in (STORAGE, FEEDER, LOOKUP, "collector")}
        store = ours["collector"]["consumers"][0]["store"]["token"]
        shared = {"kafka": kafka, "trigger": "available_now"}
        parts_of = {
            STORAGE: ours[STORAGE] | {"namespaces": pages["storage"]["namespaces"]},
            FEEDER: ours[FEEDER] | pages["feeder"] | shared | {"name": name},
            LOOKUP: ours[LOOKUP] | pages["join"] | shared | {"name": joined, "output": {"topic": joined}},
            "collector": ours["collector"] | {"consumers": pages["collector"]["consumers"]},
        }
        for job in (FEEDER, LOOKUP):
            parts_of[job] |= {"checkpoint": ours[job]["checkpoint"]}
            parts_of[job]["right"] |= {"topic": customers}
            parts_of[job]["storage"] |= {key: ours[job]["storage"][key] for key in ("url", "token")}
        parts_of[LOOKUP]["left"] |= {"topic": orders}
        parts_of[LOOKUP]["delay"] = ours[LOOKUP]["delay"] | {"consumer": name}
        (consumer,) = parts_of["collector"]["consumers"]
        consumer |= {"consumer": name, "positions": {"from": "group", "group": name}}
        consumer["topics"][0]["topic"] = customers
        consumer["store"] = {"url": f"{parts.urls[STORAGE]}/v1/namespaces/customers", "token": store}
        for part, document in parts_of.items():
            parts.file(part).write_text(yaml.safe_dump(document))
        produce(kafka, customers, CUSTOMERS)
        lines = [{"customer": id, "at": T + at * 1_000} for id, at in ORDERS]
        produce(kafka, orders, [Put(0, None, wall_ms(), json.dumps(line).encode()) for line in lines])
        parts.start(STORAGE, DELAY, FEEDER)
        assert parts.ended(FEEDER, 120) == ExitCode.DONE
        assert parts.collect() == 0

        parts.start(LOOKUP)

        assert parts.ended(LOOKUP, 120) == ExitCode.DONE
    rows = [json.loads(record["value"]) for record in records(kafka, joined)]
    tiers = {
        (row["left"]["value"]["customer"], seconds(row["left"])): (
            row["right"] and row["right"]["value"]["after"]["tier"],
            row["reason"],
        )
        for row in rows
    }
    assert tiers == ORDERS
