"""What a job serves over HTTP: a server with some routes, and what it answers."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from deploy.watch.life.moment import JobState, Phase
from deploy.watch.measures import METRICS, Measured
from deploy.watch.server import JobServer, Routes


def one_of_each() -> list[Measured]:
    """A sample of every metric."""
    return [metric(1.5, **dict.fromkeys(metric.labels, "some")) for metric in METRICS]


@contextmanager
def served(routes: Routes, host: str = "127.0.0.1") -> Iterator[JobServer]:
    """A server with these routes, once it listens."""
    with closing(JobServer(host, 0, routes)) as server:
        server.start()
        assert server.listens.wait(60)
        yield server


def asked(server: JobServer, path: str, method: str = "GET", **headers: str) -> tuple[int, str, dict[str, str]]:
    """Status, body and headers of an answer."""
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=60)
    with closing(connection):
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), dict(answer.getheaders())


def state(**values: Any) -> JobState:
    """How a job is that runs, except for these."""
    return JobState(**{"at_ms": 0, "phase": Phase.RUNNING, **values})
