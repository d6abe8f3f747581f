"""Where a record of a simulated log carries its join key. Pure.

The key of an `Event` is the join key. A side that takes it from elsewhere than Kafka's key gets it there: in a field of
the value, which is then a JSON object, or in a header. Each part of a key of several parts holds it. Kafka's key is
then something else, so that nothing can be joined by it.
"""

from __future__ import annotations

import json
import re
from typing import Any

from joins.testing.history import Event
from kafkaio.recordkey import HEADER, KAFKA, KeyOf

Headers = list[tuple[str, bytes | None]]


def carried(key_of: KeyOf, event: Event) -> tuple[bytes | None, Headers | None, bytes | None]:
    """Returns Kafka's key, headers and value of a record. Raises ValueError for a path through an array."""
    if key_of.is_kafkas:
        return event.key, None, event.value
    own = event.key if KAFKA in key_of.parts else b"%d" % event.offset
    named = [part.removeprefix(HEADER) for part in key_of.parts if part.startswith(HEADER)]
    headers: Headers = [] if event.key is None else [(name, event.key) for name in named]
    value = event.value
    for path in key_of.paths:
        value = _with(value, path, None if event.key is None else event.key.decode())
    return own, headers or None, value


def _with(value: bytes | None, path: str, key: str | None) -> bytes | None:
    if key is None:
        return value
    names = [name.strip('"') for name in re.findall(r'\.("[^"]+"|[\w-]+)', path)]
    if "[" in path:
        raise ValueError(f"key: {path!r} leads through an array; a simulated log has objects only")
    whole: dict[str, Any] = {} if value is None else json.loads(value)
    inner = whole
    for name in names[:-1]:
        inner = inner.setdefault(name, {})
    inner[names[-1]] = key
    return json.dumps(whole).encode()
