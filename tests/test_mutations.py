"""The safeguards of `tests.mutations` are still where it looks for them, and so are their tests."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from tests.mutations import MUTATIONS, ROOT, Mutation, misplaced


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_safeguard_can_be_taken_out(mutation: Mutation) -> None:
    """Its line is in its file exactly once, what replaces it differs, and the tests that must notice it exist."""
    assert misplaced(mutation, ROOT) == ""
    assert mutation.new != mutation.old


def test_each_safeguard_has_a_name_of_its_own() -> None:
    """`--only` chooses by name."""
    assert [name for name, times in Counter(mutation.name for mutation in MUTATIONS).items() if times > 1] == []


def test_what_has_moved_is_reported(tmp_path: Path) -> None:
    """A file, a line, a line that is there twice, a test."""
    (tmp_path / "rule.py").write_text("if True:\n    check()\n")
    (tmp_path / "twice.py").write_text("check()\ncheck()\n")
    mutation = Mutation("a check", "rule.py", "check()", "pass", "rule.py")

    assert misplaced(mutation, tmp_path) == ""
    assert misplaced(replace(mutation, file="gone.py"), tmp_path) == "there is no gone.py"
    assert misplaced(replace(mutation, old="other()"), tmp_path).startswith("found 0 times")
    assert misplaced(replace(mutation, file="twice.py"), tmp_path).startswith("found 2 times")
    assert misplaced(replace(mutation, tests="rule.py test_gone.py"), tmp_path) == "there is no test_gone.py"
