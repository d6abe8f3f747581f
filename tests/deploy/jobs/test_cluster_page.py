"""The page "On a Spark cluster", as written: a master that keeps what it knows, three workers, two jobs, S3."""

from __future__ import annotations

import re
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
import yaml

from teacup.base.errors import ExitCode
from tests.deploy.jobs.filling import START_MS, fill
from tests.deploy.jobs.processes import ready
from tests.support.jobprocess import JobProcess, records
from tests.support.s3_server import BUCKET, PAGE, s3_server
from tests.support.standalone import Standalone
from tests.support.waiting import wait_until

HOUR_MS = 3_600_000


def written(language: str, word: str) -> str:
    """The block of the page in which this stands."""
    (block,) = re.findall(rf"^```{language}\n((?:(?!^```).)*{word}.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    return str(block)


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_jobs_share_a_cluster_and_survive_its_master_and_a_machine(
    kafka: dict[str, str], window_job: Callable[..., dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has its share of the cores; the master is killed and started again, then a machine is lost."""
    (options,) = re.findall(r'SPARK_MASTER_OPTS="(.*)"', written("sh", "SPARK_MASTER_OPTS"))
    kept = options.replace("/var/lib/spark/master", str(tmp_path / "kept"))
    with s3_server(tmp_path) as s3, Standalone(tmp_path, machines=3, cores=1, options=kept) as cluster:
        for name, value in s3.environment().items():
            monkeypatch.setenv(name, value)
        given = yaml.safe_load(
            written("yaml", "spark.cores.max")
            .replace("spark://HOST:7077", cluster.url)
            .replace("s3a://BUCKET", f"s3a://{BUCKET}")
        )
        of_a_test = {"spark.driver.host": "127.0.0.1", "spark.executorEnv.AWS_ENDPOINT_URL": s3.url}
        jobs, processes = [], []
        for name in ("clicks", "views"):
            (folder := tmp_path / name).mkdir()
            own = {**given, "spark": {**given["spark"], **of_a_test}, "checkpoint": f"{given['checkpoint']}-{name}"}
            content = window_job(2, trigger={"every": "0s"}, metrics={"port": 0}, **own)
            del content["window_folder"]
            fill(kafka, content, 10)
            jobs.append(content)
            processes.append(JobProcess(folder, content))

        def another_batch(hour: int) -> None:
            for process, content in zip(processes, jobs, strict=True):
                before = len(process.lines)
                fill(kafka, content, 10, START_MS + hour * HOUR_MS)
                process.until(lambda process=process, before=before: len(process.lines) > before, "another batch")

        for process in processes:
            process.until(lambda process=process: process.lines, "a batch")
            assert ready(process)[0] == HTTPStatus.OK
        cluster.restart_master()
        another_batch(1)
        wait_until(lambda: "Recovery complete" in (tmp_path / "cluster.log").read_text(), within_s=180)
        wait_until(lambda: len(cluster.executors()) == len(jobs))
        another_batch(2)
        cluster.lose(cluster.executors()[0])
        another_batch(3)
        codes = [process.stop() for process in processes]

    assert codes == [ExitCode.DONE, ExitCode.DONE]
    for process, content in zip(processes, jobs, strict=True):
        assert not [line for line in process.logged().splitlines() if "at org.apache." in line or "Traceback" in line]
        assert len(records(kafka, content["output"]["topic"])) == 40
    wait_until(lambda: not cluster.executors())
