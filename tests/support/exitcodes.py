"""The exit code of a command's function, which either returns it or ends the command with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer


def code_of(command: Callable[..., int], *given: Any, **options: Any) -> int:
    """Calls it."""
    try:
        return command(*given, **options)
    except typer.Exit as ended:
        return ended.exit_code
