"""Each recipe's job files run on a broker, and give the rows of its table."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from teacup.base.errors import ExitCode
from teacup.base.now import wall_ms
from teacup.kafka.write.writer import TopicWriter
from tests.conftest import TopicFactory
from tests.support.jobhere import JobsHere, here
from tests.support.jobprocess import records

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
    assert set(RECIPES) == set(GIVEN) == set(EXPECTED)


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
