"""Commits the positions of a job's newest batch to its consumer group, even while nothing is read."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from deploy.watch.backlog import Positions
from teacup.base.now import Every
from teacup.kafka.errors import KafkaIOError

log = logging.getLogger("teacup")

RENEW_POSITIONS_EVERY_S = 60.0


class HasPositions(Protocol):
    """The part of `deploy.kinds.job_kind.JobKind` that is needed here."""

    name: str

    def positions(self, end: Mapping[str, Any]) -> Positions: ...

    def commit(self, end: Mapping[str, Any]) -> None: ...


class CommittedPositions:
    """Commits the positions of the newest batch again where that failed after the batch.

    Until the next batch, lag tools would show finished records as lag, and a lookup join's left would wait for records
    that are stored.

    They are also committed from time to time, because Kafka forgets the positions of a group without
    members `offsets.retention.minutes` (7 days) after the last commit, and others may delete or set them. A lookup join
    would then hold until its feeder is started again.
    """

    def __init__(self, kind: HasPositions, end: Callable[[], Mapping[str, Any]], renewal: Every | None = None) -> None:
        """end: where the newest committed batch ends; {} if there is none."""
        self._kind, self._end = kind, end
        self._renewal = renewal or Every(RENEW_POSITIONS_EVERY_S)
        self._seen: Mapping[str, Any] = {}
        self._committed: Mapping[str, Any] = {}

    def commit_when_idle(self) -> None:
        """Commits the newest end if two consecutive calls find the same one, and it was not committed lately."""
        end = self._end()
        if end == self._seen:
            self.commit(again=self._renewal.due())
        self._seen = end

    def commit(self, *, again: bool = False) -> None:
        """Commits the newest end, unless already done (again: even then); a failure is retried by the next call."""
        end = self._end()
        if not end or (end == self._committed and not again):
            return
        try:
            self._kind.commit(end)
        except KafkaIOError as error:
            log.warning("positions were not committed to group %r: %s", self._kind.name, error)
        else:
            self._committed = end

    def newest(self) -> Positions:
        """Returns how far the newest batch had read at the last look; empty if there was none."""
        return self._kind.positions(self._seen) if self._seen else {}

    def last(self) -> Positions:
        """Returns how far the newest batch of this run has read; empty if there was none."""
        end = self._end()
        return self._kind.positions(end) if end else {}
