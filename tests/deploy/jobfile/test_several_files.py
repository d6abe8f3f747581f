"""Job files whose jobs share a process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.load import job_files, load_jobs
from teacup.base.errors import SettingsInvalid

JOB: dict[str, Any] = {
    "kind": "dedup",
    "kafka": {"bootstrap.servers": "one:9092"},
    "source": {"topic": "clicks"},
    "output": {"topic": "unique"},
}


def write(folder: Path, **jobs: dict[str, Any]) -> Path:
    """Job files of these names."""
    for name, values in jobs.items():
        content = {**JOB, "name": name, "checkpoint": f"/state/{name}", **values}
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(content))
    return folder


def test_a_folder_stands_for_its_job_files(tmp_path: Path) -> None:
    """In the order of their names, without those for others to include."""
    write(tmp_path, b={}, a={})
    (tmp_path / "_common.yaml").write_text("log: json\n")
    (tmp_path / "notes.txt").write_text("")

    assert job_files([tmp_path]) == [tmp_path / "a.yaml", tmp_path / "b.yaml"]
    assert [job.job_name for job in load_jobs([tmp_path]).values()] == ["a", "b"]


def test_a_folder_without_job_files_is_refused(tmp_path: Path) -> None:
    """Nothing would run."""
    with pytest.raises(SettingsInvalid, match="has no job files"):
        load_jobs([tmp_path])


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"name": "a"}, "name: 'a' is that of {a}"),
        ({"checkpoint": "/state/a"}, "checkpoint: '/state/a' is that of {a}"),
        ({"spark": {"master": "local[3]"}}, "spark: differs from that of {a}"),
        ({"log": "json"}, "log: differs from that of {a}"),
        ({"metrics": {"port": 9}}, "metrics: differs from that of {a}"),
    ],
)
def test_what_jobs_of_one_process_cannot_have_is_refused(tmp_path: Path, values: dict[str, Any], said: str) -> None:
    """With both files and the key."""
    write(tmp_path, a={"metrics": {"port": 8}}, b=values)

    with pytest.raises(SettingsInvalid) as raised:
        load_jobs([tmp_path])

    assert f"{tmp_path / 'b.yaml'}: {said.format(a=tmp_path / 'a.yaml')}" in str(raised.value)


def test_every_problem_of_every_file_is_reported(tmp_path: Path) -> None:
    """At once."""
    write(tmp_path, a={"typo": 1}, b={"kafka": {}})

    with pytest.raises(SettingsInvalid) as raised:
        load_jobs([tmp_path])

    assert f"{tmp_path / 'a.yaml'}: typo: unknown key" in str(raised.value)
    assert f"{tmp_path / 'b.yaml'}: kafka" in str(raised.value)
