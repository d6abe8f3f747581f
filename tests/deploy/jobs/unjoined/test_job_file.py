"""Which job files `teacup unjoined` refuses, before anything is connected to."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from click.testing import Result
from typer.testing import CliRunner

from deploy.cli.app import app
from deploy.jobfile.load import load_job
from teacup.base.errors import ExitCode, SettingsInvalid

EXAMPLES = Path(__file__).parents[4] / "deploy" / "examples"


def unjoined(example: str, *options: str) -> Result:
    """The command, on a job file that is shipped."""
    return CliRunner().invoke(app, ["unjoined", str(EXAMPLES / example), *options])


def test_a_job_file_that_is_not_meant_is_refused() -> None:
    """An in-memory join reports its unjoined records itself; a lookup join needs a topic for them."""
    in_memory, without_topic = unjoined("window-join.yaml"), unjoined("lookup.yaml")

    assert (in_memory.exit_code, without_topic.exit_code) == (ExitCode.BAD_JOB_FILE, ExitCode.BAD_JOB_FILE)
    assert "kind: " in in_memory.stderr
    assert "a window-join reports them itself" in in_memory.stderr
    assert "topics.unjoined: is missing" in without_topic.stderr


def test_a_start_that_is_not_a_time_is_refused() -> None:
    """As in a job file."""
    result = unjoined("lookup.yaml", "--set", "topics.unjoined=unjoined", "--start", "yesterday")

    assert result.exit_code == ExitCode.BAD_JOB_FILE
    assert "--start: 'yesterday' is not allowed: " in result.stderr


def test_a_select_cannot_remove_the_headers(tmp_path: Path) -> None:
    """They are always written; names like theirs are refused."""
    content = yaml.safe_load((EXAMPLES / "lookup.yaml").read_text(encoding="utf-8"))
    content["output"]["select"] = {"key": "key", "value": "left_value", "headers": {"teacup": "'0:0'"}}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(content))

    with pytest.raises(SettingsInvalid, match=r"output.select.headers.teacup"):
        load_job(tmp_path / "job.yaml")
