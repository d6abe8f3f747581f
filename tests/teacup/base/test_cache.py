"""Where caches go: the first folder that can be written to; what another one holds is used, too."""

from __future__ import annotations

from pathlib import Path

import pytest

from teacup.base.cache import cache_folder, cache_folders, cached

NOWHERE = "/dev/null/none"
"""Nobody can create a folder below a file, whatever the user's rights."""


def test_the_folders_are_looked_at_in_this_order(tmp_path: Path) -> None:
    """A named one is the only one; of systemd's the first; one in TMPDIR belongs to the user alone."""
    env = {"XDG_CACHE_HOME": "/x", "CACHE_DIRECTORY": "/c:/d", "HOME": "/h", "TMPDIR": str(tmp_path)}

    *others, temporary = cache_folders(env)

    assert others == [Path("/x/teacup"), Path("/c"), Path("/h/.cache/teacup")]
    assert temporary.parent == tmp_path
    assert temporary.stat().st_mode & 0o777 == 0o700
    assert cache_folders({**env, "TEACUP_CACHE": "/somewhere"}) == [Path("/somewhere")]


@pytest.mark.parametrize("env", [{"HOME": NOWHERE}, {"TEACUP_CACHE": NOWHERE}, {"HOME": NOWHERE, "TMPDIR": NOWHERE}])
def test_without_any_folder_there_is_no_cache(env: dict[str, str]) -> None:
    """And no error."""
    assert cache_folder(env) is None
    assert cached("name", env) is None


def test_what_is_there_is_used_from_a_folder_that_is_not_the_first(tmp_path: Path) -> None:
    """As in an image with a prepared cache, while the first folder is empty."""
    prepared = tmp_path / "prepared"
    prepared.mkdir()
    (prepared / "name").touch()
    env = {"XDG_CACHE_HOME": str(tmp_path), "CACHE_DIRECTORY": str(prepared), "HOME": NOWHERE}

    assert cached("name", env) == prepared / "name"
    assert cache_folder(env) == tmp_path / "teacup"


def test_a_folder_that_others_can_write_to_is_not_taken(tmp_path: Path) -> None:
    """They could put programs into it."""
    first = cache_folder({"HOME": NOWHERE, "TMPDIR": str(tmp_path)})
    assert first is not None
    first.chmod(0o777)

    assert cache_folder({"HOME": NOWHERE, "TMPDIR": str(tmp_path)}) is None
