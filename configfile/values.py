"""Values that several kinds of files have: texts, addresses of APIs, properties of Kafka and Spark. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from configfile.keys import at_keys
from kafkaio.fieldtypes import property_text

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
