"""Finds and loads the C library. Pure: the library works on memory and opens nothing.

The file's name contains a digest of the C sources beside it, so a library built from other sources is never loaded.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from teacup.kafka.errors import LibraryMissing

SOURCES = Path(__file__).parent / "c"
POINTER, TEXT, INT, INT32, INT64 = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_int32, ctypes.c_int64

Signatures = Mapping[str, tuple[type | None, tuple[type, ...]]]
"""What each function of a library returns and takes."""

_SIGNATURES: Signatures = {
    "tc_names": (ctypes.POINTER(TEXT), ()),
    "tc_bind": (None, (POINTER,)),
    "tc_json_fields": (INT32, (POINTER, INT64, *(POINTER,) * 3, INT64, *(POINTER,) * 3)),
    "tc_json_texts": (None, (*(POINTER,) * 3, INT64, POINTER, POINTER)),
    "tc_json_values": (None, (POINTER, POINTER, INT64, POINTER, POINTER)),
    "tc_times": (None, (POINTER, INT64, INT32, POINTER, POINTER)),
    "tc_avro_valid": (INT64, (POINTER, POINTER, INT64, INT64, POINTER, INT64, POINTER)),
    "tc_fetch_new": (POINTER, (POINTER,)),
    "tc_fetch_clear": (None, (POINTER,)),
    "tc_fetch_free": (None, (POINTER,)),
    "tc_fetch_keep": (INT64, (POINTER, INT64)),
    "tc_fetch_take": (None, (POINTER, INT64, INT64, INT64, INT64, INT32, POINTER)),
    "tc_fetch_columns": (INT32, (POINTER, INT32, POINTER)),
    "tc_producer_made": (POINTER, ()),
    "tc_producer_free": (None, (POINTER,)),
    "tc_producer_counts": (None, (POINTER, POINTER)),
    "tc_producer_in_flight": (INT64, (POINTER,)),
    "tc_producer_lost": (INT64, (POINTER,)),
    "tc_producer_settled": (None, (POINTER,)),
    "tc_produce": (INT64, (POINTER, TEXT, POINTER, INT64, INT64, POINTER)),
}


def path() -> Path:
    """Returns where the library built from these sources is, or would be."""
    digest = hashlib.sha256()
    for source in sorted(SOURCES.glob("*.[ch]")):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return SOURCES.parent / f"libteacup-{digest.hexdigest()[:16]}.so"


@cache
def loaded() -> ctypes.CDLL:
    """Returns the library. Threads may call it at the same time on different objects. Raises `LibraryMissing`."""
    file = path()
    if not file.exists():
        raise LibraryMissing(
            f"the C library is missing ({file}): install the wheel of this platform; in a clone, run "
            "`python -m teacup.kafka.native.build`, which needs a C compiler or `pip install ziglang`"
        )
    try:
        library = ctypes.CDLL(str(file))
    except OSError as error:
        raise LibraryMissing(f"the C library cannot be loaded, it is of another platform: {error}") from error
    declare(library, _SIGNATURES)
    return library


def declare(library: ctypes.CDLL, signatures: Signatures) -> None:
    """Tells ctypes the types of these functions. Raises `AttributeError` if the library lacks one of them."""
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
