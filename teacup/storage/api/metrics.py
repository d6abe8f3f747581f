"""Prometheus metrics of the storage API.

    teacup_storage_requests_total{method,route,status}
    teacup_storage_items_total{namespace,operation,status}    operation: write, read, delete
    teacup_storage_seconds{operation}                         histogram: of requests, including body and answer
    teacup_storage_under_way                                  requests in progress, in all workers

With several workers each keeps its samples in files of a shared folder (prometheus_client's multiprocess mode), and the
one that is scraped adds them up, so that a scrape sees the whole server.
"""

from __future__ import annotations

import os
from collections import Counter as Counts
from collections.abc import Sequence
from operator import attrgetter
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

from teacup.storage.model import ReadResult, WriteResult

FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class StorageMetrics:
    """The counts of one worker."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.requests = Counter(
            "teacup_storage_requests", "Answered requests.", ["method", "route", "status"], registry=self._registry
        )
        self._items = Counter(
            "teacup_storage_items",
            "Items and keys of `write`, `read` and `delete`, by status.",
            ["namespace", "operation", "status"],
            registry=self._registry,
        )
        self.seconds = Histogram(
            "teacup_storage_seconds",
            "Histogram: duration of requests, including body and response.",
            ["operation"],
            buckets=_SECONDS,
            registry=self._registry,
        )
        self.under_way = Gauge(
            "teacup_storage_under_way",
            "Requests in progress, in all workers.",
            multiprocess_mode="livesum",
            registry=self._registry,
        )

    def count(self, namespace: str, operation: str, results: Sequence[WriteResult] | Sequence[ReadResult]) -> None:
        """Counts the results of one finished batch."""
        for status, number in Counts(map(attrgetter("status"), results)).items():
            self._items.labels(namespace, operation, status.value).inc(number)

    def text(self) -> bytes:
        """Returns Prometheus' text format, for all workers."""
        if FOLDER_VARIABLE not in os.environ:
            return generate_latest(self._registry)
        _forget_dead_workers(Path(os.environ[FOLDER_VARIABLE]))
        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry)


def _forget_dead_workers(folder: Path) -> None:
    """Drops the gauges of killed workers, whose requests have ended; their counters remain."""
    for file in folder.glob("gauge_live*_*.db"):
        pid = int(file.stem.rsplit("_", 1)[1])
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            mark_process_dead(pid)  # type: ignore[no-untyped-call]
