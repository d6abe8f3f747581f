"""A lookup join with a table that changes: a feeder stores versions, by the rules of every back end."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
from hypothesis import strategies as st

from datadelay.watermark import UNKNOWN
from joins import Policy
from joins.lookup.batch import WANTED, StoredRight
from joins.lookup.right_items import from_items, to_items
from joins.read.parse import parse
from joins.rows.frames import RECORD
from joins.testing import oracle
from joins.testing.strategies import histories, tables
from teacup.base.times import UNLIMITED_MS
from teacup.storage.backends import entries
from teacup.storage.backends.namespaces import StoredNamespace
from teacup.storage.model import Item, Keep, Namespace, Status
from tests.support.making import join_spec
from tests.support.simulatedlookup import Simulated, lookup_spec

FOR_EVER_MS = 10**12


def table_spec(**changes):
    changes = {"before_ms": UNLIMITED_MS, "policy": Policy.LAST, "after_ms": 0, **changes}
    spec = lookup_spec(join_spec(), **changes)
    return replace(spec, right=replace(spec.right, tombstones="delete"))


class SimulatedTable(Simulated):
    """The store is a dict of entries; space: what it keeps."""

    def __init__(self, history, spec, retention_ms=FOR_EVER_MS, bound=1_000):
        self.space = Namespace("right", Keep.VERSIONS, bound, retention_ms)
        self.known = StoredNamespace.made(self.space, "store-1")
        self.kept = {}
        super().__init__(history, spec)

    def feed(self, most=2**60):
        """Store what is readable, backwards in each piece: the order does not matter."""
        now_ms, skew_ms = self.clock.now_ms, self.spec.max_future_skew_ms
        moment = self.known.moment(now_ms)
        for p, ends in self.right.ends().items():
            end = min(ends.stable, self.fed[p] + most)
            for batch in [self.right.fetch(p, self.fed[p], end)] if end > self.fed[p] else []:
                taken = parse("right", self.spec.right, batch, now_ms, skew_ms, UNKNOWN)
                taken = taken.records.with_columns(deleted=taken.deleted).filter(pl.col("key").is_not_null())
                late = pl.repeat(False, len(taken), dtype=pl.Boolean, eager=True)
                for row in reversed(
                    to_items(taken.drop("deleted"), late, self.space.retention_ms, taken["deleted"], now_ms).to_pylist()
                ):
                    item = Item(**row)
                    outcome, after = entries.admit(self.space, self.kept.get(item.key), item, moment)
                    assert outcome.status is Status.OK
                    self.kept[item.key] = self.kept.get(item.key) if after is None else after
            self.fed[p] = max(end, self.fed[p])
        self.known = self.known.beyond(moment)

    def _look_up(self, wanted):
        moment = self.known.moment(self.clock.now_ms)
        found = [
            (key, time, entries.read_result(self.space, key, self.kept.get(key), moment, time))
            for key, time in wanted.iter_rows()
        ]
        self.known = self.known.beyond(moment)
        items = [(*pair, item) for *pair, result in found for item in result.items]
        deleted = [tuple(pair) for *pair, item in items if not item.value]
        unknown = [tuple(pair) for *pair, result in found if result.status is Status.NO_LONGER_STORED]
        kept = {(item.version, item.tag): item for _, _, item in items if item.value}.values()
        right = from_items(
            pl.Series([item.key for item in kept], dtype=pl.Binary),
            pl.Series([item.version for item in kept], dtype=pl.Int64),
            pl.Series([item.tag for item in kept], dtype=pl.Binary),
            pl.Series([item.value for item in kept], dtype=pl.Binary),
            keyed=not self.spec.right.key_of.is_kafkas,
        ).drop("late")
        retained_from_ms = self.known.at(self.clock.now_ms).retained_from
        return StoredRight(
            right if kept else pl.DataFrame(schema=RECORD),
            retained_from_ms,
            False,
            pl.DataFrame(deleted, schema=WANTED.schema, orient="row"),
            pl.DataFrame(unknown, schema=WANTED.schema, orient="row"),
        )


@st.composite
def tables_with_history(draw):
    spec = draw(tables())
    return spec, draw(histories(spec))


def play(run, steps):
    for name, *values in steps:
        (run.clock.advance if name == "advance" else getattr(run, name))(*values)
    return run.drain()


def check_rows(join, steps):
    """The rows are those of brute force over all versions, whatever happens in these steps."""
    spec, history = join

    assert play(SimulatedTable(history, spec), steps) == oracle.join(history, spec)
