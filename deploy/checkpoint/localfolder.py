"""Whether a checkpoint is a folder of this machine. Pure."""

from __future__ import annotations

import re
from pathlib import Path

_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*):(?://)?")


def local_folder(checkpoint: str) -> Path | None:
    """Returns the folder of a checkpoint given as a path or a `file:` URL; None for every other URL."""
    scheme = _SCHEME.match(checkpoint)
    if scheme is None:
        return Path(checkpoint)
    return Path(checkpoint[scheme.end() :]) if scheme[1].lower() == "file" else None
