"""What a join's checkpoint says before Spark starts: its generation, and the batch that it planned last.

The generation of a checkpoint without any batch is created here, and kept in the file `teacup.generation`: receipts
carry it before the first batch is planned, and a start that dies in between is continued, not started over.
"""

from __future__ import annotations

import json
import uuid

from deploy.errors import CheckpointUnreadable
from deploy.jobs import durable
from deploy.jobs.localfolder import local_folder
from joins.admission.state import Admission
from joins.spec import JoinSpec
from sparkio.checkpoint import SparkLogs

GENERATION = "teacup.generation"


class Checkpoint:
    """A folder, or any URL that fsspec has a driver for. Calls raise `CheckpointUnreadable`."""

    def __init__(self, location: str) -> None:
        self._location, self._folder = location, local_folder(location)
        try:
            self._logs = SparkLogs.at(str(self._folder) if self._folder else location)
        except (ImportError, ValueError, OSError) as error:
            raise self._unreadable(
                f"{error}. Receipts in Kafka are compared with it: install the fsspec driver of its file system"
            ) from error

    def planned(self, spec: JoinSpec) -> Admission | None:
        """The batch that was planned last; None if none was. Raises `SpecChanged` for another join's checkpoint."""
        try:
            planned = self._logs.planned()
        except Exception as error:  # each file system raises errors of its own
            raise self._unreadable(f"{type(error).__name__}: {error}") from error
        if not planned:
            return None
        try:
            end, *_ = self._logs.ends(planned[-1])
            data = {} if end is None else json.loads(end)
        except ValueError as error:
            raise self._unreadable(
                f"`offsets/{planned[-1]}` is cut off ({error}), as after a power loss. Remove it, and "
                f"`commits/{planned[-1]}` if that exists: at the next start the receipts in Kafka tell whether "
                "anything of the batch is in the output"
            ) from error
        except Exception as error:
            raise self._unreadable(f"{type(error).__name__}: {error}") from error
        if not data:  # a job that was stopped before anything was planned has an empty batch
            return None
        admission = Admission.from_json(data)
        admission.check_belongs_to(spec)
        return admission

    def generation(self) -> str:
        """The generation of a checkpoint without any plan yet; created if missing. Durable when this returns."""
        path = f"{self._logs.root}/{GENERATION}"
        try:
            if self._logs.files.exists(path):
                return str(self._logs.files.cat_file(path).decode().strip())
            generation = uuid.uuid4().hex
            if self._folder is not None:
                durable.write(self._folder / GENERATION, f"{generation}\n".encode())
            else:
                self._logs.files.pipe_file(path, f"{generation}\n".encode())
        except Exception as error:  # each file system raises errors of its own
            raise self._unreadable(f"{GENERATION}: {type(error).__name__}: {error}") from error
        return generation

    def _unreadable(self, why: str) -> CheckpointUnreadable:
        return CheckpointUnreadable(f"checkpoint {self._location!r} cannot be read: {why}")
