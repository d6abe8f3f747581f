"""Where `teacup unjoined` keeps its verdicts: a file in the folder `unjoined` of the join's checkpoint.

It is JSON with a checksum, and is replaced as a whole by a new file that has reached the disk: whatever happens, the
old or the new one is there.
"""

from __future__ import annotations

import fsspec

from deploy.checkpoint import durable
from deploy.checkpoint.localfolder import local_folder
from joins.errors import SpecChanged
from joins.unjoined.expired import REMEDY, Verdicts
from kafkaio.checkedjson import checked_text, from_checked_text

FOLDER, FILE = "unjoined", "verdicts.json"


def folder_of(checkpoint: str) -> str:
    """Returns the folder of the state, in a join's checkpoint."""
    return f"{checkpoint.rstrip('/')}/{FOLDER}"


def load(checkpoint: str) -> Verdicts | None:
    """Reads what the last run left; None before the first one. Raises `SpecChanged` if it cannot be read."""
    files, root = fsspec.core.url_to_fs(folder_of(checkpoint))
    path = f"{root}/{FILE}"
    files.invalidate_cache()
    if not files.exists(path):
        return None
    try:
        return Verdicts.from_json(from_checked_text(files.cat_file(path).decode()))
    except (ValueError, KeyError, TypeError) as error:
        raise SpecChanged(f"{path} is damaged, or of another version ({error}): {REMEDY}") from error


def save(checkpoint: str, state: Verdicts) -> None:
    """Saves the state. It is durable when this returns; on an object store, as durable as its put."""
    text = checked_text(state.to_json()).encode()
    folder = local_folder(folder_of(checkpoint))
    if folder is None:
        files, root = fsspec.core.url_to_fs(folder_of(checkpoint))
        files.pipe_file(f"{root}/{FILE}", text)
        return
    durable.write(folder / FILE, text)
