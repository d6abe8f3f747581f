"""What a process does with a signal, as its kernel says."""

from __future__ import annotations

from pathlib import Path


def catches(pid: int, number: int) -> bool:
    """Whether the process has a handler for this signal."""
    return _is_in("SigCgt", pid, number)


def ignores(pid: int, number: int) -> bool:
    """Whether this signal passes by the process."""
    return _is_in("SigIgn", pid, number)


def _is_in(mask: str, pid: int, number: int) -> bool:
    (line,) = (line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith(mask))
    return bool(int(line.split()[1], 16) >> (number - 1) & 1)
