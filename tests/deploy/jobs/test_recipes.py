"""The recipes of docs/recipes.md as they are written: rows into files and tables, a scheduler, a rewritten job."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml

from teacup.base.errors import ExitCode
from teacup.base.now import wall_ms
from tests.conftest import TopicFactory
from tests.support.jobprocess import records
from tests.support.sparkjoin import Put, produce

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
COUNT = 60


def block(heading: str, language: str) -> str:
    """The code below a heading."""
    part = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return str(re.findall(rf"^```{language}\n(.*?)^```$", part, re.DOTALL | re.MULTILINE)[0])


@pytest.fixture
def here(kafka: dict[str, str], topic_factory: TopicFactory) -> Callable[[str], str]:
    """Puts topics with records of the last minute into a program."""
    left, right = topic_factory(2, prefix="clicks"), topic_factory(2, prefix="impressions")
    at_ms = wall_ms() - 60_000
    produce(kafka, left, [Put(i % 2, b"%d" % (i % 6), at_ms + i, b'{"user": "%d"}' % i) for i in range(COUNT)])
    produce(kafka, right, [Put(i % 2, b"%d" % i, at_ms - 1_000 + i, b'{"campaign": %d}' % i) for i in range(4)])
    return lambda program: program.replace('"clicks", format', f'"{left}", format').replace(
        '"impressions"', f'"{right}"'
    )


def ran(program: str, kafka: dict[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
    folder.mkdir(exist_ok=True)
    script = folder / "program.py"
    script.write_text(program)
    command = [sys.executable, str(script), kafka["bootstrap.servers"], str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(folder)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=False)


def with_kill(program: str, after: str, folder: Path) -> str:
    """The program, which kills itself once, behind a line of its own."""
    mark = f"pathlib.Path({str(folder / 'killed')!r})"
    once = f"import os, pathlib; {mark}.exists() or ({mark}.touch(), os.kill(os.getpid(), 9))"
    indent = re.findall(rf"^( *){re.escape(after)}", program, re.MULTILINE)[0]
    return re.sub(
        rf"^( *{re.escape(after)}.*)$", lambda line: f"{line[1]}\n{indent}{once}", program, count=1, flags=re.MULTILINE
    )


def check(rows: pl.DataFrame) -> None:
    """Every left record once, with the fields of its match."""
    assert len(rows) == COUNT
    for partition, offset, user, campaign, outcome in rows.iter_rows():
        i = 2 * offset + partition
        expected = (str(i), i % 6, "matched") if i % 6 < 4 else (str(i), None, "unmatched")
        assert (user, campaign, outcome) == expected


@pytest.mark.slow
def test_rows_are_in_parquet_once_though_the_program_is_killed(
    here: Any, kafka: dict[str, str], tmp_path: Path
) -> None:
    """In the middle of its first batch: as soon as there is a file of rows."""
    folder, program = tmp_path / "here", here(block("Rows into Parquet", "python"))
    folder.mkdir()
    watching = (
        "import threading, pathlib, time, os\n"
        "def watch():\n"
        f"    while not [*pathlib.Path({str(folder / 'rows')!r}).glob('*.parquet')]: time.sleep(0.001)\n"
        "    os.kill(os.getpid(), 9)\n"
        "threading.Thread(target=watch, daemon=True).start()\n"
    )

    killed = ran(watching + program, kafka, folder)
    again = ran(program, kafka, folder)

    assert killed.returncode == -signal.SIGKILL, killed.stderr[-2_000:]
    assert again.returncode == 0, again.stderr[-4_000:]
    listed = {
        Path(json.loads(line)["path"]).name
        for path in (folder / "rows" / "_spark_metadata").glob("[0-9]*")
        for line in path.read_text().splitlines()[1:]
    }
    check(pl.concat([pl.read_parquet(folder / "rows" / name) for name in listed]))


@pytest.mark.slow
def test_rows_are_in_delta_once_though_the_program_is_killed(here: Any, kafka: dict[str, str], tmp_path: Path) -> None:
    """Between the commit of the table and that of the batch, so that the batch comes again."""
    from deltalake import DeltaTable

    folder, program = tmp_path / "here", here(block("Rows into Delta Lake", "python"))

    killed = ran(with_kill(program, "write_deltalake(table,", folder), kafka, folder)
    between = pl.DataFrame(DeltaTable(str(folder / "rows")).to_pyarrow_table())
    again = ran(program, kafka, folder)

    assert killed.returncode == -signal.SIGKILL, killed.stderr[-2_000:]
    assert again.returncode == 0, again.stderr[-4_000:]
    assert len(between) == COUNT
    check(pl.DataFrame(DeltaTable(str(folder / "rows")).to_pyarrow_table()))


class Again(Exception):
    """Stands for Airflow's exception that is tried again."""


