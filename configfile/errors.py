"""What is raised for a configuration that is not valid. Pure.

SettingsInvalid   a file, or a value in it, is not allowed; `problems` has every reason
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kafkaio.exitcode import ExitCode
from kafkaio.invalid import Invalid


class SettingsInvalid(Invalid, ValueError):
    """A configuration that is not valid; each of `problems` is a line, `where: what`."""

    exit_code = ExitCode.BAD_JOB_FILE

    def __init__(self, source: Path | str, problems: Sequence[str]) -> None:
        count = "1 error" if len(problems) == 1 else f"{len(problems)} errors"
        super().__init__("\n  ".join([f"{source}: {count}", *problems]))
        self.source = source
        self.problems = tuple(problems)
