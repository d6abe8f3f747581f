"""What retention and compaction have deleted since: no fault, and no excuse for the rest."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from msgspec import structs

from deploy.inspection.audit.findings import ALTERED, DOUBLED, MISSING, WRONG_RIGHT
from deploy.inspection.audit.plan_history import BEFORE, UNREAD, plan_history_of
from deploy.inspection.audit.verify.scope import RightSpan
from tests.support.audited import Audited, joined
from tests.support.provenance import header


class WithoutRight(Audited):
    """Right records before this offset are gone; `compacted`: it was one of several that are."""

    first = 12

    def _add(self, simulation, number, tables, left, right):
        super()._add(simulation, number, tables, left, right)
        for p, span in [*right.items()]:
            right[p] = RightSpan(self.first, span.end, 0, span.done, span.expiry_ms, self.first, span.log_end)
        tables["rights"] = [table.filter(_offsets(table, self.first)) for table in tables["rights"]]


def _offsets(table, first):
    return pa.array([(pos & (1 << 44) - 1) >= first for pos in table["pos"].to_pylist()], pa.bool_())


def matched_with(rows, gone):
    """The numbers of the rows whose right record is gone, or is not."""
    rights = [dict(row["headers"])["teacup"].decode().split()[2] for row in rows]
    return [
        at
        for at, right in enumerate(rights)
        if right != "-" and (int(right.split(":")[1]) < WithoutRight.first) == gone
    ]


def test_a_row_whose_right_record_is_gone_counts_as_allowed():
    simulation = joined()
    gone = matched_with(simulation.written.topics["rows"], gone=True)

    found = WithoutRight([simulation]).verdicts()

    assert (found.counts, found.allowed, found.unread) == ({}, len(gone), len(gone))
    assert len(gone) > 2


def test_faults_beside_what_is_gone_are_found():
    """A row too many, and a right record that there is and that is not the nearest."""
    simulation = joined()
    rows = simulation.written.topics["rows"]
    rows.append(dict(rows[matched_with(rows, gone=True)[0]]))
    at = matched_with(rows, gone=False)[0]
    _, left, _, batch = dict(rows[at]["headers"])["teacup"].decode().split()
    rows[at] = {**rows[at], "headers": [header(left, "0:23", batch), *rows[at]["headers"][1:]]}

    found = WithoutRight([simulation]).verdicts()

    assert {fault.kind for fault in found.faults if fault.topic == "output"} == {DOUBLED, WRONG_RIGHT, ALTERED}


def test_left_records_of_before_a_move_are_of_no_known_batch():
    """Those before the first batch of all are of none."""
    simulation = joined()
    plans = [replace(plan, buckets=_from(plan.buckets, 3)) for plan in simulation.plans[:1]]

    for moved, number in ((False, UNREAD), (True, BEFORE)):
        history = plan_history_of(plans, simulation.between(), 0, moved=moved)
        assert history.of("left", 0).at(np.arange(4))["number"].tolist() == [number] * 3 + [1]


def _from(buckets, offset):
    return {
        n: structs.replace(b, left={p: structs.replace(r, start=offset) for p, r in b.left.items()})
        for n, b in buckets.items()
    }


@pytest.mark.parametrize("complete", [True, False])
def test_rows_are_not_missed_where_the_output_has_lost_some(complete):
    """Nor are unjoined records, which depend on them. What is there is compared as ever."""
    simulation = joined()
    rows = simulation.written.topics["rows"]
    gone = matched_with(rows, gone=True)[0]
    rows[gone + 1]["key"] = b"another"
    del rows[gone]

    found = Audited([simulation], changes={"complete": {"output": complete}}).verdicts()

    assert {fault.kind for fault in found.faults if fault.topic == "output"} == {
        ALTERED,
        *([MISSING] if complete else []),
    }
    assert [fault.kind for fault in found.faults if fault.topic == "unjoined"] == ([MISSING] if complete else [])
