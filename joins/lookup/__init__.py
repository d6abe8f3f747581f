"""The join through external storage: a feeder stores right; left waits until right is stored, and is looked up.

feed/           the feeder
unjoined/       right records that no left record has matched, found from the output of a lookup join
batch.py        one batch of one bucket of left
frame.py        any DataFrame, batch or streaming, looked up batch by batch
key_lookup.py   looking up keys
right_items.py  right records as items of the storage API, and back, whole columns at a time (pure)
source.py       the Spark edge of the gate
spec.py         what a lookup join is (pure)
stage.py        what a task does with a ticket

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
