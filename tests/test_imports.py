"""What is slow to import is imported by those who need it: Spark starts several processes per query of the library."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.packages import ROOT

SLOW = {"pydantic", "polars", "pyarrow.parquet", "pyspark"}


@pytest.mark.parametrize(
    ("module", "needs"),
    [
        ("joins", set()),
        ("joins.plan.source", {"polars", "pyspark"}),
        ("teacup.spark.stream_reader", {"pyspark"}),
        ("dedup.topic.source", {"pyspark"}),
        ("datadelay.offsets", set()),
        ("datadelay.collector.run", {"pydantic"}),
    ],
)
def test_a_module_loads_nothing_slow_that_it_does_not_need(module: str, needs: set[str]) -> None:
    """The user's program, the library's planner, one that asks for a schema, the search, the collector."""
    code = f"import sys, {module}; print(*({SLOW!r} & set(sys.modules)))"

    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)

    assert set(done.stdout.split()) <= needs
