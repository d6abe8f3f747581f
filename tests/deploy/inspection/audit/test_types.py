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


FAULTS = {
    drop: {MISSING},
    double: {DOUBLED},
    alter: {ALTERED},
    name_another_left: {FOREIGN, MISSING},
    write_what_is_left_out: {WRONG_OUTCOME},
}


@pytest.mark.parametrize("known", [None, 0])
@pytest.mark.parametrize(
    ("kind", "fault"),
    [
        (kind, fault)
        for kind in JoinType
        if kind is not JoinType.FULL
        for fault in FAULTS
        if kind.left_out or fault is not write_what_is_left_out
    ],
)
def test_faults_of_each_type_are_named(fault: Callable[..., None], kind: JoinType, known: int | None) -> None:
    """With the plans of batches and without; nothing is found before."""
    simulation = joined(Policy.NEAREST, type=kind)
    assert not Audited([simulation], known).verdicts().counts

    fault(simulation.written.topics["rows"], simulation)
    found = Audited([simulation], known).verdicts()

    assert {of.kind for of in found.faults if of.topic == "output"} == FAULTS[fault]
