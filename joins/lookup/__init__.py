"""The join through external storage: a feeder stores right; left waits until right is stored, and is looked up.

batch.py      one batch of one bucket of left
frame.py      any DataFrame, batch or streaming, looked up batch by batch
gate.py       what left may rely on when a feeder stores right (pure)
keylookup.py  looking up keys
source.py     the Spark edge of the gate
spec.py       what a lookup join is (pure)
stage.py      what a task does with a ticket
start.py      where a lookup join starts (pure)

`joins.lookup(df, spec)` calls `frame.lookup`: function and package share a name, so the module itself is callable.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from joins.lookup.spec import LookupSpec


class _Lookup(ModuleType):
    def __call__(self, df: DataFrame, spec: LookupSpec, *, wait_at_most_s: float | None = None) -> DataFrame:
        """See `joins.lookup.frame.lookup`."""
        from joins.lookup.frame import lookup

        return lookup(df, spec, wait_at_most_s=wait_at_most_s)


sys.modules[__name__].__class__ = _Lookup
