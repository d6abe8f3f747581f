"""JoinBolt: the in-memory join, with the window of right records that left may still match.

batch.py       one batch of one bucket
bolt.py        a worker's part (pure)
covering.py    what of the wanted ranges is covered by pieces that may overlap (pure)
match.py       which right records a left record is joined with
ranges.py      a partition's range of a batch, from the log to the records that may go
restore.py     bring a worker's window to its state before a batch (pure)
slicefiles.py  slices and marks as files, named by what they cover
slices.py      a slice (pure)
stage.py       what a task does with a ticket
window.py      JoinBolt (pure)
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from joins.admission.control import JoinControl
    from joins.spec import JoinSpec


def window_join(
    spark: SparkSession,
    spec: JoinSpec,
    *,
    unjoined: bool = False,
    control: JoinControl | None = None,
    windows: Path | None = None,
) -> DataFrame:
    """The join as a streaming DataFrame, one row per result (`joins.rows.records.ROW`):

    key                                     binary, the join key; null where left has none
    left_key, right_key                     binary, the records' own keys
    left_time, right_time                   bigint, event time in milliseconds UTC
    left_value, right_value                 binary
    left_headers, right_headers             array<struct<key string, value binary>>
    left_partition, left_offset, right_…    int, bigint: the positions, which are the id of a result
    outcome                                 matched | unmatched | dead_letter, with `unjoined=True` also unjoined
    reason                                  why unmatched, unjoined or dead_letter; null for matched
    late                                    the record came later than its disorder allows

    windows     the folder on each machine where slices are kept; None: a folder of the user's in the temporary folder

    Every left record gets exactly one outcome. Give the query a checkpoint location of its own: it holds the
    positions and the spec. The caller writes the rows, with the guarantees of the Spark sink that is used.
    """
    from joins.admission.control import JoinControl
    from joins.flavour import result_frame
    from joins.shuffle.choice import with_path

    joined = result_frame(spark, with_path(spec), replace(control or JoinControl(), windows=windows), windows)
    hidden = ["late", *(() if unjoined else ("unjoined",))]
    return joined.where(~joined.outcome.isin(hidden))
