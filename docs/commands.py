"""Writes the tables of options and exit codes into docs/commands.md, from the commands: `python -m docs.commands`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from deploy.cli.app import app
from docs.blocks import table, with_blocks
from teacup.base.errors import ExitCode

PAGE = Path(__file__).with_name("commands.md")


def commands(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Each command below this one, by what is typed."""
    inner = getattr(command, "commands", {})
    for name, one in inner.items():
        yield from commands(one, f"{path} {name}")
    if not inner:
        yield path, command


COMMANDS = dict(commands(typer.main.get_command(app), "teacup"))


def options_of(path: str) -> list[Any]:
    """The options of a command, but `--set`, of which the page speaks once."""
    return [one for one in COMMANDS[path].params if one.opts[0].startswith("-") and one.opts != ["--set"]]


def options(path: str) -> str:
    """The table of a command's options."""
    found = options_of(path)
    return table(("option", "meaning"), ((", ".join(f"`{opt}`" for opt in one.opts), _meaning(one)) for one in found))


def codes(_: str) -> str:
    """All exit codes."""
    return table(("exit code", "meaning"), ((str(one.value), one.meaning) for one in ExitCode))


def with_tables(page: str) -> str:
    """The page with the present tables."""
    return with_blocks(with_blocks(page, "options", options), "exit codes", codes)


def _meaning(option: Any) -> str:
    metavar = f"`{option.metavar}`: " if option.metavar else ""
    default = getattr(option.default, "value", option.default)
    more = " (required)" if option.required else "" if default in (None, False, "", []) else f" (default: `{default}`)"
    return metavar + re.sub(r"(--[a-z][a-z-]*)", r"`\1`", option.help) + more


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