class Failed(Exception):
    """Stands for the one that is not."""


@pytest.mark.slow
def test_the_task_of_airflow_says_which_failure_is_worth_another_attempt(
    window_job: Callable[..., dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow is not here; the job is: it ends with 0, twice, with 4 without brokers, and with 2 for a wrong file."""
    tasks: list[Callable[[], None]] = []

    def task(**_: Any) -> Callable[[Callable[[], None]], Callable[[], None]]:
        return lambda function: lambda: tasks.append(function)

    def dag(**_: Any) -> Callable[[Callable[[], None]], Callable[[], None]]:
        return lambda function: function

    sdk, exceptions = types.ModuleType("airflow.sdk"), types.ModuleType("airflow.exceptions")
    sdk.__dict__.update(dag=dag, task=task)
    exceptions.__dict__.update(AirflowException=Again, AirflowFailException=Failed)
    for name, module in {
        "airflow": types.ModuleType("airflow"),
        "airflow.sdk": sdk,
        "airflow.exceptions": exceptions,
    }.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    job, content = tmp_path / "clicks.yaml", window_job(1)
    exec(block("Airflow", "python").replace("/etc/teacup/clicks.yaml", str(job)), {})
    (join,) = tasks

    for _ in range(2):
        job.write_text(yaml.safe_dump(content))
        join()
    job.write_text(yaml.safe_dump({**content, "kafka": {"bootstrap.servers": "localhost:1"}, "wait_for_brokers": "1s"}))
    with pytest.raises(Again, match=f"exit code {ExitCode.UNREACHABLE:d}"):
        join()
    job.write_text(yaml.safe_dump({**content, "join": {}}))
    with pytest.raises(Failed, match=f"exit code {ExitCode.BAD_JOB_FILE:d}"):
        join()


def test_the_rewritten_job_writes_the_newest_payment(
    window_job: Callable[..., dict[str, Any]], kafka: dict[str, str], tmp_path: Path
) -> None:
    """On a broker: one row for each order, with the last payment of the hour before it."""
    shipped, ours = yaml.safe_load(block("A Kafka Streams job rewritten", "yaml")), window_job(1)
    content = {
        **shipped,
        **{key: ours[key] for key in ("name", "kafka", "checkpoint", "window_folder", "trigger", "spark")},
    }
    for part in ("left", "right", "output"):
        content[part] = {**shipped[part], "topic": ours[part]["topic"]}
    at = wall_ms() - 600_000
    produce(
        kafka, content["left"]["topic"], [Put(0, key, at, b'{"id": "%s", "amount": 9.5}' % key) for key in (b"a", b"b")]
    )
    early = [Put(0, b"a", at - 1_000 * ago, b'{"method": "%d s before"}' % ago) for ago in (3_601, 30, 20)]
    produce(kafka, content["right"]["topic"], early)
    job = tmp_path / "job.yaml"
    job.write_text(yaml.safe_dump(content))

    command = [sys.executable, "-m", "deploy.cli", "run", str(job)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)

    assert done.returncode == ExitCode.DONE, done.stderr[-4_000:]
    rows = [json.loads(row["value"]) for row in records(kafka, content["output"]["topic"])]
    assert sorted(rows, key=lambda row: row["id"]) == [
        {"id": "a", "amount": 9.5, "method": "20 s before"},
        {"id": "b", "amount": 9.5, "method": None},
    ]
