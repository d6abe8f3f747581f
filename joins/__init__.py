"""Joins of two Kafka streams: every left record is written exactly once, with its right record or with nothing.

admission/       plans what each batch may read (SyncBolt)
feed/            the feeder
lookup/          the join through external storage
rows/            records and rows as Arrow and polars frames
shuffle/         the shuffled path of the in-memory join: any two topics
testing/         property-test a join of two topics without a broker
unjoined/        right records that no left record has matched, found from the output of a lookup join
window/          the in-memory join (JoinBolt)
apiaddresses.py  where the two APIs are that feeders and lookup joins call (pure)
apiclients.py    the clients of the two APIs that feeders and lookup joins call, as their specs say
apirefusal.py    the storage API refuses a job: which of its answers waiting does not help against
belonging.py     whether a checkpoint belongs to a job (pure)
decoded.py       the records of a side as a join reads them
durationargs.py  durations that a program may write as a job file does: `before="10m"` (pure)
errors.py        what a join refuses, or gives up (pure)
flavour.py       the flavours of the join as values
itemrows.py      items as rows of a Spark DataFrame, and back (pure)
items.py         what the stages of a task pass to each other (pure)
pathchoice.py    which path a join takes, and into how many buckets
sides.py         what exists for both sides of a join (pure)
spec.py          what a join is (pure)
streaming.py     the two joins as streaming DataFrames

Public: `joins.DataLoss`, `joins.DelayAt`, `joins.Format`, `joins.JoinError`, `joins.JoinSpec`, `joins.LookupSpec`,
`joins.NotCoPartitioned`, `joins.Policy`, `joins.Side`, `joins.SpecChanged`, `joins.SpecError`, `joins.StorageAt`,
`joins.lookup`, `joins.lookup_join`, `joins.window_join`, `joins.errors`, `joins.testing`; the rest is internal.

A spec takes what a job file takes, and each duration also as a number: these two are the same join.

    JoinSpec(name="clicks", left=Side(topic="clicks"), right=Side(topic="views"), before="10m", after="30s")
    JoinSpec(name="clicks", left=Side(topic="clicks"), right=Side(topic="views"), before_ms=600_000, after_ms=30_000)

Modules that need Spark or Arrow are imported on first use: the processes in which Spark plans a query import this
package too, one after the other, and each would otherwise take half a second longer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from joins.errors import DataLoss, JoinError, NotCoPartitioned, SpecChanged, SpecError
from joins.spec import Format, JoinSpec, Policy, Side
from kafkaio.onfirstuse import on_first_use

if TYPE_CHECKING:
    from joins.apiaddresses import DelayAt
    from joins.lookup.spec import LookupSpec, StorageAt
    from joins.streaming import lookup_join, window_join

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
        "DelayAt": "joins.apiaddresses",
        "LookupSpec": "joins.lookup.spec",
        "StorageAt": "joins.lookup.spec",
        "lookup": "joins.lookup",  # a package that can be called
        "lookup_join": "joins.streaming",
        "window_join": "joins.streaming",
    },
)
