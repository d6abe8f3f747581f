"""The page for those who know another engine: its job files are valid, its expressions and its Spark program run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from pyspark.sql import functions as F

from deploy.jobfile.job import JoinJob
from deploy.jobfile.load import load_job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = (Path(__file__).parents[1] / "docs" / "from-other-engines.md").read_text(encoding="utf-8")
FILES = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)


def selects() -> list[str]:
    return [yaml.safe_load(file)["output"]["select"]["value"] for file in FILES if "select:" in file]


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
def test_what_the_files_select_is_the_row_of_the_other_engine(spark: SparkSession, number: int, expected: str) -> None:
    """With values as the code beside it has them."""
    values = [(b"a", b"b"), (b'{"page": "p"}', b'{"campaign": "c"}')][number]
    row = spark.createDataFrame([(b"x", *values)], "key binary, left_value binary, right_value binary")

    (found,) = row.select(F.expr(selects()[number])).collect()

    assert found[0] == expected


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
