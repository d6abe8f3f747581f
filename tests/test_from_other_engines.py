"""The page for those who know another engine: its job files are valid, its expressions and its Spark program run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest
from pyspark.sql import functions as F

from deploy.jobfile.job import JoinJob
from deploy.jobfile.load import load_job
from deploy.output.select import selected_rows
from joins.items import row_table
from joins.rows.frames import ROW

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = (Path(__file__).parents[1] / "docs" / "from-other-engines.md").read_text(encoding="utf-8")
FILES = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("number", range(3))
def test_each_job_file_is_the_join_beside_it(number: int, tmp_path: Path) -> None:
    """Ten minutes back, five seconds of disorder, and every pair, as the others write them."""
    file = tmp_path / "job.yaml"
    file.write_text(FILES[number])

    job = load_job(file, {})

    assert len(FILES) == 3
    assert isinstance(job, JoinJob)
    assert (job.spec.right.before_ms, job.spec.left.disorder_ms, job.spec.right.policy) == (600_000, 5_000, "all")


@pytest.mark.parametrize(("number", "expected"), [(0, "a,b"), (1, '{"ad":"x","page":"p","campaign":"c"}')])
def test_what_the_files_select_is_the_row_of_the_other_engine(
    spark: SparkSession, number: int, expected: str, tmp_path: Path
) -> None:
    """With values as the code beside it has them."""
    file = tmp_path / "job.yaml"
    file.write_text(FILES[number])
    job = load_job(file, {})
    assert isinstance(job, JoinJob)
    left, right = [(b"a", b"b"), (b'{"page": "p"}', b'{"campaign": "c"}')][number]
    row = dict.fromkeys(ROW) | {"key": b"x", "left_value": left, "right_value": right, "outcome": "matched"}
    frame = spark.createDataFrame(row_table(pl.DataFrame([row], schema=ROW)))

    (found,) = selected_rows(frame, job).collect()

    assert (bytes(found.out_key.v), bytes(found.out_value.v).decode()) == (b"x", expected)


def test_the_spark_program_is_a_stream(spark: SparkSession) -> None:
    """Spark accepts the join: its condition bounds the state."""
    (program,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    rate = spark.readStream.format("rate").load()
    names = {
        "F": F,
        "clicks": rate.selectExpr("timestamp AS click_at", "value AS click_ad"),
        "impressions": rate.selectExpr("timestamp AS shown_at", "value AS shown_ad"),
    }

    exec(program, names)

    assert names["joined"].isStreaming
