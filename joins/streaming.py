"""The two joins as streaming DataFrames."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from joins.lookup.spec import LookupSpec
    from joins.spec import JoinSpec


def window_join(
    spark: SparkSession,
    spec: JoinSpec,
    *,
    unjoined: bool = False,
    windows: Path | None = None,
    window_backup: str | None = None,
) -> DataFrame:
    """The in-memory join, one row per result (`joins.rows.records.ROW`):

    key                                     binary, the join key; null where left has none
    left_key, right_key                     binary, the records' own keys
    left_time, right_time                   bigint, event time in milliseconds UTC
    left_value, right_value                 binary
    left_headers, right_headers             array<struct<key string, value binary>>
    left_partition, left_offset, right_…    int, bigint: the positions, which are the id of a result
    outcome                                 matched | unmatched | dead_letter, with `unjoined=True` also unjoined
    reason                                  why unmatched, unjoined or dead_letter; null for matched
    late                                    the record came later than its disorder allows

    windows        the folder on each machine where slices are kept; None: a folder of the user's in the temporary
                   folder
    window_backup  a folder or URL that all machines reach, of this query only: slices are copied to it, and fetched
                   from it by a machine that lacks them; None: such a machine reads Kafka

    Every left record gets exactly one outcome. Give the query a checkpoint location of its own: it holds the
    positions and the spec. The caller writes the rows, with the guarantees of the Spark sink that is used.
    """
    from joins.admission.control import JoinControl
    from joins.flavour import result_frame
    from joins.pathchoice import with_path

    joined = result_frame(
        spark, with_path(spec), JoinControl(windows=windows, copied=window_backup is not None), windows, window_backup
    )
    hidden = ["late", *(() if unjoined else ("unjoined",))]
    return joined.where(~joined.outcome.isin(hidden))


def lookup_join(spark: SparkSession, spec: LookupSpec) -> DataFrame:
    """The lookup join: the columns of `window_join`, one row per result.

    outcome is matched, unmatched (reason no_candidate, null_key, right_stalled or no_longer_stored) or dead_letter.
    Every left record gets exactly one outcome, once every right record that it may match is known to be stored.
    Give the query a checkpoint location of its own.
    """
    from joins.flavour import result_frame

    return result_frame(spark, spec)
