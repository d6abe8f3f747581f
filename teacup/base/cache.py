"""Where caches go: files that only save time, kept between runs. Without a home or any such folder there is none.

    TEACUP_CACHE      the folder itself; nothing else is tried
    XDG_CACHE_HOME    `teacup` in it
    CACHE_DIRECTORY   set by systemd (`CacheDirectory=`): the folder itself, the first of several
    the home          `.cache/teacup` in it
    TMPDIR            `teacup-cache-<uid>` in it, if it is set: a folder that only the user can write to

A cache may be read even if nothing can be written, as in an image with a prepared cache.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path


def cached(name: str, env: Mapping[str, str] = os.environ) -> Path | None:
    """Returns a file or folder of this name from the first cache that has it; None if none has it."""
    return next((folder / name for folder in cache_folders(env) if os.access(folder / name, os.R_OK)), None)


def cache_folder(env: Mapping[str, str] = os.environ) -> Path | None:
    """Returns the first folder in which files can be created, creating it if needed. None if there is none."""
    for folder in cache_folders(env):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(folder, os.W_OK | os.X_OK):
            return folder
    return None


def cache_folders(env: Mapping[str, str] = os.environ) -> list[Path]:
    """Returns the folders in which caches are looked for, in order; they may not exist, or not be writable."""
    named = env.get("TEACUP_CACHE")
    return [Path(named).expanduser()] if named else [*_beside_others(env), *_temporary(env)]


def _beside_others(env: Mapping[str, str]) -> Iterator[Path]:
    if env.get("XDG_CACHE_HOME"):
        yield Path(env["XDG_CACHE_HOME"]) / "teacup"
    if env.get("CACHE_DIRECTORY"):
        yield Path(env["CACHE_DIRECTORY"].split(":")[0])
    try:
        yield (Path(env["HOME"]) if env.get("HOME") else Path.home()) / ".cache" / "teacup"
    except RuntimeError:  # the user is in no list of users
        return


def _temporary(env: Mapping[str, str]) -> Iterator[Path]:
    """Yields a folder in TMPDIR. Anyone else who could write to it could have their programs run as this user."""
    if not env.get("TMPDIR"):
        return
    folder = Path(env["TMPDIR"]) / f"teacup-cache-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        stat = folder.lstat()
    except OSError:
        return
    if stat.st_uid == os.getuid() and not stat.st_mode & 0o022 and folder.is_dir() and not folder.is_symlink():
        yield folder
