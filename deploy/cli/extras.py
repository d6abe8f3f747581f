"""A command that needs an optional part which is not installed says what to install, in one line."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, requires
from typing import Any

import typer
from typer.core import TyperGroup

from kafkaio.exitcode import ExitCode

DISTRIBUTION = "teacup-joins"


class Commands(TyperGroup):
    """The commands of `teacup`. A missing module of an extra ends a command with a line that names the extra."""

    def invoke(self, ctx: Any) -> object:
        """Runs the command. A missing module that belongs to no extra is an error like any other."""
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as error:
            module = (error.name or "").partition(".")[0]
            extra = extra_of(module)
            if extra is None:
                raise
            wanted = f"{DISTRIBUTION}[{extra}]"
            typer.echo(f"{module} is not installed, and this command needs it: pip install '{wanted}'", err=True)
            raise typer.Exit(ExitCode.BAD_JOB_FILE) from error


def extra_of(module: str) -> str | None:
    """Returns the extra of this distribution that brings a module; None if no extra does."""
    try:
        declared = requires(DISTRIBUTION) or []
    except PackageNotFoundError:  # run from its sources, without being installed
        return None
    for requirement in declared:
        found = re.match(r"([A-Za-z0-9._-]+).*;.*\bextra == [\"'](\w+)[\"']", requirement)
        if found and found[1].replace("-", "_").lower() == module:
            return found[2]
    return None
