"""The base of every model of a configuration file, and how its validators report problems at several keys. Pure.

Values that several kinds of files have: texts, addresses of APIs, properties of Kafka and Spark. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from teacup.base.fields import property_text

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


_API_URL = r"^https?://([^/?#@\s]*@)?(\[[0-9a-fA-F:.]+\]|[^/?#:@\[\]\s]+)(:\d+)?(/[^?#\s]*)?$"


def api_url(value: str) -> str:
    """Returns the address of an API.

    A path is allowed, because a proxy may put the API anywhere, but no call's path.
    """
    if not re.match(_API_URL, value):
        raise ValueError("give http(s)://host:port")
    if re.search(r"[^/]/v1(/|$)", value):
        raise ValueError("leave /v1 and what follows out, which each call adds")
    return value


def as_texts(given: object) -> object:
    """Returns properties as the text that Kafka and Spark take, YAML's numbers and `true` included."""
    if not isinstance(given, dict):
        return given  # the field itself reports the wrong type
    found = texts(given)
    if len(found) < len(given):
        raise at_keys((str(key), "give one value") for key in given if str(key) not in found)
    return found


def texts(given: Mapping[Any, object]) -> dict[str, str]:
    """Returns the properties that have one value, as text."""
    return {str(key): property_text(value) for key, value in given.items() if isinstance(value, str | int | float)}


Text = Annotated[str, Field(min_length=1)]
ApiUrl = Annotated[Text, AfterValidator(api_url)]
Properties = Annotated[dict[str, str], BeforeValidator(as_texts)]
