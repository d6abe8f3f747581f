"""Prometheus metrics of every delay and of the API itself.

    teacup_data_delay_seconds{consumer,topic}                   absent while the delay is unknown
    teacup_data_delay_last_success_age_seconds{consumer,topic}  of the newest submission with a value; absent before it
    teacup_data_delay_last_submission_age_seconds{consumer,topic}
    teacup_data_delay_state{consumer,topic,state}               1 for the current state, 0 for the three others
    teacup_data_delay_requests_total{method,route,status}
    teacup_data_delay_refused_submissions_total{reason}         late, invalid

An unknown delay has no sample: 0 would read as "no delay", and NaN silences most alert rules. Alert on the state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from datadelay.model import Delay, DelayState


class DelayCollector(Collector):
    """Turns what is published at the moment of a scrape into samples."""

    def __init__(self, delays: Callable[[], Iterable[Delay]]) -> None:
        self._delays = delays

    def describe(self) -> list[GaugeMetricFamily]:
        """Returns nothing: it would otherwise be scraped to be registered."""
        return []

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Returns the four families."""
        labels = ["consumer", "topic"]
        seconds = GaugeMetricFamily(
            "teacup_data_delay_seconds",
            "Now minus `consumed_until`; missing while the delay is unknown.",
            labels=labels,
        )
        success = GaugeMetricFamily(
            "teacup_data_delay_last_success_age_seconds",
            "Age of the newest submission with a value; missing before the first.",
            labels=labels,
        )
        age = GaugeMetricFamily(
            "teacup_data_delay_last_submission_age_seconds", "Age of the newest submission.", labels=labels
        )
        state = GaugeMetricFamily(
            "teacup_data_delay_state", "1 for the current state, 0 for the others.", labels=[*labels, "state"]
        )
        for delay in self._delays():
            names = [delay.consumer, delay.topic]
            if delay.delay_ms is not None:
                seconds.add_metric(names, delay.delay_ms / 1000)
            if delay.success_ms is not None:
                success.add_metric(names, (delay.now_ms - delay.success_ms) / 1000)
            age.add_metric(names, delay.age_ms / 1000)
            for each in DelayState:
                state.add_metric([*names, each.value], float(each is delay.state))
        return [seconds, success, age, state]


class DelayMetrics:
    """The registry of one server."""

    def __init__(self, delays: Callable[[], Iterable[Delay]]) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(DelayCollector(delays))
        self.requests = Counter(
            "teacup_data_delay_requests",
            "Answered requests.",
            ["method", "route", "status"],
            registry=self.registry,
        )
        self.refused = Counter(
            "teacup_data_delay_refused_submissions",
            "Refused submissions: `late`, `invalid`.",
            ["reason"],
            registry=self.registry,
        )

    def text(self) -> bytes:
        """Returns all metrics in Prometheus' text format."""
        return generate_latest(self.registry)
