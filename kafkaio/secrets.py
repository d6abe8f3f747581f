"""What is never shown: values of names in files, in properties of Kafka and Spark, passwords in URLs. Pure."""

from __future__ import annotations

import re

MASK = "***"
_SECRET = re.compile(
    r"password|secret|token|credential|sasl\.oauthbearer|key\.pem|access.?key|private|user\.info", re.IGNORECASE
)


_BEFORE_HOST = re.compile(r"(://[^/@:]*):.*@", re.DOTALL)
_IN_QUERY = re.compile(r"([?&][^=&]*password=)[^&]*", re.IGNORECASE)


def without_password(url: str) -> str:
    """Returns a URL as it may appear in a message; also a wrong one, whose password is not percent-encoded."""
    return _IN_QUERY.sub(rf"\1{MASK}", _BEFORE_HOST.sub(rf"\1:{MASK}@", url))


def is_secret(name: str) -> bool:
    """Returns whether the value of a key or property of this name must not appear in a message."""
    return _SECRET.search(name) is not None
