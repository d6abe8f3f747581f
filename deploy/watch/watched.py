"""A job and whoever listens to it: what `teacup run` opens around the runner.

`watched` gives the runner one listener that stands for all. With `metrics` in the job file, there is a server, and what
it shows; with `lineage`, who reads and writes what is reported to a service; without, only lines, and nothing else is
imported.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

from deploy.job import CommonJob
from deploy.watch.lines import Lines
from deploy.watch.listener import Listener, Listeners
from teacup.base.now import wall_ms


@contextmanager
def watched(job: CommonJob, name: str, lines: Lines) -> Iterator[Listener]:
    """Opens all that listens to a job, and closes it in the end; name: of the job."""
    listeners: list[Listener] = [lines]
    with ExitStack() as opened:
        if job.metrics is not None:
            from deploy.watch.history import LastHour
            from deploy.watch.metrics import Metrics
            from deploy.watch.page import page_routes
            from deploy.watch.server import JobServer

            metrics, hour = Metrics(), LastHour(wall_ms)
            listeners += [metrics, hour]
            if job.metrics.otlp is not None:
                from deploy.watch.otlp import Otlp  # of an extra

                listeners.append(Otlp(job.metrics.otlp, metrics))
            routes = {**metrics.routes(), **page_routes(hour)}
            server = JobServer(job.metrics.host, job.metrics.port, routes, name)
            server.start()
            opened.callback(server.close)
        if job.lineage is not None:
            from deploy.watch.lineage import Lineage

            listeners.append(opened.enter_context(closing(Lineage(job.lineage))))
        yield Listeners(*listeners)
