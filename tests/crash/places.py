"""Where the checkpoint of a job with a standby lies, as its processes see it: each of them as on a machine of its own.

folder   of this machine: the lock shows whether the other process has ended
shared   by several machines, with a file system on which the locks of other machines do not show
url      without locks: a driver of fsspec's, onto one folder

python -m tests.crash.places MACHINE run --standby job.yaml     the command on a machine of a shared folder
"""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

PLACES = ("folder", "shared", "url")

_DRIVER = '''"""What is at far://: a folder in which a file is there as a whole, or not at all."""

import os
import uuid

from fsspec.implementations.local import LocalFileSystem

ROOT = {root!r}


class FarFiles(LocalFileSystem):
    protocol = ("far",)

    def __init__(self, **options):
        super().__init__(**{{**options, "auto_mkdir": True}})

    @classmethod
    def _strip_protocol(cls, path):
        path = os.fspath(path)
        return f"{{ROOT}}/{{path.removeprefix('far://').rstrip('/')}}" if path.startswith("far://") else path

    def pipe_file(self, path, value, **options):
        path = self._strip_protocol(path)
        new = f"{{path}}.{{uuid.uuid4().hex}}.new"
        super().pipe_file(new, value, **options)
        os.replace(new, path)
'''


@dataclass(frozen=True, slots=True)
class Place:
    """What is different in a job file, its command and its environment; folder: where the files really are."""

    folder: Path
    changes: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    command: tuple[str, ...] = (sys.executable, "-m", "deploy.cli")


def place_of(name: str, folder: Path, machine: int = 0) -> Place:
    """The checkpoint of a job below a folder, as seen on a machine; whoever calls it first makes what it needs."""
    here = Place(folder / "checkpoint", changes={"checkpoint": str(folder / "checkpoint")})
    if name == "folder":
        return here
    if name == "shared":
        return replace(here, command=(sys.executable, "-m", __name__, str(machine)))
    far, driver = folder / "far", folder / "driver"
    (far / "state").mkdir(parents=True, exist_ok=True)
    (driver / "far-1.dist-info").mkdir(parents=True, exist_ok=True)
    (driver / "farfiles.py").write_text(_DRIVER.format(root=str(far)))
    (driver / "far-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: far\nVersion: 1\n")
    (driver / "far-1.dist-info" / "entry_points.txt").write_text("[fsspec.specs]\nfar = farfiles:FarFiles\n")
    path = os.pathsep.join(filter(None, [str(driver), os.environ.get("PYTHONPATH")]))
    return Place(
        far / "state" / "job",
        changes={"checkpoint": "far://state/job"},
        environment={"PYTHONPATH": path},
    )


def _on_a_machine(machine: str) -> None:
    """The command, with locks that no other machine sees."""
    from deploy.checkpoint import lock

    lock.LOCK_FILE = f"{lock.LOCK_FILE}.of-{machine}"
    lock.is_shared = lambda folder: True
    del sys.argv[1]
    runpy.run_module("deploy.cli", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _on_a_machine(sys.argv[1])
