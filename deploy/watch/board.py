"""What the jobs of a process show at one port: `/metrics`, `/livez`, `/readyz`, and the page.

    one job       `/` is its page.
    many jobs     `/` lists them, from `/v1/jobs`. The page and the probes of each are below `/jobs/NAME/`.
    the process   It is alive if all jobs are, because only a restart of the process helps a job that hangs. It is ready
                  if it does what it can (`deploy.watch.life.rule.all_ready`): a failed job does not affect the others.

A job is on the board from its first start on, even while it is down, and even if its file keeps it from starting. Its
counts continue across restarts.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Sequence
from urllib.parse import quote

from deploy.jobfile.job import CommonJob, MetricsAt
from deploy.watch.hour.history import LastHour
from deploy.watch.life.follower import Follower
from deploy.watch.life.own_lines import OwnLines
from deploy.watch.life.rule import all_ready
from deploy.watch.listener import Listeners
from deploy.watch.metrics import Metrics, metrics_routes, probe_routes, probed
from deploy.watch.page import list_routes, page_routes
from deploy.watch.server import JobServer, Request, Response, Route, Routes
from teacup.base.errors import ExitCode
from teacup.base.now import wall_ms


class BoardListeners(Listeners):
    """The listeners of a job: first the follower, because the others ask it."""

    def __init__(
        self, name: str, clock_ms: Callable[[], int] = wall_ms, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """name: of a job that has not been started yet."""
        self.follower = Follower(name, clock_ms)
        self.metrics, self.hour = Metrics(self.follower, clock), LastHour(self.follower, clock_ms)
        super().__init__(self.follower, self.metrics, self.hour)

    def restarts(self, at_ms: int) -> None:
        """Notes when the job will be started again after its run has ended."""
        self.follower.restarts(at_ms)
        self.hour.changed()

    def cannot_start(self, code: ExitCode, why: str) -> None:
        """Notes why the job could not be started."""
        self.follower.cannot_start(code, why)
        self.hour.changed()

    def routes(self) -> Routes:
        """Returns all routes of this job except for its numbers."""
        return {**page_routes(self.hour), **probe_routes(self.metrics)}


class Board:
    """Shows jobs from its creation until `close`."""

    def __init__(self, at: MetricsAt, name: str, *, many_jobs: bool = False) -> None:
        """Starts the server; `name` is its name in the log."""
        self._jobs: dict[str, BoardListeners] = {}
        self._errors: dict[str, OwnLines] = {}
        self._many_jobs, self._was_ready = many_jobs, False
        self._routes: dict[str, Route] = dict(metrics_routes(lambda: [shown.metrics for shown in self._jobs.values()]))
        if many_jobs:
            self._routes |= {**list_routes(), "/v1/jobs": self._list, "/livez": self._live, "/readyz": self._ready}
        self.server = JobServer(at.host, at.port, self._routes, name)
        self.server.start()

    @classmethod
    def of(cls, jobs: Sequence[CommonJob]) -> Board | None:
        """Returns the board of many jobs if any job file asks for one; all that do ask for the same port."""
        at = next((job.metrics for job in jobs if job.metrics is not None), None)
        return None if at is None else cls(at, f"{len(jobs)} jobs", many_jobs=True)

    def show(self, name: str) -> BoardListeners:
        """Returns the job's listeners, and puts it on the board if it is not there yet."""
        if name not in self._jobs:
            shown = self._jobs[name] = BoardListeners(name)
            self._routes |= {f"{self._place(name)}{path}": route for path, route in shown.routes().items()}
            job = name if self._many_jobs else ""
            self._errors[name] = OwnLines(job, logging.ERROR, lambda _, text: shown.follower.failed(text))
            logging.getLogger("teacup").addHandler(self._errors[name])
        return self._jobs[name]

    def forget(self, name: str) -> None:
        """Removes a job from the board."""
        if self._jobs.pop(name, None) is not None:
            logging.getLogger("teacup").removeHandler(self._errors.pop(name))
            for path in [path for path in self._routes if path.startswith(f"{self._place(name)}/")]:
                del self._routes[path]

    def close(self) -> None:
        """Closes the server and stops listening to the log."""
        for errors in self._errors.values():
            logging.getLogger("teacup").removeHandler(errors)
        self.server.close()

    def _place(self, name: str) -> str:
        return f"/jobs/{quote(name, safe='')}" if self._many_jobs else ""

    def _list(self, asked: Request) -> Response:
        rows = [
            {"name": name, "page": f"{self._place(name)[1:]}/", **shown.hour.now()}
            for name, shown in list(self._jobs.items())
        ]
        return Response(json.dumps({"now_ms": wall_ms(), "jobs": rows}).encode(), "application/json")

    def _live(self, asked: Request) -> Response:
        lives = {name: shown.metrics.lives() for name, shown in list(self._jobs.items())}
        says = "\n".join(f"{name}: {says}" for name, (_, says) in lives.items())
        return probed(says, fine=all(fine for fine, _ in lives.values()))

    def _ready(self, asked: Request) -> Response:
        lives = {name: shown.follower.life() for name, shown in list(self._jobs.items())}
        ready = all_ready([*lives.values()], was_ready=self._was_ready)
        self._was_ready |= ready
        return probed("\n".join(f"{name}: {life.line}" for name, life in lives.items()), fine=ready)
