"""What differs from the join that wrote a checkpoint, in the words of a job file: `join.before: 10m -> 30m`."""

from __future__ import annotations

from configfile.durations import written
from deploy.jobfile.joinkeys import WindowMatchKeys
from joins.belonging import Wording

_MS = "_ms"


def in_file(name: str, value: object) -> tuple[str, str]:
    """Returns the key of a value of a `JoinSpec`, and the value as a file has it."""
    side, _, field = name.rpartition(".")
    section = side or ("join" if field in WindowMatchKeys.model_fields else "")
    shown = written(value) if field.endswith(_MS) and isinstance(value, int) else repr(value)
    return ".".join(filter(None, (section, field.removesuffix(_MS)))), shown


IN_FILE = Wording(in_file, "let a new checkpoint go on where this one is (`teacup move`)")
