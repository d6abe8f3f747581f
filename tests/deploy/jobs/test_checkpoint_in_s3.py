"""A checkpoint in S3, on a real HTTP server: a job without access says what is missing, and ends with 2."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from teacup.base.errors import ExitCode
from teacup.spark.batches.log import FORGETS_EVERY, BatchLog
from teacup.spark.checkpoint import SparkLogs
from teacup.spark.errors import CheckpointInterrupted
from tests.deploy.jobs.filling import START_MS, fill
from tests.support.jobprocess import JobProcess, records
from tests.support.s3_server import BUCKET, S3, s3_server

CHECKPOINT = f"s3a://{BUCKET}/teacup/clicks"
OF_ANOTHER = {"AWS_ACCESS_KEY_ID": "somebody", "AWS_SECRET_ACCESS_KEY": "unknown"}


@pytest.fixture
def s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3]:
    """The server; whoever is started with this environment may use it."""
    from s3fs import S3FileSystem

    S3FileSystem.clear_instance_cache()  # of another server
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
        (dict.fromkeys(OF_ANOTHER, ""), CHECKPOINT, "the job finds no credentials (NoCredentialsError: "),
        (OF_ANOTHER, CHECKPOINT, "the job is refused (PermissionError: "),
        ({}, "s3a://nowhere/teacup/clicks", "the job finds no such bucket (FileNotFoundError: "),
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
def test_a_job_goes_on_where_the_one_before_it_has_ended(
    kafka: dict[str, str], window_job: Callable[..., dict[str, Any]], tmp_path: Path, s3: S3
) -> None:
    """Spark has neither a driver of the store nor credentials."""
    content = window_job(2, checkpoint=CHECKPOINT)
    for start in (START_MS, START_MS + 3_600_000):
        fill(kafka, content, 100, start)
        job = JobProcess(tmp_path, content)
        assert job.ended() == ExitCode.DONE, job.logged()

    assert len(records(kafka, content["output"]["topic"])) == 200


@pytest.mark.slow
def test_of_two_processes_that_write_one_record_the_second_ends(s3: S3) -> None:
    """A URL has no lock: the later one finds what it has not written."""
    first, second = BatchLog(CHECKPOINT, 100), BatchLog(CHECKPOINT, 100)
    first.plan(0, {"at": 1})
    assert second.newest() == (0, False)
    first.commit(0)
    first.plan(1, {"at": 2})

    with pytest.raises(CheckpointInterrupted, match="another process has written batch 1"):
        second.plan(1, {"at": 2})
    assert second.end(1) == {"at": 2}


@pytest.mark.slow
def test_old_batches_are_forgotten(s3: S3) -> None:
    """Also in a store."""
    log = BatchLog(CHECKPOINT, 5)
    for number in range(FORGETS_EVERY + 1):
        log.plan(number, {"at": number})
        log.commit(number)

    logs = SparkLogs.at(CHECKPOINT)
    assert logs.planned() == logs.committed() == list(range(FORGETS_EVERY - 4, FORGETS_EVERY + 1))
