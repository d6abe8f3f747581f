"""A module of an extra that is not installed: one line that says what to install."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from deploy.cli.commands import extra_of
from teacup.base.errors import ExitCode

ROOT = Path(__file__).parents[3]

WITHOUT = """
import importlib.abc, sys

class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == {module!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
from deploy.cli.app import app
app()
"""


def _teacup_without(module: str, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    program = WITHOUT.format(module=module)
    return subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, cwd=folder, check=False
    )


SET = "offsets set --topic t --time 2026-01-01T00:00Z --zookeeper h:1 --consumer-id c"


@pytest.mark.parametrize(
    ("module", "command"),
    [("lmdb", "storage serve storage.yaml"), ("sqlalchemy", "delay serve delay.yaml"), ("kazoo", SET)],
)
def test_a_missing_extra_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, command: str
) -> None:
    """With the command that installs it."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    (tmp_path / "storage.yaml").write_text("store: lmdb:///nowhere\nnamespaces: [{name: a}]\nanonymous: [read]\n")
    (tmp_path / "delay.yaml").write_text(f"database: sqlite:///{tmp_path}/delay.db\nanonymous: [read]\n")

    done = _teacup_without(module, *command.split(), folder=tmp_path)

    assert done.returncode == ExitCode.BAD_JOB_FILE
    assert done.stderr == f"{module} is not installed, and this command needs it: pip install 'teacup-joins[serve]'\n"


def test_a_missing_module_of_the_core_is_an_error_like_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An installation without it is broken, and no extra would help."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))

    done = _teacup_without("yaml", "check", "job.yaml", folder=tmp_path)

    assert done.returncode == ExitCode.FAILED
    assert "No module named 'yaml'" in done.stderr


def test_an_extra_is_found_by_the_modules_that_it_brings() -> None:
    """As the distribution declares them."""
    served = ("uvicorn", "fastapi", "lmdb", "sqlalchemy", "alembic", "kazoo", "aerospike")

    assert {extra_of(module) for module in served} == {"serve"}
    assert [extra_of(module) for module in ("hypothesis", "polars", "os")] == ["testing", None, None]
