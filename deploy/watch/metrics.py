"""The numbers of a job for Prometheus, and its probes: `/metrics`, `/livez`, `/readyz`.

Batches only change a few numbers in a dictionary (`Numbers`). Prometheus' format is produced, and `prometheus-client`
imported, only when it asks, in the server's thread.

    /livez    200 as long as the runner's loop turns, even while the job waits
    /readyz   200 if the job is ready (`deploy.watch.life`); the body has its state: `standby; waits for process 17`
"""

from __future__ import annotations

import platform
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from itertools import accumulate
from typing import TYPE_CHECKING

from deploy.watch import measures
from deploy.watch.concerns import ConcernNews
from deploy.watch.life.follower import Follower
from deploy.watch.life.moment import JobState, Phase
from deploy.watch.life.rule import State
from deploy.watch.listener import JobDescription, Listener, Report
from deploy.watch.measures import HELD_BY, JOB_LABEL, METRICS, REASONS_TO_WAIT, Measured, Metric, Type
from deploy.watch.server import Request, Response, Routes
from teacup.base.errors import ExitCode
from teacup.base.now import wall_ms

if TYPE_CHECKING:
    from prometheus_client.core import Metric as Family

STANDS_STILL_S = 60.0
"""The loop turns twice a second, but a call to unresponsive brokers may take half a minute."""


@dataclass(slots=True)
class Counted:
    """A histogram: the number of values in each bucket, the last one beyond all bounds, and the sum of the values."""

    counts: list[int]
    total: float = 0.0


class Numbers:
    """The values of all metrics, by label values. Thread-safe."""

    def __init__(self) -> None:
        self._simple: dict[Metric, dict[tuple[str, ...], float]] = {}
        self._counted: dict[Metric, dict[tuple[str, ...], Counted]] = {}
        self._lock = threading.Lock()

    def take(self, samples: Iterable[Measured]) -> None:
        """Adds samples: summed up, replaced or counted, depending on the metric."""
        with self._lock:
            for sample in samples:
                metric, labels, value = sample.metric, sample.labels, sample.value
                if metric.type is Type.HISTOGRAM:
                    empty = Counted([0] * (len(metric.buckets) + 1))
                    counted = self._counted.setdefault(metric, {}).setdefault(labels, empty)
                    counted.counts[bisect_left(metric.buckets, value)] += 1
                    counted.total += value
                    continue
                values = self._simple.setdefault(metric, {})
                values[labels] = value + (values.get(labels, 0.0) if metric.type is Type.COUNTER else 0.0)

    def simple(self, metric: Metric) -> Mapping[tuple[str, ...], float]:
        """Returns the values of a counter or gauge, by labels."""
        with self._lock:
            return dict(self._simple.get(metric, {}))

    def forget(self, metric: Metric) -> None:
        """Forgets the values of a counter or gauge that are no longer known."""
        with self._lock:
            self._simple.pop(metric, None)

    def counted(self, metric: Metric) -> Mapping[tuple[str, ...], Counted]:
        """Returns the counts of a histogram, by labels."""
        with self._lock:
            counts = self._counted.get(metric, {})
            return {labels: Counted(list(counted.counts), counted.total) for labels, counted in counts.items()}


