"""What `teacup check` says of a join that ends by itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from deploy.cli.app import app

CONTENT = {
    **{"name": "j", "kind": "window-join", "kafka": {"bootstrap.servers": "b:9092"}, "checkpoint": "c"},
    **{"left": {"topic": "l"}, "right": {"topic": "r"}, "join": {"before": "1m", "after": "30m"}},
    **{"output": {"topic": "o"}, "producer_delay": "5m"},
}


@pytest.fixture
def checked(tmp_path: Path) -> Callable[..., tuple[int, str]]:
    """The exit code, and what is printed for the keys given."""

    def check(**keys: Any) -> tuple[int, str]:
        path = tmp_path / "job.yaml"
        path.write_text(yaml.safe_dump({**CONTENT, **keys}))
        found = CliRunner().invoke(app, ["check", str(path)])
        return found.exit_code, found.output

    return check


def test_it_says_how_long_a_run_takes_at_least(checked: Callable[..., tuple[int, str]]) -> None:
    """And from which keys; not of a job that runs on, nor where no clock is waited for."""
    code, said = checked(trigger="available_now")

    assert code == 0
    assert "at the earliest 35m after the time of the newest left record" in said
    assert "`complete: true`" in said
    assert "earliest" not in checked()[1] + checked(trigger="available_now", idle="hold")[1]


def test_it_names_the_danger_of_complete_topics(checked: Callable[..., tuple[int, str]]) -> None:
    """Which a job that runs on cannot have, nor a lookup join."""
    code, said = checked(trigger="available_now", complete=True)
    refused, why = checked(complete=True)
    lookup = {"storage": {"url": "http://s", "namespace": "n"}, "delay": {"url": "http://d", "consumer": "c"}}
    unknown, what = checked(kind="lookup-join", trigger="available_now", complete=True, **lookup)

    assert (code, refused, unknown) == (0, 2, 2)
    assert "counts as late unless it is newer than all that was read by" in said
    assert "complete: is for `trigger: available_now`" in why
    assert "complete" in what
