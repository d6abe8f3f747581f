"""Finds and loads the C library, or says why there is none. Pure: the library works on memory, and opens nothing.

The file's name carries a digest of the C sources beside it, so that a library of other sources is never loaded.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
from functools import cache
from pathlib import Path

SOURCES = Path(__file__).parent / "c"
SWITCH = "TEACUP_NATIVE"
"""The environment variable that, set to `off`, leaves the library unused."""

_POINTER, _INT32, _INT64 = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64
_SIGNATURES: dict[str, tuple[type | None, tuple[type, ...]]] = {
    "tc_names": (ctypes.POINTER(ctypes.c_char_p), ()),
    "tc_bind": (None, (_POINTER,)),
    "tc_json_valid": (_INT32, (_POINTER, _POINTER, _POINTER, _INT64, _INT64, _POINTER)),
    "tc_avro_valid": (_INT64, (_POINTER, _POINTER, _INT64, _INT64, _POINTER, _INT64, _POINTER)),
    "tc_fetch_new": (_POINTER, (_POINTER,)),
    "tc_fetch_clear": (None, (_POINTER,)),
    "tc_fetch_free": (None, (_POINTER,)),
    "tc_fetch_take": (None, (_POINTER, _INT64, _INT64, _INT64, _INT64, _INT32, _POINTER)),
    "tc_fetch_columns": (_INT32, (_POINTER, _INT32, _POINTER)),
    "tc_producer_made": (_POINTER, ()),
    "tc_producer_free": (None, (_POINTER,)),
    "tc_producer_counts": (None, (_POINTER, _POINTER)),
    "tc_producer_in_flight": (_INT64, (_POINTER,)),
    "tc_producer_settled": (None, (_POINTER,)),
    "tc_produce": (_INT64, (_POINTER, ctypes.c_char_p, _POINTER, _INT64, _INT64, _POINTER)),
}


def path() -> Path:
    """Where the library of these sources is, or would be."""
    digest = hashlib.sha256()
    for source in sorted(SOURCES.glob("*.[ch]")):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return SOURCES.parent / f"libteacup-{digest.hexdigest()[:16]}.so"


def loaded() -> ctypes.CDLL | None:
    """The library; None if there is none. Threads may call it at the same time on different objects."""
    return _load()[0]


def missing() -> str | None:
    """Why there is no library; None if there is one."""
    return _load()[1]


def reload() -> None:
    """Look again for the library: it has been built since."""
    _load.cache_clear()


@cache
def _load() -> tuple[ctypes.CDLL | None, str | None]:
    if os.environ.get(SWITCH) == "off":
        return None, f"{SWITCH} is off"
    file = path()
    if not file.exists():
        return None, "the C library is not built for this platform; from a clone, `make venv` builds it"
    try:
        library = ctypes.CDLL(str(file))
    except OSError as error:
        return None, f"the C library cannot be loaded: {error}"
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library, None
