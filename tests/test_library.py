"""The program of the library's page works on each kind of master: rows in files, by a function, on a console."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from teacup.base.now import wall_ms
from tests.conftest import TopicFactory
from tests.support.sparkjoin import Put, produce
from tests.support.standalone import Standalone

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "library.md").read_text(encoding="utf-8")
MASTERS = ("local[2]", "local-cluster[2,1,1024]", "standalone")
COUNT = 60
EXPECTED = {(i % 2, i // 2): "matched" if i % 6 < 4 else "unmatched" for i in range(COUNT)}


@pytest.fixture
def program(kafka: dict[str, str], topic_factory: TopicFactory) -> str:
    """The program of the page, on two topics with records in the last minute."""
    left, right = topic_factory(2, prefix="clicks"), topic_factory(2, prefix="impressions")
    at_ms = wall_ms() - 60_000
    produce(kafka, left, [Put(i % 2, b"%d" % (i % 6), at_ms + i, b'{"n": %d}' % i) for i in range(COUNT)])
    produce(kafka, right, [Put(i % 2, b"%d" % i, at_ms - 1_000 + i, b"{}") for i in range(4)])
    (found,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    return str(found.replace('"clicks", format', f'"{left}", format').replace('"impressions"', f'"{right}"'))


def check_files(folder: Path) -> None:
    """Every left record once in each of the two sinks that write files, with its match."""
    rows = pl.concat([pl.read_parquet(path) for path in (folder / "rows").glob("*.parquet")])
    given = [json.loads(line) for path in (folder / "batches").rglob("*.json") for line in path.open()]
    for found in (list(rows.iter_rows(named=True)), given):
        assert {(r["left_partition"], r["left_offset"]): r["outcome"] for r in found} == EXPECTED
        assert len(found) == COUNT


def test_the_program_of_the_page_gives_every_left_record_once(
    program: str, spark: Any, kafka: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the session that is there, which it must not stop."""
    assert "spark.stop()" in program
    monkeypatch.setattr(sys, "argv", ["program.py", "local[2]", kafka["bootstrap.servers"], str(tmp_path)])

    exec(program.replace("spark.stop()", ""), {"__name__": "__main__"})

    check_files(tmp_path)


def test_workers_of_another_python_are_refused_in_one_line(tmp_path: Path) -> None:
    """Before any broker is asked, and with what to set."""
    other = tmp_path / "python3"
    other.write_text("#!/bin/sh\nexit 1\n")
    other.chmod(0o755)
    program = (
        "from pyspark.sql import SparkSession\n"
        "from joins import JoinSpec, Right, Side, window_join\n"
        "spark = SparkSession.builder.master('local[1]').getOrCreate()\n"
        "spec = JoinSpec(name='x', left=Side(topic='a'), right=Right(topic='b', before='1s'))\n"
        "window_join(spark, spec)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    environment.pop("PYSPARK_PYTHON", None)

    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)

    assert done.stderr.splitlines()[-1] == (
        f"teacup.spark.errors.SessionRefused: Spark would start its workers with '{other}', which lacks teacup-joins: "
        'set os.environ["PYSPARK_PYTHON"] = sys.executable before the session starts'
    )


@pytest.mark.slow
@pytest.mark.parametrize("master", MASTERS)
def test_the_program_of_the_page_works_on_each_kind_of_master(
    master: str, program: str, kafka: dict[str, str], tmp_path: Path
) -> None:
    """As a process of its own; the first `python3` of PATH has none of our packages."""
    script = tmp_path / "program.py"
    script.write_text(program)
    other = tmp_path / "bin" / "python3"  # of the machine, as where no environment is activated
    other.parent.mkdir()
    other.write_text("#!/bin/sh\nexit 1\n")
    other.chmod(0o755)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
    environment["PATH"] = f"{other.parent}:{environment['PATH']}"
    environment.pop("PYSPARK_PYTHON", None)

    with ExitStack() as stack:
        url = stack.enter_context(Standalone(tmp_path)).url if master == "standalone" else master
        command = [sys.executable, str(script), url, kafka["bootstrap.servers"], str(tmp_path)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)

    assert done.returncode == 0, done.stderr[-4_000:]
    check_files(tmp_path)
    assert Counter(re.findall(r"\| *(matched|unmatched)\|", done.stdout)).total() >= 20  # a console shows 20 of a batch
