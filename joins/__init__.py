"""Joins of two Kafka streams: every left record is written exactly once, with its right record or with nothing.

admission/       plans what each batch may read (SyncBolt)
feed/            the feeder
lookup/          the join through external storage
rows/            records and rows as Arrow and polars frames
shuffle/         the shuffled path of the in-memory join: any two topics
testing/         property-test a join of two topics without a broker
unjoined/        right records that no left record has matched, found from the output of a lookup join
window/          the in-memory join (JoinBolt)
apiclients.py    the clients of the two APIs that feeders and lookup joins call, as their specs say
belonging.py     whether a checkpoint belongs to a job (pure)
decoded.py       the records of a side as a join reads them
errors.py        what a join refuses, or gives up (pure)
flavour.py       the flavours of the join as values
itemrows.py      items as rows of a Spark DataFrame, and back (pure)
items.py         what the stages of a task pass to each other (pure)
sides.py         what exists for both sides of a join (pure)
spec.py          what a join is (pure)
storeaddress.py  where the storage API is that a feeder writes to and a lookup join reads from (pure)
summary.py       what the join has done with a bucket's batch (pure)

Public: `joins.DataLoss`, `joins.DelayAt`, `joins.Format`, `joins.JoinError`, `joins.JoinSpec`, `joins.LookupSpec`,
`joins.NotCoPartitioned`, `joins.Policy`, `joins.Side`, `joins.SpecChanged`, `joins.SpecError`, `joins.StorageAt`,
`joins.lookup`, `joins.lookup_join`, `joins.window_join`, `joins.errors`, `joins.testing`; the rest is internal.

Modules that need Spark or Arrow are imported on first use: the processes in which Spark plans a query import this
package too, one after the other, and each would otherwise take half a second longer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from joins.errors import DataLoss, JoinError, NotCoPartitioned, SpecChanged, SpecError
from joins.spec import Format, JoinSpec, Policy, Side
from kafkaio.onfirstuse import on_first_use

if TYPE_CHECKING:
    from joins.lookup import lookup_join
    from joins.lookup.spec import DelayAt, LookupSpec, StorageAt
    from joins.window import window_join

__all__ = [
    "DataLoss",
    "DelayAt",
    "Format",
    "JoinError",
    "JoinSpec",
    "LookupSpec",
    "NotCoPartitioned",
    "Policy",
    "Side",
    "SpecChanged",
    "SpecError",
    "StorageAt",
    "lookup",
    "lookup_join",
    "window_join",
]

__getattr__ = on_first_use(
    __name__,
    {
        "DelayAt": "joins.lookup.spec",
        "LookupSpec": "joins.lookup.spec",
        "StorageAt": "joins.lookup.spec",
        "lookup": "joins.lookup",  # a package that can be called
        "lookup_join": "joins.lookup",
        "window_join": "joins.window",
    },
)
