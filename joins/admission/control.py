"""How the planner of a join is controlled from outside."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sparkio.control import ReaderControl


@dataclass(frozen=True, kw_only=True)
class JoinControl(ReaderControl):
    """Controls the planner of a join. Beside what every reader has:

    generation   of a new checkpoint, if it is known before the first admission; None: a new one
    windows      the folder where tasks on this machine keep the facts of batches; None: this user's own
    facts        where the driver keeps them; None: in the same folder
    copied       windows are copied to where all machines find them: the log may have lost what they hold
    share_tasks  a Spark task may get several tickets of a small batch; a deduplicator waits for earlier writes at each
    """

    generation: str | None = None
    windows: Path | None = None
    facts: Path | None = None
    copied: bool = False
    share_tasks: bool = True

    @property
    def facts_folders(self) -> tuple[Path | None, ...]:
        """Returns where the facts of a batch may be; None: this user's own folder."""
        return tuple(dict.fromkeys((self.facts, self.windows)))
