"""A real Prometheus scrapes a job of each kind: whatever query of the dashboard is about its metrics has an answer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from deploy.watch import measures
from deploy.watch.manifests import expressions
from deploy.watch.measures import METRICS, Metric
from teacup.base.errors import ExitCode
from teacup.base.now import wall_ms
from tests.deploy.jobs.conftest import here, window_job
from tests.joins.lookup.conftest import world
from tests.support.prometheus_server import WITHIN_S, asked, chosen, prometheus
from tests.support.sparkjoin import Put, produce
from tests.support.storage_process import TOKEN
from tests.support.waiting import wait_until

__all__ = ["here", "window_job", "world"]

pytestmark = pytest.mark.slow

WINDOW = {measures.WINDOW_RECORDS, measures.WINDOW_BYTES, measures.RESTORED, measures.RIGHT_LAG}
OTHERS = WINDOW | {measures.WATERMARK, measures.SLOWEST, measures.SENT, measures.FILTERING}
LACKS: dict[str, set[Metric]] = {
    "lookup-join": WINDOW,
    "feeder": OTHERS,
    "dedup": OTHERS | {measures.FASTEST, measures.DISORDER, measures.BEHIND, measures.LATE, measures.DEAD},
}
"""What a kind has no numbers of."""


@contextmanager
def job_of(kind: str, kafka: dict[str, str], world: Any, window_job: Any) -> Iterator[tuple[dict[str, Any], Any]]:
    """The content of its job file, and what writes records for it to read."""
    content = window_job(1, join={"before": "2s", "after": "1s"}, producer_delay="1s")
    left, right = (content[name]["topic"] for name in ("left", "right"))
    content |= {"trigger": {"every": "0s"}, "metrics": {"port": 0}}
    storage = {"url": world.url, "namespace": "right", "token": TOKEN}
    now = wall_ms()
    records = [Put(0, b"%d" % (i % 5), now - 60_000 + i * 100) for i in range(50)]
    with ExitStack() as stack:
        del content["window_folder"]
        if kind != "dedup":
            stack.enter_context(world.storage_here())
        if kind == "lookup-join":
            world.feed(records)
            world.publish(right, now)
            delay = {"url": world.delays.url, "consumer": "feeder", "token": world.delays.secrets["reader"]}
            yield {**content, "kind": kind, "storage": storage, "delay": delay}, lambda: produce(kafka, left, records)
            return
        del content["left"], content["join"], content["producer_delay"]
        if kind == "feeder":
            del content["output"]
            yield {**content, "kind": kind, "storage": storage}, lambda: produce(kafka, right, records)
            return
        del content["right"]
        content |= {"kind": kind, "source": {"topic": left}, "id": "key"}
        yield content, lambda: produce(kafka, left, records)


@pytest.mark.parametrize("kind", sorted(LACKS))
def test_every_query_that_applies_has_an_answer(kafka, kind, world, window_job, here, tmp_path, caplog):
    """As far as the kind has the metrics; those that it lacks are known, and only those are."""
    caplog.set_level("INFO", "teacup")
    applies = {
        expression
        for expression in expressions()
        if not any(metric.full_name in expression for metric in LACKS[kind])
        and (kind == "lookup-join" or 'outcome="matched"' not in expression)
    }
    assert len(applies) > 5
    with job_of(kind, kafka, world, window_job) as (content, fill), here.running(content) as running:
        running.until(lambda: "metrics at http://" in caplog.text, "metrics are served")
        (url,) = re.findall(r"metrics at (http://\S+)/metrics", caplog.text)
        with prometheus(tmp_path, url) as server:
            wait_until(lambda: bool(asked(server, "teacup_job_info")), lambda: "nothing is scraped", WITHIN_S)
            fill()
            silent = set(applies)

            def all_are_answered() -> bool:
                silent.difference_update([one for one in silent if asked(server, chosen(one))])
                return not silent

            wait_until(all_are_answered, lambda: f"without an answer: {sorted(silent)}", WITHIN_S)
            there = {metric for metric in METRICS if asked(server, f'{{__name__=~"{metric.full_name}(_count)?"}}')}

        assert not there & LACKS[kind], "it has numbers of these"
        assert running.stop() == ExitCode.DONE
