"""A checkpoint in S3, on a real HTTP server: who is not let in is told what is missing, and the job ends with 2."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from teacup.base.errors import ExitCode
from tests.deploy.jobs.filling import START_MS, fill
from tests.support.jobprocess import JobProcess, records
from tests.support.s3_server import BUCKET, S3, s3_driver, s3_server

CHECKPOINT = f"s3a://{BUCKET}/teacup/clicks"
OF_ANOTHER = {"AWS_ACCESS_KEY_ID": "somebody", "AWS_SECRET_ACCESS_KEY": "unknown"}


@pytest.fixture
def s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3]:
    """The server; whoever is started with this environment may use it."""
    with s3_server(tmp_path) as server:
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        yield server


def refusal(job: JobProcess) -> str:
    """The one line that a job without access ends with."""
    code = job.ended()
    assert code == ExitCode.BAD_JOB_FILE, job.logged()
    assert "Traceback" not in job.logged()
    return job.error()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changed", "checkpoint", "says"),
    [
        (dict.fromkeys(OF_ANOTHER, ""), CHECKPOINT, "Python finds no credentials (NoCredentialsError: "),
        (OF_ANOTHER, CHECKPOINT, "Python is refused (PermissionError: "),
        ({}, "s3a://nowhere/teacup/clicks", "Python finds no such bucket (FileNotFoundError: "),
    ],
    ids=["no credentials", "wrong credentials", "no bucket"],
)
def test_a_job_that_the_store_does_not_let_in_says_what_is_missing(
    kafka: dict[str, str],
    window_job: Callable[..., dict[str, Any]],
    tmp_path: Path,
    s3: S3,
    monkeypatch: pytest.MonkeyPatch,
    changed: Mapping[str, str],
    checkpoint: str,
    says: str,
) -> None:
    """Before anything is read or claimed."""
    for name, value in changed.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    content = window_job(2, checkpoint=checkpoint)
    fill(kafka, content, 10)

    said = refusal(JobProcess(tmp_path, content))

    assert f"CheckpointRefused: checkpoint '{checkpoint}': {says}" in said
    assert "AWS_ACCESS_KEY_ID" in said


@pytest.mark.slow
def test_spark_without_access_says_what_is_missing_and_with_it_the_job_goes_on(
    kafka: dict[str, str], window_job: Callable[..., dict[str, Any]], tmp_path: Path, s3: S3, plain_java: None
) -> None:
    """Its driver and its credentials are others than Python's. A second start goes on after the first."""
    spark = {
        "master": "local[2]",
        "spark.hadoop.fs.s3a.endpoint": s3.url,
        "spark.hadoop.fs.s3a.path.style.access": "true",
    }
    content = window_job(2, checkpoint=CHECKPOINT)
    fill(kafka, content, 100)

    without = refusal(JobProcess(tmp_path, {**content, "spark": spark}))
    spark["spark.driver.extraClassPath"] = f"{s3_driver(tmp_path)}/*"
    other = {"spark.hadoop.fs.s3a.access.key": "somebody", "spark.hadoop.fs.s3a.secret.key": "unknown"}
    wrong = refusal(JobProcess(tmp_path, {**content, "spark": {**spark, **other}}))
    for start in (START_MS + 3_600_000, None):
        job = JobProcess(tmp_path, {**content, "spark": spark})
        assert job.ended() == ExitCode.DONE, job.logged()
        if start is not None:
            fill(kafka, content, 100, start)

    assert "Spark has no driver (Class org.apache.hadoop.fs.s3a" in without
    assert "spark.driver.extraClassPath" in without
    assert "Spark is refused (AccessDeniedException" in wrong
    assert len(records(kafka, content["output"]["topic"])) == 200
