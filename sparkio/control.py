"""How a streaming reader is controlled from outside."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from kafkaio.now import read_clocks


@dataclass(frozen=True, kw_only=True)
class ReaderControl:
    """The settings of a streaming reader.

    stop_file           while it exists, nothing more is planned: this makes a clean stop possible
    unreachable_for_s   how long an unreachable broker, or a clock that is wrong, only holds the reader
    commit_group        the consumer group that positions of committed batches go to, for readers that commit any;
                        None: none
    anchor              a trusted reading of this machine's wall clock, with that of its monotonic clock
    """

    stop_file: Path | None = None
    unreachable_for_s: float = 300.0
    commit_group: str | None = None
    anchor: tuple[int, int] = field(default_factory=lambda: read_clocks())

    @property
    def stopping(self) -> bool:
        """Whether nothing more is to be planned."""
        return self.stop_file is not None and self.stop_file.exists()
