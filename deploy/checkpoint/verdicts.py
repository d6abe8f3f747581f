"""The state of `teacup unjoined`: a file in the folder `unjoined` of the join's checkpoint."""

from __future__ import annotations

from typing import Any

from deploy.checkpoint.join_checkpoint import Checkpoint
from joins.lookup.unjoined.expired import REMEDY, Verdicts

FOLDER, FILE = "unjoined", "verdicts.json"


def folder_of(checkpoint: str) -> str:
    """Returns the folder of the state, in a join's checkpoint."""
    return f"{checkpoint.rstrip('/')}/{FOLDER}"


def load(checkpoint: str) -> Verdicts | None:
    """Reads what the last run left; None before the first one. Raises `SpecChanged`, `CheckpointUnreadable`."""
    verdicts = Checkpoint(folder_of(checkpoint)).read_file(FILE, dict[str, Any], f"{REMEDY[0].upper()}{REMEDY[1:]}")
    return None if verdicts is None else Verdicts.from_json(verdicts)


def save(checkpoint: str, state: Verdicts) -> None:
    """Saves the state; as durable as `Checkpoint.keep`. Raises `CheckpointUnreadable`."""
    Checkpoint(folder_of(checkpoint)).write_file(FILE, state.to_json())
