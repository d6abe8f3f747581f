"""The state of `teacup unjoined`: a file in the folder `unjoined` of the join's checkpoint.

JSON with a checksum, replaced as a whole by a new file that has reached the disk.
"""

from __future__ import annotations

from typing import Any

import fsspec

from joins.errors import SpecChanged
from joins.lookup.unjoined.expired import REMEDY, Verdicts
from teacup.base import files
from teacup.base.fields import local_folder

FOLDER, FILE = "unjoined", "verdicts.json"


def folder_of(checkpoint: str) -> str:
    """Returns the folder of the state, in a join's checkpoint."""
    return f"{checkpoint.rstrip('/')}/{FOLDER}"


def load(checkpoint: str) -> Verdicts | None:
    """Reads what the last run left; None before the first one. Raises `SpecChanged` if it cannot be read."""
    storage, root = fsspec.core.url_to_fs(folder_of(checkpoint))
    path = f"{root}/{FILE}"
    storage.invalidate_cache()
    if not storage.exists(path):
        return None
    try:
        return Verdicts.from_json(files.from_checked_text(storage.cat_file(path).decode(), dict[str, Any]))
    except ValueError as error:
        raise SpecChanged(f"{path} is damaged, or of another version ({error}): {REMEDY}") from error


def save(checkpoint: str, state: Verdicts) -> None:
    """Saves the state. It is durable when this returns; on an object store, as durable as its put."""
    text = files.checked_text(state.to_json()).encode()
    folder = local_folder(folder_of(checkpoint))
    if folder is None:
        storage, root = fsspec.core.url_to_fs(folder_of(checkpoint))
        storage.pipe_file(f"{root}/{FILE}", text)
        return
    files.write(folder / FILE, text)
