"""What the jobs of a process show at one port: `/metrics`, `/livez`, `/readyz`, and the page.

    one job    `/` is its page
    several    `/` lists them, from `/v1/jobs`; the page of each is at `/jobs/NAME/`. They live if all live, and are
               ready once all are. A job is on the board from its first start on, also while it is down

What a job has counted so far stays over its starts.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

from deploy.job import CommonJob, MetricsAt
from deploy.watch.history import LastHour
from deploy.watch.metrics import Metrics, metrics_routes
from deploy.watch.page import list_routes, page_routes
from deploy.watch.server import Answer, Asked, JobServer, Route
from teacup.base.now import wall_ms


@dataclass(frozen=True, slots=True)
class Shown:
    """What is shown of a job."""

    metrics: Metrics
    hour: LastHour


class Board:
    """Shows jobs from here to `close`."""

    def __init__(self, at: MetricsAt, name: str, *, several: bool = False) -> None:
        """name: what the log calls the server."""
        self._jobs: dict[str, Shown] = {}
        self._several = several
        self._routes: dict[str, Route] = dict(metrics_routes(lambda: [shown.metrics for shown in self._jobs.values()]))
        if several:
            self._routes |= {**list_routes(), "/v1/jobs": self._list}
        self.server = JobServer(at.host, at.port, self._routes, name)
        self.server.start()

    @classmethod
    def of(cls, jobs: Sequence[CommonJob]) -> Board | None:
        """Returns the board of several jobs, if the file of any asks for one; all that do ask for the same port."""
        at = next((job.metrics for job in jobs if job.metrics is not None), None)
        return None if at is None else cls(at, f"{len(jobs)} jobs", several=True)

    def show(self, name: str) -> Shown:
        """Puts a job on the board, unless it is there."""
        if name not in self._jobs:
            shown = self._jobs[name] = Shown(Metrics(), LastHour(wall_ms))
            self._routes |= {f"{self._place(name)}{path}": route for path, route in page_routes(shown.hour).items()}
        return self._jobs[name]

    def forget(self, name: str) -> None:
        """Takes a job from the board."""
        if self._jobs.pop(name, None) is not None:
            for path in [path for path in self._routes if path.startswith(f"{self._place(name)}/")]:
                del self._routes[path]

    def close(self) -> None:
        """Ends it; returns at once."""
        self.server.close()

    def _place(self, name: str) -> str:
        return f"/jobs/{quote(name, safe='')}" if self._several else ""

    def _list(self, asked: Asked) -> Answer:
        rows = []
        for name, shown in list(self._jobs.items()):
            state, says, lag = shown.hour.now()
            page = f"{self._place(name)[1:]}/"
            rows.append({"name": name, "page": page, "state": state, "says": says, "lag": lag})
        return Answer(json.dumps({"now_ms": wall_ms(), "jobs": rows}).encode(), "application/json")
