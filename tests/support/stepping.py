"""A process whose wall clock steps while it runs, by a small library that is loaded before all others (`stepping.c`).

libfaketime does more, and sometimes lets a sleep fail; in a server whose allocator reads the clock (jemalloc) it hangs.
"""

from __future__ import annotations

import subprocess
from pathlib import Path


class SteppingClock:
    """`environment` is that of the process. Its wall clock is right until it is set; its monotonic clock always is."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "stepped-clock"
        self.set(0)
        library, source = folder / "stepping.so", Path(__file__).with_name("stepping.c")
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True)
        self.environment = {"LD_PRELOAD": str(library), "STEPPED_CLOCK": str(self._file)}

    def set(self, off_s: int) -> None:
        """From now on, so many seconds ahead of the true time."""
        new = self._file.with_suffix(".new")
        new.write_text(f"{off_s:+d}\n")
        new.replace(self._file)