class Metrics(Listener):
    """A listener that keeps the numbers; `follower` knows the state of the job."""

    def __init__(self, follower: Follower, clock: Callable[[], float] = time.monotonic) -> None:
        self.follower, self.numbers = follower, Numbers()
        self._clock, self._turned_s = clock, clock()
        self._description: JobDescription | None = None
        self._now = _not_known()
        self._waited: dict[str, float] = {}

    def opening(self, description: JobDescription) -> None:
        restarted, self._description, self._waited = self._description is not None, description, {}
        build = measures.BUILD(1, version=description.version, python=platform.python_version())
        self.numbers.take([build, measures.JOB(1, kind=description.kind), *description.zeros])
        self.numbers.take(metric(0) for metric in METRICS if metric.type is Type.COUNTER and not metric.labels)
        self.numbers.take([measures.RESTARTS(restarted)])
        if not restarted:  # a first batch that hangs is noticed, too
            self.numbers.take([measures.LAST_BATCH(wall_ms() / 1000)])
        self.numbers.take(measures.WAITING(0, reason=reason) for reason in REASONS_TO_WAIT)

    def moment(self, now: JobState) -> None:
        self._now, self._turned_s = now, self._clock()
        for reason, seconds in now.waited_s.items():
            self.numbers.take([measures.WAITING(seconds - self._waited.get(reason, 0.0), reason=reason)])
        self._waited = dict(now.waited_s)
        for failures in now.failures:
            self.numbers.take([measures.FAILED_ATTEMPTS(failures.count)])

    def told(self, told: ConcernNews) -> None:
        self.numbers.take([measures.WARNINGS(len(told.warnings))])

    def batch(self, report: Report) -> None:
        self.numbers.take(self.samples_of(report))

    def ended(self, code: ExitCode) -> None:
        self._now = _not_known()

    def samples_of(self, report: Report) -> Iterator[Measured]:
        """Yields the numbers of a batch that has just been carried out."""
        yield from report.samples()
        yield measures.BATCHES(1)
        yield measures.BATCH_SECONDS(report.seconds)
        yield measures.STAGE_SECONDS(self._now.plan_s, stage="plan")
        yield measures.LAST_BATCH(wall_ms() / 1000)

    def simple_now(self, metric: Metric) -> Mapping[tuple[str, ...], float]:
        """Returns the current values of a counter or gauge by labels, including those that change without a batch."""
        self.refresh()
        return self.numbers.simple(metric)

    @property
    def job(self) -> str:
        """The name of the job."""
        return self.follower.name

    def refresh(self) -> None:
        """Updates the numbers that change without a batch. The lag is forgotten once it is unknown."""
        if self._now.lag is None:
            self.numbers.forget(measures.LAG)
        self.numbers.take(list(self._at_this_moment()))

    def _at_this_moment(self) -> Iterator[Measured]:
        """Yields the numbers that are known at any moment, with or without batches."""
        now, description, follower = self._now, self._description, self.follower
        life = follower.life()
        yield measures.RUNNING(life.runs)
        yield from (measures.STATE(life.state is state, state=state) for state in State)
        held_by = life.reason if life.state is State.HELD else ""
        yield from (measures.HELD(held_by == reason, reason=reason) for reason in HELD_BY)
        yield measures.BROKERS(follower.brokers_up)
        if follower.last_code is not None:
            yield measures.LAST_EXIT_CODE(follower.last_code)
        if now.executors is not None:
            yield measures.EXECUTORS(now.executors)
            since_ms = now.no_executor_since_ms
            yield measures.NO_EXECUTOR(0.0 if since_ms is None else max(wall_ms() - since_ms, 0) / 1000)
        if now.lag is not None and description is not None:
            for topic, records in now.lag.records.items():
                if topic in description.sides:
                    yield measures.LAG(records, side=description.sides[topic])
        left_s = self.numbers.simple(measures.WATERMARK).get(("left",))
        if left_s is not None:
            sides = {} if description is None else description.sides
            lag = {} if now.lag is None else now.lag.records
            all_read = any(sides.get(topic) == "left" and not records for topic, records in lag.items())
            yield measures.BEHIND(0.0 if all_read else max(wall_ms() / 1000 - left_s, 0.0))

    def lives(self) -> tuple[bool, str]:
        """Returns whether the runner's loop turns, and a line about it."""
        life, stands_still_s = self.follower.life(), self._clock() - self._turned_s
        if stands_still_s > STANDS_STILL_S and (life.runs or life.state is State.STANDBY):
            return False, f"the loop has not turned for {stands_still_s:.0f} s"
        return True, life.line


def _not_known() -> JobState:
    return JobState(at_ms=wall_ms(), phase=Phase.STARTING)


class _Families:
    """The metric families of some jobs: what `prometheus-client` calls a collector."""

    def __init__(self, jobs: Sequence[Metrics]) -> None:
        self._jobs = jobs

    def collect(self) -> Iterator[Family]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        for job in self._jobs:
            job.refresh()
        for metric in METRICS:
            labels = (JOB_LABEL, *metric.labels)
            if metric.type is Type.HISTOGRAM:
                histogram = HistogramMetricFamily(metric.full_name, metric.meaning, labels=labels)
                bounds = [*map(str, metric.buckets), "+Inf"]
                for job in self._jobs:
                    for values, counted in job.numbers.counted(metric).items():
                        cumulated = list(zip(bounds, accumulate(counted.counts), strict=True))
                        histogram.add_metric((job.job, *values), cumulated, counted.total)
                yield histogram
                continue
            family = CounterMetricFamily if metric.type is Type.COUNTER else GaugeMetricFamily
            simple = family(metric.full_name, metric.meaning, labels=labels)
            for job in self._jobs:
                for values, value in job.numbers.simple(metric).items():
                    simple.add_metric((job.job, *values), value)
            yield simple


def metrics_routes(jobs: Callable[[], Sequence[Metrics]]) -> Routes:
    """Returns the route with the numbers of these jobs."""

    def metrics(asked: Request) -> Response:
        from prometheus_client import CollectorRegistry
        from prometheus_client.exposition import choose_encoder

        registry = CollectorRegistry()
        registry.register(_Families(jobs()))
        encode, content_type = choose_encoder(asked.headers.get("accept", ""))
        return Response(encode(registry), content_type)

    return {"/metrics": metrics}


def probe_routes(job: Metrics) -> Routes:
    """Returns the routes of a job's liveness and readiness probes."""

    def ready(_asked: Request) -> Response:
        life = job.follower.life()
        return probed(life.line, fine=life.ready)

    def lives(_asked: Request) -> Response:
        fine, says = job.lives()
        return probed(says, fine=fine)

    return {"/livez": lives, "/readyz": ready}


def probed(says: str, *, fine: bool) -> Response:
    """Returns the answer to a probe."""
    return Response.text(says, HTTPStatus.OK if fine else HTTPStatus.SERVICE_UNAVAILABLE)
