"""Which bearer tokens a header can hold. Pure."""

from __future__ import annotations

import re

NOT_SENDABLE = (
    "has characters that no header can hold, such as spaces, or a line break at its end: write it with `printf %s` "
    "in place of `echo`, also into a file for a Kubernetes secret"
)


def can_be_sent(token: str) -> bool:
    """Allows visible ASCII alone: a token from a file often ends with a line break, which is no part of it."""
    return re.fullmatch(r"[!-~]+", token) is not None
