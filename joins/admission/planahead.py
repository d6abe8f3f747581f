"""A plan for the next batch, made while the current one runs, from the facts that the current one is expected to find.

Ranges are only hints, and are applied to what the current batch really leaves (`Planned.rebased`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future

from joins.admission.admission import Planned
from joins.admission.state import Admission

log = logging.getLogger("teacup.joins.admission.planahead")


class PlanAhead:
    """Holds at most one plan; it is made in a thread."""

    def __init__(self) -> None:
        self._begun: tuple[int, Future[Planned | None]] | None = None

    def begin(self, number: int, make: Callable[[], Planned | None]) -> None:
        """Begins to make the plan for the batch after batch `number`."""
        future: Future[Planned | None] = Future()

        def plan() -> None:
            try:
                future.set_result(make())
            except Exception as error:  # noqa: BLE001 - planning in turn reports it
                log.debug("the plan ahead failed: %s", error)
                future.set_result(None)

        self._begun = (number, future)
        threading.Thread(target=plan, daemon=True).start()

    def take(self, state: Admission) -> Planned | None:
        """Returns the plan that was made ahead for `state`, if there is one and it still reads anything."""
        begun, self._begun = self._begun, None
        if begun is None:
            return None
        number, future = begun
        planned = future.result()
        if planned is None or state.number != number:
            return None
        ahead = planned.admission
        if ahead.topics != state.topics or ahead.skipped != state.skipped:
            return None  # partitions were added, or offsets deleted, which the state does not know of
        rebased = planned.rebased(state)
        return rebased if any(bucket.reads for bucket in rebased.admission.buckets.values()) else None
