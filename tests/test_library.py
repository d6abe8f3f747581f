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

import polars as pl
import pytest

from kafkaio.now import wall_ms
from tests.conftest import TopicFactory
from tests.support.sparkjoin import Put, produce
from tests.support.standalone import Standalone

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "library.md").read_text(encoding="utf-8")
CLUSTERS = [pytest.param(master, marks=pytest.mark.slow) for master in ("local-cluster[2,1,1024]", "standalone")]


@pytest.mark.parametrize("master", ["local[2]", *CLUSTERS])
def test_the_program_of_the_page(
    master: str, kafka: dict[str, str], topic_factory: TopicFactory, tmp_path: Path
) -> None:
    """Every left record once in each sink, with its match."""
    left, right = topic_factory(2, prefix="clicks"), topic_factory(2, prefix="impressions")
    at_ms = wall_ms() - 60_000
    produce(kafka, left, [Put(i % 2, b"%d" % (i % 6), at_ms + i, b'{"n": %d}' % i) for i in range(60)])
    produce(kafka, right, [Put(i % 2, b"%d" % i, at_ms - 1_000 + i, b"{}") for i in range(4)])
    (program,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    script = tmp_path / "program.py"
    script.write_text(program.replace('"clicks", format', f'"{left}", format').replace('"impressions"', f'"{right}"'))
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
    expected = {(i % 2, i // 2): "matched" if i % 6 < 4 else "unmatched" for i in range(60)}
    rows = pl.concat([pl.read_parquet(path) for path in (tmp_path / "rows").glob("*.parquet")])
    assert {(r["left_partition"], r["left_offset"]): r["outcome"] for r in rows.iter_rows(named=True)} == expected
    assert len(rows) == 60
    given = [json.loads(line) for path in (tmp_path / "batches").rglob("*.json") for line in path.open()]
    assert {(r["left_partition"], r["left_offset"]): r["outcome"] for r in given} == expected
    assert len(given) == 60
    assert Counter(re.findall(r"\| *(matched|unmatched)\|", done.stdout)).total() >= 20  # a console shows 20 of a batch
