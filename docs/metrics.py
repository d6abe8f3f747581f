"""Writes the tables of metrics into docs/reference.md, of jobs and of the two services: `python -m docs.metrics`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from prometheus_client.metrics import MetricWrapperBase

from datadelay.api.app import DelayCollector, DelayMetrics
from deploy.watch.measures import METRICS, Type
from docs.blocks import table, with_blocks
from teacup.storage.api.metrics import StorageMetrics

PAGE = Path(__file__).with_name("reference.md")


def rows() -> Iterator[tuple[str, str, str]]:
    """Name, labels and meaning of every metric."""
    for family in DelayCollector(list).collect():
        yield _row(family.name, family._labelnames, family.documentation)  # type: ignore[attr-defined]
    for counted in (DelayMetrics(list), StorageMetrics()):
        for one in vars(counted).values():
            if isinstance(one, MetricWrapperBase):
                (family,) = one.describe()
                name = f"{family.name}_total" if family.type == "counter" else family.name
                yield _row(name, one._labelnames, family.documentation)


def rows_of_jobs() -> Iterator[tuple[str, str, str]]:
    """The same of those of jobs."""
    for metric in METRICS:
        meaning = f"histogram: {metric.meaning}" if metric.type is Type.HISTOGRAM else metric.meaning
        yield _row(metric.full_name, metric.labels, meaning)


def with_table(page: str) -> str:
    """The page with the present tables."""
    rows_of = {"services": rows, "jobs": rows_of_jobs}
    return with_blocks(page, "metrics", lambda name: table(("metric", "labels", "meaning"), rows_of[name]()))


def _row(name: str, labels: tuple[str, ...], meaning: str) -> tuple[str, str, str]:
    return f"`{name}`", ", ".join(f"`{label}`" for label in labels), meaning[:1].lower() + meaning[1:].removesuffix(".")


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
