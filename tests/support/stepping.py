"""A process whose clock steps while it runs, by libfaketime; `tests/install-libfaketime.sh` installs it.

libfaketime allocates when it is first called, and hangs in a server whose allocator reads the clock before that (Redis
and Aerospike, with jemalloc): these get `stepping.c`.
"""

from __future__ import annotations

import subprocess
from pathlib import Path


class SteppingClock:
    """`environment` is that of the process. Its wall clock is right until it is set; its monotonic clock always is."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "faketime"
        self.set(0)
        self.environment = {
            "LD_PRELOAD": _library(),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }

    def set(self, off_s: int) -> None:
        """From now on, so many seconds ahead of the true time."""
        new = self._file.with_suffix(".new")
        new.write_text(f"{off_s:+d}\n")
        new.replace(self._file)


class SteppingServerClock(SteppingClock):
    """The same for a server with an allocator of its own."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        library = folder / "stepping.so"
        source = Path(__file__).with_name("stepping.c")
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
        self.environment = {"LD_PRELOAD": str(library), "STEPPED_CLOCK": str(self._file)}


def _library() -> str:
    found = [*Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), *Path("/usr/lib").glob("faketime/*MT.so.1")]
    assert found, "libfaketime is missing: run tests/install-libfaketime.sh"
    return str(found[0])
