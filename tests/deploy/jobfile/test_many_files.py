"""Job files whose jobs share a process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from dedup.identity import Identity
from deploy.jobfile.job import DedupJob, MetricsAt
from deploy.jobfile.load import job_files, load_files
from deploy.jobfile.shared_process import Files, Running, WrongFile, decided, jobs_of, wrong_of
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
    assert [job.job_name for job in jobs_of(load_files([tmp_path], strict=True)).values()] == ["a", "b"]


def test_a_folder_without_job_files_is_refused(tmp_path: Path) -> None:
    """Nothing would run."""
    with pytest.raises(SettingsInvalid, match="has no job files"):
        load_files([tmp_path], strict=False)


@pytest.mark.parametrize("valid", [{}, {"c": {}}])
def test_every_problem_of_every_file_is_reported_if_nothing_runs(tmp_path: Path, valid: dict[str, Any]) -> None:
    """At once: if all must be valid, or none is."""
    write(tmp_path, a={"typo": 1}, b={"kafka": {}}, **valid)

    with pytest.raises(SettingsInvalid) as raised:
        load_files([tmp_path], strict=bool(valid))

    assert f"{tmp_path / 'a.yaml'}: typo: unknown key" in str(raised.value)
    assert f"{tmp_path / 'b.yaml'}: kafka" in str(raised.value)


def test_a_wrong_file_has_the_name_that_it_gives_or_its_own(tmp_path: Path) -> None:
    """The others are valid."""
    write(tmp_path, a={}, b={"name": "of-b", "typo": 1})
    (tmp_path / "c.yaml").write_text("name: [")

    files = load_files([tmp_path], strict=False)

    assert list(jobs_of(files)) == [tmp_path / "a.yaml"]
    assert {file.name: wrong.name for file, wrong in wrong_of(files).items()} == {"b.yaml": "of-b", "c.yaml": "c"}
    assert str(wrong_of(files)[tmp_path / "b.yaml"]).startswith("typo: unknown key")


def job(name: str, **values: Any) -> DedupJob:
    common = {"kind": "dedup", "checkpoint": f"/state/{name}", "source": "s", "output": "o", "kafka": {}}
    return DedupJob(**{**common, "name": name, "identity": Identity(), **values})


def names(**jobs: DedupJob | WrongFile) -> Files:
    return {Path(f"{name}.yaml"): found for name, found in jobs.items()}


SPARK = {"spark.ui.enabled": "true"}
AT_8, AT_9 = MetricsAt(port=8), MetricsAt(port=9)
TYPO = WrongFile("a", ("typo: unknown key",))


@pytest.mark.parametrize(
    ("files", "running", "runs", "wrong"),
    [
        (names(a=job("a"), b=job("b")), {}, "ab", {}),
        (names(a=TYPO, b=job("b")), {}, "b", {"a": "typo: unknown key"}),
        # what each owns
        (
            names(a=job("x"), b=job("x", checkpoint="/state/b"), c=job("c")),
            {},
            "c",
            {
                "a": "name: 'x' is that of b.yaml, too; each job needs its own",
                "b": "name: 'x' is that of a.yaml, too; each job needs its own",
            },
        ),
        (
            names(a=job("a"), b=job("b", checkpoint="/state/a"), c=job("c")),
            {},
            "c",
            {
                "a": "checkpoint: '/state/a' is that of b.yaml, too; each job needs its own",
                "b": "checkpoint: '/state/a' is that of a.yaml, too; each job needs its own",
            },
        ),
        (names(a=TYPO, b=job("a")), {}, "b", {"a": "typo: unknown key"}),
        # what all share: as most have it, else as the first has it
        (
            names(a=job("a", spark=SPARK), b=job("b"), c=job("c")),
            {},
            "bc",
            {"a": "spark: differs from that of b.yaml; jobs of one process have one Spark and one log"},
        ),
        (
            names(a=TYPO, b=job("b"), c=job("c", json_log=True)),
            {},
            "b",
            {"a": "typo", "c": "log: differs from that of b.yaml; jobs of one process have one Spark and one log"},
        ),
        (names(a=job("a"), b=job("b", metrics=AT_8), c=job("c", metrics=AT_8)), {}, "abc", {}),
        (
            names(a=job("a", metrics=AT_8), b=job("b", metrics=AT_9)),
            {},
            "a",
            {"b": f"metrics: differs from {AT_8.host}:8, that of the others; one process has one port"},
        ),
        # read again
        (names(a=TYPO, b=job("b"), c=job("c")), names(a=job("a"), b=job("b")), "bc", {"a": "typo"}),
        (
            names(a=TYPO, b=job("a"), c=job("c")),
            names(a=job("a"), c=job("c")),
            "c",
            {"a": "typo", "b": "name: 'a' is that of a.yaml, too; each job needs its own; checkpoint: '/state/a' is"},
        ),
        (names(b=job("a")), names(a=job("a")), "b", {}),
        (
            names(a=job("a", spark=SPARK), b=job("b", spark=SPARK)),
            names(a=job("a")),
            "",
            dict.fromkeys("ab", "spark: the session would be another one; start the process again to change it"),
        ),
        (
            names(a=job("a"), b=job("b", checkpoint="s3a://b/c")),
            names(a=job("a")),
            "ab",
            {},
        ),
        (
            names(a=job("a"), b=job("b", json_log=True)),
            names(a=job("a")),
            "a",
            {"b": "log: differs from that of the process; start it again to change it"},
        ),
        # a file that keeps its name because it is wrong makes another wrong
        (
            names(a=job("x", spark=SPARK), b=job("a", checkpoint="/state/x")),
            names(a=job("a")),
            "",
            {"a": "spark: the session", "b": "name: 'a' is that of a.yaml, too; each job needs its own"},
        ),
    ],
)
def test_which_files_run_and_why_others_do_not(
    files: Files, running: dict[Path, DedupJob], runs: str, wrong: dict[str, str]
) -> None:
    """The first letter of a file stands for it."""
    now = Running(running, next(iter(running.values())).spark if running else {})

    found = decided(files, now)

    assert list(found) == list(files), "in the order of the files"
    assert "".join(file.stem for file in jobs_of(found)) == runs
    said = {file.stem: str(each) for file, each in wrong_of(found).items()}
    assert said.keys() == wrong.keys()
    assert {name: says[: len(wrong[name])] for name, says in said.items()} == wrong


@pytest.mark.parametrize(
    ("files", "running", "expected"),
    [
        (names(a=TYPO, b=job("b")), {}, ["a"]),
        (names(b=TYPO, c=job("a")), {}, ["b"]),
        (names(x=job("a"), a=job("a"), b=job("b")), {}, ["x", "a"]),
        (names(x=TYPO, y=TYPO, b=job("y")), {}, ["x", "y.yaml"]),
        (names(x=TYPO, y=TYPO, b=job("b")), names(y=job("a")), ["x", "a"]),
    ],
)
def test_each_wrong_file_has_a_name_of_its_own(
    files: Files, running: dict[Path, DedupJob], expected: list[str]
) -> None:
    """Under which it is reported: one that runs on keeps its job's."""
    now = Running(running, next(iter(running.values())).spark if running else {})

    assert [wrong.name for wrong in wrong_of(decided(files, now)).values()] == expected
