"""A job and whoever listens to it: what `teacup run` opens around the runner.

`watched` gives the runner one listener that stands for all. With `metrics` in the job file, there is a server, and what
it shows; without, only lines, and nothing else is imported.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from deploy.job import CommonJob
from deploy.watch.lines import Lines
from deploy.watch.listener import Listener, Listeners
from teacup.base.now import wall_ms


@contextmanager
def watched(job: CommonJob, name: str, lines: Lines) -> Iterator[Listener]:
    """Opens all that listens to a job, and closes it in the end; name: of the job."""
    if job.metrics is None:
        yield Listeners(lines)
        return
    from deploy.watch.history import LastHour
    from deploy.watch.metrics import Metrics
    from deploy.watch.page import page_routes
    from deploy.watch.server import JobServer

    metrics, hour = Metrics(), LastHour(wall_ms)
    routes = {**metrics.routes(), **page_routes(hour)}
    server = JobServer(job.metrics.host, job.metrics.port, routes, name)
    server.start()
    try:
        yield Listeners(lines, metrics, hour)
    finally:
        server.close()
