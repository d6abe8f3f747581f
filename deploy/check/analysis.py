"""What Spark says of a job's `output.select` before the job runs.

Spark's own analyser reads the expressions: the columns, functions and types are those of the job, with its properties
and jars. It needs a JVM on this machine, which takes some seconds and serves all jobs of a call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import polars as pl

from deploy.jobfile.job import CommonJob, JoinJob
from deploy.output.select import PARTS, SelectRefused, empty_rows, flattened, selected_rows
from joins.fields import SchemaRefused
from joins.items import row_table
from joins.rows.frames import MISMATCH, ROW
from joins.spec import REGISTRY
from teacup.kafka.errors import KafkaIOError
from teacup.spark.analysis import analyse_quietly
from teacup.spark.errors import SparkError
from teacup.spark.java import check_java
from teacup.spark.session import Session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class NotAnalysed(Exception):
    """Nothing is known of the expressions; the message says so, and why."""

    def __init__(self, why: str) -> None:
        super().__init__(f"output.select: not analysed, so an expression in it may be wrong: {why}")


class Analyser:
    """Spark on this machine, started once a job needs it. Used as a context, which ends it."""

    def __init__(self) -> None:
        self._session: Session | None = None

    def __enter__(self) -> Analyser:
        return self

    def __exit__(self, *_: object) -> None:
        if self._session is not None:
            self._session.close()

    def refuses(self, job: CommonJob, *, connect: bool) -> tuple[str, ...]:
        """Returns what is wrong with the job's expressions, a line each.

        Raises `NotAnalysed` without Spark, or if the schema registry has to be asked: without `connect`, or in vain.
        """
        if not isinstance(job, JoinJob) or job.output.select is None:
            return ()
        asks = [name for name in job.spec.typed if job.spec.side(name).value_schema == REGISTRY]
        if asks and not connect:
            raise NotAnalysed(f"{asks[0]}.schema is the registry's, which --connect asks")
        try:
            selected_rows(empty_rows(self._spark(job)), job)
        except (SelectRefused, SchemaRefused) as refused:
            return refused.problems
        except (SparkError, KafkaIOError) as error:
            raise NotAnalysed(str(error)) from error
        return ()

    def selected(self, job: JoinJob, rows: Sequence[dict[str, Any]]) -> pl.DataFrame:
        """Returns rows (`joins.rows.frames.ROW`) with `out_key`, `out_value`, `out_headers`, what has `failed`, and
        `misfits`: the schemas of which the row's values are not.
        """
        frame = self._spark(job).createDataFrame(row_table(pl.DataFrame(rows, schema=ROW)))
        made = pl.DataFrame(pl.from_arrow(selected_rows(frame, job).toArrow()))
        sides = [pl.when(f"{side}{MISMATCH}").then(pl.lit(f"{side}.schema")) for side in job.spec.typed]
        misfits = pl.concat_str(sides, separator=" and ", ignore_nulls=True) if sides else pl.lit("")
        return flattened(made, job.spec).select(*(f"out_{part}" for part in PARTS), "failed", misfits=misfits)

    def _spark(self, job: CommonJob) -> SparkSession:
        if self._session is None:
            check_java()
            own = {key: value for key, value in job.spark.items() if key not in ("master", "spark.master")}
            self._session = Session("teacup check", {**own, "master": "local[1]"}, rows_in_jvm=False)
            analyse_quietly()
        return self._session.spark
