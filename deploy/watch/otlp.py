"""The same numbers for OpenTelemetry: sent by OTLP over HTTP, with `opentelemetry-sdk` (extra `otlp`).

At each export, counters and gauges are read from the same place as for Prometheus; only durations are recorded batch by
batch. The SDK exports in a thread of its own. If the receiver does not answer, this is logged now and then, and the
next export has the complete counts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.metrics import CallbackOptions, Meter, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource

from deploy.watch.listener import JobDescription, Listener, Report
from deploy.watch.measures import METRICS, Measured, Metric, Type
from deploy.watch.metrics import Metrics
from teacup.base.errors import ExitCode
from teacup.base.logs import Sparse
from teacup.base.process import begun

EVERY_MS = 15_000
WITHIN_S = 5.0
"""Timeout of an export, including the last one at the end of a job."""
SAY_EVERY_S = 600.0

logging.getLogger("opentelemetry").setLevel(logging.ERROR)
for _name in ("exporter.otlp.proto.http.metric_exporter", "sdk.metrics._internal.export"):
    logging.getLogger(f"opentelemetry.{_name}").addFilter(Sparse(SAY_EVERY_S))


class Otlp(Listener):
    """A listener that sends the numbers of `metrics`, and so must come after it among the listeners."""

    def __init__(self, url: str, metrics: Metrics) -> None:
        """`url` is the receiver's: `http(s)://host:port`."""
        self._url, self._metrics = url.rstrip("/"), metrics
        self._provider: MeterProvider | None = None
        self._durations: dict[Metric, Any] = {}

    def opening(self, description: JobDescription) -> None:
        resource = Resource.create({"service.name": description.name, "service.namespace": "teacup"})
        exporter = OTLPMetricExporter(endpoint=f"{self._url}/v1/metrics", timeout=WITHIN_S)
        reader = PeriodicExportingMetricReader(exporter, export_interval_millis=EVERY_MS)
        self._provider = MeterProvider([reader], resource, shutdown_on_exit=False)
        meter = self._provider.get_meter("teacup", description.version)
        for metric in METRICS:
            self._make(meter, metric)

    def batch(self, report: Report) -> None:
        self.take(self._metrics.samples_of(report))

    def take(self, samples: Iterable[Measured]) -> None:
        """Records the samples of histograms. Counters and gauges are read at each export."""
        for sample in samples:
            if sample.metric.type is Type.HISTOGRAM:
                self._durations[sample.metric].record(sample.value, sample.by_name)

    def ended(self, code: ExitCode) -> None:
        if self._provider is not None:
            provider = self._provider
            done = begun(lambda: provider.shutdown(WITHIN_S * 1_000))
            try:
                done.result(WITHIN_S)
            except TimeoutError:
                logging.getLogger("teacup").warning(
                    "metrics were not sent to %s in the end: it does not answer", self._url
                )

    def _make(self, meter: Meter, metric: Metric) -> None:
        name = metric.full_name.removesuffix("_total")
        unit = next((unit for word, unit in _UNITS.items() if word in name), "")
        match metric.type:
            case Type.COUNTER:
                meter.create_observable_counter(name, [self._values(metric)], unit, metric.meaning)
            case Type.GAUGE:
                meter.create_observable_gauge(name, [self._values(metric)], unit, metric.meaning)
            case Type.HISTOGRAM:
                self._durations[metric] = meter.create_histogram(
                    name, unit, metric.meaning, explicit_bucket_boundaries_advisory=metric.buckets
                )

    def _values(self, metric: Metric) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def observed(_options: CallbackOptions) -> Iterable[Observation]:
            return [
                Observation(value, Measured(metric, value, labels).by_name)
                for labels, value in self._metrics.simple_now(metric).items()
            ]

        return observed


_UNITS = {"_seconds": "s", "_bytes": "By"}
