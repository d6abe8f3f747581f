"""Values as producers write them that use a schema registry."""

from __future__ import annotations

import io
import struct
from typing import Any

import fastavro


def avro(number: int, schema: Any, value: Any) -> bytes:
    """A value of the schema with this id in the registry."""
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, schema, value)
    return struct.pack(">bI", 0, number) + stream.getvalue()
