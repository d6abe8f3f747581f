"""Audits of joins of each type: clean as they are, and each planted fault is named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl
import pytest

from deploy.inspection.audit.findings import ALTERED, DOUBLED, FOREIGN, MISSING, WRONG_OUTCOME
from joins.spec import JoinType, Policy
from tests.support.audited import Audited, AuditedSimulation, joined
from tests.support.provenance import header

Topic = list[dict[str, Any]]


def drop(rows: Topic, _: AuditedSimulation) -> None:
    del rows[2]


def double(rows: Topic, _: AuditedSimulation) -> None:
    rows.append(dict(rows[2]))


def alter(rows: Topic, _: AuditedSimulation) -> None:
    rows[2]["value"] = rows[2]["value"].replace(b'"time":1', b'"time":2', 1)


def name_another_left(rows: Topic, _: AuditedSimulation) -> None:
    rows[2]["headers"] = [header("0:5000"), *rows[2]["headers"][1:]]


def write_what_is_left_out(rows: Topic, simulation: AuditedSimulation) -> None:
    made = pl.concat(simulation.frames)
    rows += simulation.made_anew(made.filter(made["outcome"].is_in(simulation.spec.right.type.left_out))[:1])


def hide_a_match(rows: Topic, simulation: AuditedSimulation) -> None:
    """What a window that lost its records would lead to."""
    made = pl.concat(simulation.frames)
    matched = made.filter(made["outcome"] == "matched")[:1]
    rights = [pl.lit(None, dtype).alias(name) for name, dtype in made.schema.items() if name.startswith("right_")]
    (alone,) = simulation.made_anew(
        matched.with_columns(*rights, outcome=pl.lit("unmatched"), reason=pl.lit("no_candidate"))
    )
    left = alone["headers"][0][1].split()[0]
    rows[next(at for at, row in enumerate(rows) if row["headers"][0][1].split()[0] == left)] = alone


FAULTS = {
    drop: {MISSING},
    double: {DOUBLED},
    alter: {ALTERED},
    name_another_left: {FOREIGN, MISSING},
    write_what_is_left_out: {WRONG_OUTCOME},
    hide_a_match: {WRONG_OUTCOME},
}
NOT_OF = {JoinType.LEFT: write_what_is_left_out, JoinType.FULL: write_what_is_left_out, JoinType.ANTI: hide_a_match}


@pytest.mark.parametrize("known", [None, 0])
@pytest.mark.parametrize(
    ("kind", "fault"),
    [(kind, fault) for kind in JoinType for fault in FAULTS if fault is not NOT_OF.get(kind)],
)
def test_faults_of_each_type_are_named(fault: Callable[..., None], kind: JoinType, known: int | None) -> None:
    """With the plans of batches and without; nothing is found before.

    Of `full`, a right record whose match is hidden lacks a row of its own.
    """
    simulation = joined(Policy.NEAREST, type=kind)
    assert not Audited([simulation], known).verdicts().counts

    fault(simulation.written.topics["rows"], simulation)
    found = Audited([simulation], known).verdicts()

    lacks_its_own = {MISSING} if (kind, fault) == (JoinType.FULL, hide_a_match) else set()
    assert {of.kind for of in found.faults if of.topic == "output"} == FAULTS[fault] | lacks_its_own


def of_right(rows: Topic) -> int:
    return next(at for at, row in enumerate(rows) if row["headers"][0][1].split()[1] == b"-")


def drop_right(rows: Topic, _: AuditedSimulation) -> None:
    del rows[of_right(rows)]


def double_right(rows: Topic, _: AuditedSimulation) -> None:
    rows.append(dict(rows[of_right(rows)]))


def alter_right(rows: Topic, _: AuditedSimulation) -> None:
    row = rows[of_right(rows)]
    row["value"] = row["value"].replace(b'"time":1', b'"time":2', 1)


def name_another_right(rows: Topic, _: AuditedSimulation) -> None:
    row = rows[of_right(rows)]
    row["headers"] = [header(right="0:5000"), *row["headers"][1:]]


def write_a_joined_one(rows: Topic, simulation: AuditedSimulation) -> None:
    """What marks that are lost would lead to."""
    made = pl.concat(simulation.frames)
    joined_one = made.filter(made["outcome"] == "matched")[:1]
    alone = made.filter(made["outcome"] == "unjoined")[:1]
    names = [name for name in made.columns if name.startswith("right_") or name == "key"]
    rows += simulation.made_anew(alone.with_columns(joined_one[name] for name in names))


FAULTS_OF_RIGHT = {
    drop_right: {MISSING},
    double_right: {DOUBLED},
    alter_right: {ALTERED},
    name_another_right: {FOREIGN, MISSING},
    write_a_joined_one: {WRONG_OUTCOME},
}


@pytest.mark.parametrize("known", [None, 0])
@pytest.mark.parametrize("fault", FAULTS_OF_RIGHT)
def test_faults_in_rows_of_right_alone_are_named(fault: Callable[..., None], known: int | None) -> None:
    simulation = joined(Policy.NEAREST, type=JoinType.FULL)
    assert any(row["headers"][0][1].split()[1] == b"-" for row in simulation.written.topics["rows"])

    fault(simulation.written.topics["rows"], simulation)
    found = Audited([simulation], known).verdicts()

    assert {of.kind for of in found.faults if of.topic == "output"} == FAULTS_OF_RIGHT[fault], found.faults
