"""A simulated join with what it wrote as Kafka would hold it, and an audit of that without a broker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from deploy.inspection.audit.plan_history import plan_history_of
from deploy.inspection.audit.records import SHIFT, SideTable
from deploy.inspection.audit.shown_late import ShownLate
from deploy.inspection.audit.verify.compare import Verification, compare
from deploy.inspection.audit.verify.database import AuditTables
from deploy.inspection.audit.verify.scope import AuditScope, LeftSpan, RightSpan, VersionsKnown
from deploy.inspection.audit.written import TABLES, alone_as_copies, copies_of, rows_of
from deploy.jobfile.job import Output
from deploy.output.accounts import Accounts
from deploy.output.routing import SideTopics, outgoing_results
from joins.batch.state import BatchPlan
from joins.outcome import SIDE_TOPICS
from joins.rows.frames import ROW, rows_where
from joins.rows.outgoing import Outgoing
from joins.spec import JoinSpec, JoinType, Policy
from joins.testing.history import History
from joins.testing.simulation import Simulation
from teacup.kafka.delivery.provenance import BatchTag
from teacup.kafka.read.fetch import SCHEMA
from tests.support.making import join_spec, topic
from tests.support.simulatedlookup import Simulated
from tests.support.simulatedtable import SimulatedTable

OUTPUT = Output(topic="out", late="late", unmatched="unmatched", unjoined="unjoined", dead_letter="dead_letter")
TAG = BatchTag.of("job", "generation", 1)
Record = dict[str, Any]
EARLIEST, LATEST = 0, 1 << 60


@dataclass
class Written:
    """What is in each topic, by role; `rows` is the output. Records are in the schema of a fetch."""

    topics: dict[str, list[Record]] = field(default_factory=dict)

    def add(self, role: str, out: Outgoing) -> int:
        """Appends records to a topic."""
        of = self.topics.setdefault(role, [])
        for key, value, headers, time in zip(
            out.keys.to_list(), out.values.to_list(), out.headers.to_list(), out.times.to_list(), strict=True
        ):
            of.append(record(key, _bytes(value), [(name, _bytes(one)) for name, one in headers], time))
        return len(out)

    def batch(self, role: str) -> pa.RecordBatch | None:
        """A topic as it is fetched."""
        found = [{**one, "offset": at} for at, one in enumerate(self.topics.get(role, []))]
        return pa.RecordBatch.from_pylist(found, schema=SCHEMA) if found else None


def record(key: bytes | None, value: bytes | None, headers: Any, time: int | None) -> Record:
    return {
        "partition": 0,
        "timestamp": -1 if time is None else time,
        "timestamp_type": 1,
        "key": key,
        "value": value,
        "headers": headers,
    }


def _bytes(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


def write(written: Written, spec: JoinSpec, rows: pl.DataFrame) -> None:
    """Writes rows as a job does: each to its topics."""

    def copy(topic: str, out: Outgoing, what: Any) -> None:
        written.add(topic, out)

    side_topics = SideTopics(spec, OUTPUT, TAG, copy)
    main = rows["outcome"].is_in(spec.right.type.results).to_numpy()
    if main.any():
        results = rows_where(rows, main)
        out = outgoing_results(spec, OUTPUT, results, TAG)
        written.add("rows", out.where(results["outcome"].is_in(spec.right.type.outcomes).to_numpy()))
        alone = (results["outcome"] == "unmatched").to_numpy()
        if alone.any():
            written.add("unmatched", out.where(alone))
        late = results["late"].to_numpy() & Accounts("").receive(results)
        if late.any():
            side_topics.copy("left", "late", rows_where(results, late))
    if not main.all():
        side_topics.route(rows_where(rows, ~main))


class AuditedSimulation(Simulation):
    """Keeps its plans, and what it writes."""

    def __init__(self, *args: Any, **more: Any) -> None:
        self.plans: list[BatchPlan] = []
        self.frames: list[pl.DataFrame] = []
        self.written = Written()
        super().__init__(*args, **more)

    def carry_on(self, planned: Any) -> None:
        super().carry_on(planned)
        self.plans.append(self.state)

    def _record(self, rows: pl.DataFrame) -> None:
        super()._record(rows)
        self.frames.append(rows)
        write(self.written, self.spec, rows)

    def made_anew(self, rows: pl.DataFrame) -> list[Record]:
        """The records of other rows."""
        made = Written()
        made.add("rows", outgoing_results(self.spec, OUTPUT, rows, TAG))
        return made.topics["rows"]


class _AuditedOfStore(Simulated):
    """The same of a lookup join."""

    def __init__(self, history: Any, spec: Any, **kept: Any) -> None:
        self.plans: list[BatchPlan] = []
        self.frames: list[pl.DataFrame] = []
        self.written = Written()
        self._admits = False
        super().__init__(history, spec, **kept)
        left = {p: r.start for b in self.state.buckets.values() for p, r in b.left.items()}
        self.started_at = {"left": left, "right": dict.fromkeys(self.right.ends(), 0)}

    def side(self, name: str) -> Any:
        return self.left if name == "left" else self.right

    def admit(self, most: int | None = None) -> bool:
        self._admits = True
        found = super().admit(most)
        self._admits = False
        self.plans += [self.state] if found else []
        return bool(found)

    def join_batch(self) -> list[Any]:
        rows: list[Any] = super().join_batch()
        if self._admits and rows:
            self.frames.append(pl.DataFrame(rows, schema=ROW))
            write(self.written, self.spec, self.frames[-1])
        return rows

    made_anew = AuditedSimulation.made_anew


class AuditedLookup(_AuditedOfStore):
    """Of a stream."""


class AuditedTable(_AuditedOfStore, SimulatedTable):
    """Of a table that changes."""


@dataclass
class Audited:
    """Simulations of one spec, side by side in one audit: each has partitions and keys of its own.

    known   of how many of the last batches the plans are there; None: all
    """

    simulations: Sequence[Any]
    known: int | None = None
    changes: dict[str, Any] = field(default_factory=dict)

    def verdicts(self) -> Verification:
        with self.verified() as (_, _, found):
            return found

    @contextmanager
    def verified(self) -> Iterator[tuple[AuditTables, AuditScope, Verification]]:
        """The tables after the audit, what was compared, and the verdicts."""
        spec = self.simulations[0].spec
        tables: dict[str, list[pa.Table]] = {name: [schema.empty_table()] for name, schema in TABLES.items()}
        left: dict[int, LeftSpan] = {}
        right: dict[int, RightSpan] = {}
        for number, simulation in enumerate(self.simulations):
            self._add(simulation, number, tables, left, right)
        full = spec.right.type is JoinType.FULL
        scope = replace(
            AuditScope(
                join=spec.right,
                from_ms=EARLIEST,
                to_ms=LATEST,
                direct=spec.is_direct,
                versions=VersionsKnown() if spec.right.of_versions else None,
                one_topic=spec.one_topic,
                skips={name: spec.side(name).skips for name in ("left", "right") if spec.side(name).skips},
                topics={role: role for role in SIDE_TOPICS} | ({"unjoined": "output"} if full else {}),
                left=left,
                right=right,
            ),
            **self.changes,
        )
        with closing(duckdb.connect(config={"threads": 1})) as con:
            for name, found in tables.items():
                con.register(f"{name}_given", pa.concat_tables(found))
                con.execute(f"CREATE TABLE in_{name} AS SELECT * FROM {name}_given")
                con.execute(f"CREATE TABLE {name} AS " + (alone_as_copies(name) if full else f"FROM in_{name}"))
            db = AuditTables(con)
            yield db, scope, compare(db, scope, most=1_000)

    def _add(self, simulation: Any, number: int, tables: Any, left: Any, right: Any) -> None:
        spec, base = simulation.spec, APART * number
        plans = simulation.plans if self.known is None else simulation.plans[-self.known :] if self.known else []
        lookup = spec.right.source.is_stored
        history = plan_history_of(plans, simulation.between(), spec.right.after_ms, lookup=lookup)
        for name, table in (("left", "lefts"), ("right", "rights")):
            log = simulation.side(name)
            make = SideTable(name, spec.side(name), spec.max_future_skew_ms, simulation.clock.now_ms)
            for p, ends in log.ends().items():
                begins = simulation.started_at[name].get(p, 0)
                if name == "left":
                    left[base + p] = LeftSpan(0, ends.stable, history.done.get(p, 0), begins, 0, 0, ends.high)
                else:
                    expiry_ms = history.expiry_ms.get(p, -LATEST)
                    right[base + p] = RightSpan(0, ends.stable, begins, ends.stable, expiry_ms, 0, ends.high)
                shown = ShownLate(spec.outliers, spec.side(name).disorder_ms) if name == "right" else None
                batch = log.fetch(p, 0, ends.stable)
                half = batch.num_rows // 2
                tables[table] += [
                    moved(make.of(part, history.of(name, p), shown), number)
                    for part in (batch.slice(0, half), batch.slice(half))
                    if part.num_rows
                ]
        for role in ("rows", *SIDE_TOPICS):
            batch = simulation.written.batch(role)
            if batch is not None:
                made = rows_of(batch) if role == "rows" else copies_of(batch, role)
                tables["rows" if role == "rows" else "copies"].append(moved(made, number))


def moved(table: pa.Table, number: int) -> pa.Table:
    """The records of a simulation where no other one has any."""
    for name in ("pos", "lpos", "rpos", "other", "spot"):
        if name in table.schema.names:
            at = table.schema.get_field_index(name)
            table = table.set_column(at, name, pc.add(table.column(name), pa.scalar((APART * number) << SHIFT)))
    for name in ("kh", "okh"):
        if name in table.schema.names:
            at = table.schema.get_field_index(name)
            table = table.set_column(at, name, pc.bit_wise_xor(table.column(name), pa.scalar(number, pa.uint64())))
    return table


APART = 16
"""Partitions between two simulations."""


def joined(policy=Policy.NEAREST, **changes):
    """A join of 24 left records with as many right ones; some have no match."""
    left = topic("left", [(100 + 10 * i, b"%d" % (i % 3)) for i in range(24)])
    right = topic("right", [(101 + 10 * i, b"%d" % (i % 4)) for i in range(24)])
    simulation = AuditedSimulation(History(left, right, 400), join_spec(policy=policy, **changes))
    simulation.drain()
    return simulation
