"""The environment is shipped to a cluster that knows nothing of Teacup: the commands of the page, from a wheel."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from teacup.base.errors import ExitCode
from tests.support.jobprocess import JobProcess, records
from tests.support.sparkjoin import Put, produce
from tests.support.standalone import Standalone

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("path", ["direct", "shuffled"])
def test_a_job_runs_on_machines_without_teacup(
    kafka: dict[str, str],
    window_job: Callable[..., dict[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
) -> None:
    """Driver from the environment, executors from its archive; no folder of this repository is on a path."""
    monkeypatch.chdir(tmp_path)
    for name in ("PYTHONPATH", "SPARK_HOME"):  # the latter is there if this process has had a Spark of its own
        monkeypatch.delenv(name, raising=False)
    job = window_job(2, spark={}, join={"before": "2s", "path": path})
    produce(kafka, job["left"]["topic"], [Put(i % 2, b"%d" % (i % 10), 1_000 * i, b"{}") for i in range(1, 101)])
    produce(kafka, job["right"]["topic"], [Put(i % 2, b"%d" % i, 1_000 * (i + 1), b"{}") for i in range(10)])
    pack, submit = re.findall(r"^```sh\n((?:(?!^```).)*environment/bin/.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    wheel = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(ROOT)]
    subprocess.run(wheel, check=True)
    (built,) = tmp_path.glob("teacup_joins-*.whl")
    subprocess.run(["sh", "-ec", pack.replace("teacup_joins-*.whl", str(built))], check=True)

    with Standalone(tmp_path) as cluster:
        script = submit.replace("spark://HOST:7077", f"{cluster.url} --conf spark.driver.host=127.0.0.1")
        process = JobProcess(tmp_path, job, ["sh", "-ec", script.replace("JOB.yaml", '"$0"')])
        code = process.ended()

    assert code == ExitCode.DONE, process.logged()
    assert len(records(kafka, job["output"]["topic"])) == 100
