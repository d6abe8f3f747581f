"""Names whose values are never shown: in files, in properties of Kafka and Spark, in options of a store. Pure."""

from __future__ import annotations

import re

MASK = "***"
_SECRET = re.compile(
    r"password|secret|token|credential|sasl\.oauthbearer|key\.pem|access.?key|private|user\.info", re.IGNORECASE
)


def is_secret(name: str) -> bool:
    """The value of a key or property of this name must not appear in a message."""
    return _SECRET.search(name) is not None
