"""A disk that a process has for itself, in a mount namespace, and that fills up as a real one does."""

from __future__ import annotations

from pathlib import Path

from tests.support.waiting import wait_until

MOUNT = 'mount -t tmpfs -o size="$1" tmpfs "$0" || exit 99; shift; exec "$@"'
PIECE = bytes(4_096)


def on_small_disk(folder: Path, size: str) -> tuple[str, ...]:
    """The beginning of a command, which then finds a disk of this size in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    return ("unshare", "--map-root-user", "--mount", "sh", "-c", MOUNT, str(folder), size)


def seen_by(pid: int, path: Path) -> Path:
    """The path, as the process sees it."""
    return Path(f"/proc/{pid}/root{path}")


def fill_up(pid: int, folder: Path) -> None:
    """Leaves not a page of the disk."""
    with (seen_by(pid, folder) / "filler").open("wb", buffering=0) as file:
        try:
            while True:
                file.write(PIECE)
        except OSError:
            return


def make_room(pid: int, folder: Path) -> None:
    """Takes that back."""
    (seen_by(pid, folder) / "filler").unlink()


def mounted(pid: int, folder: Path) -> None:
    """Waits until the process has its disk."""
    wait_until(lambda: seen_by(pid, folder).exists() and seen_by(pid, folder).stat().st_dev != folder.stat().st_dev)
