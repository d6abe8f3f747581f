"""Whoever searches a topic by time searches as the planner does: each part opens the topic in the same way."""

from __future__ import annotations

import ast
from contextlib import closing

from joins.read.side_log import side_log
from joins.spec import JoinSpec, Right, Side
from tests.support.packages import modules, tree

OPENS_BY_TIME = {"joins.read.side_log", "datadelay.collector.run", "deploy.cli.offsets"}
"""Beside sides of joins: the collector's topics, and those of `teacup offsets`, which know no job."""


def opened_by_time() -> set[str]:
    """The modules that open a log and say where its times are."""
    return {
        name
        for name in modules()
        for node in ast.walk(tree(name))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "BrokerLog"
        and len(node.args) + len([given for given in node.keywords if given.arg != "tried_for_s"]) > 2
    }


def test_the_log_of_a_side_has_the_settings_of_its_spec(kafka: dict[str, str]) -> None:
    """How many records may lie is the job's setting, for whoever looks."""
    spec = JoinSpec(name="j", left=Side(topic="l"), right=Right(topic="r", before="1s"), outliers=0, kafka=kafka)

    with closing(side_log(spec, spec.right)) as log:
        assert (log.topic, log.outliers) == ("r", 0)


def test_sides_are_opened_in_one_place() -> None:
    """A second place would forget a setting, and find other records than the job."""
    assert opened_by_time() == OPENS_BY_TIME
