"""Values of a join in the words of a job file."""

from __future__ import annotations

import pytest

from deploy.jobfile.join_keys import IN_FILE, in_file
from deploy.jobfile.kinds import KINDS
from deploy.jobfile.reference import markdown_table
from joins.spec import IDENTITY


@pytest.mark.parametrize(
    ("kind", "names"),
    [("window-join", (*IDENTITY, "path")), ("lookup-join", (*IDENTITY, "delay.consumer", "storage.namespace"))],
)
def test_whatever_a_checkpoint_is_bound_to_is_named_as_in_the_file(kind: str, names: tuple[str, ...]) -> None:
    """Each name is a key of the reference."""
    table = markdown_table(KINDS[kind].keys)

    for name in names:
        key, _ = in_file(name, 0)
        assert f"| `{key}` |" in table


def test_durations_are_written_as_in_the_file() -> None:
    """With their unit; texts are quoted, and what an earlier checkpoint does not have is None."""
    assert in_file("before_ms", 600_000) == ("join.before", "10m")
    assert in_file("right.disorder_ms", 0) == ("right.disorder", "0")
    assert in_file("policy", "last") == ("join.policy", "'last'")
    assert in_file("left.disorder_ms", None) == ("left.disorder", "None")
    assert "`teacup move`" in IN_FILE.remedy
