"""The base of every model of a configuration file, and how its validators report problems at several keys. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

Where = tuple[str | int, ...]
"""A place in a file: keys and list indexes from the top."""


class Keys(BaseModel):
    """A mapping with known keys only, frozen after validation. A key's name in the file is its alias, if it has one."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


def as_written(text: str) -> Any:
    """Returns a default as it would appear in a file; it is validated like a value of the file."""
    return text


def at_keys(problems: Iterable[tuple[Where | str, str]]) -> ValidationError:
    """Returns the error that a validator raises for problems at keys below its own. Pydantic adds its own place."""
    return ValidationError.from_exception_data(
        "keys",
        [
            InitErrorDetails(
                type=PydanticCustomError("at_key", "{what}", {"what": what}),
                loc=where if isinstance(where, tuple) else (where,),
                input=None,
            )
            for where, what in problems
        ],
    )
