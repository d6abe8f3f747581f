"""The feeder while its parts fail: every record is stored before its position is committed, and nothing is lost."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deploy.broker.lifeline import free_port
from joins.errors import CallRefused, NoRetention, StoreUnreachable
from joins.lookup.feed import stage
from joins.lookup.feed.source import FeedReader
from joins.lookup.feed.spec import FeedSpec, FeedStorage
from joins.lookup.feed.stage import FeedTask, FeedTicket
from joins.spec import Format, Side
from teacup.base.errors import ExitCode
from teacup.base.now import wall_ms
from teacup.kafka.log.groups import GroupOffsets
from teacup.spark.stream_reader import ReaderControl
from tests.support.faultyproxy import Proxy, closed, half_a_body, nonsense, passed_on, running_proxy, slow, status
from tests.support.feeding import Feeding, feeding_process, stored
from tests.support.jobprocess import JobProcess, records
from tests.support.sparkjoin import Put, produce
from tests.support.storage_process import TOKEN, server_here, server_process
from tests.support.waiting import wait_until

NAMESPACES = [{"name": "right", "keep": "all", "bound": 4, "retention": "1h"}]
COUNT = 60
HOUR_MS = 3_600_000


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def proxy(port: int) -> Iterator[Proxy]:
    """Between the feeder and its store."""
    with running_proxy(f"http://127.0.0.1:{port}") as running:
        running.only = "items:write"
        yield running


@pytest.fixture
def spec(kafka: dict[str, str], topic_factory: Any, proxy: Proxy) -> FeedSpec:
    """A feeder of two partitions, with a few requests per batch; each record has a key of its own."""
    name = topic_factory(2, prefix="right")
    made = FeedSpec(
        name=f"feeder-{name}",
        right=Side(topic=name, disorder_ms=100),
        storage=FeedStorage(
            url=proxy.url, namespace="right", token=TOKEN, items_per_request=5, read_timeout_s=0.5, unreachable_for_s=60
        ),
        max_records=20,
        kafka=kafka,
    )
    now_ms = wall_ms()
    produce(dict(made.kafka), name, [Put(i % 2, b"k%d" % i, now_ms + i) for i in range(COUNT)])
    return made


def stored_keys(spec: FeedSpec) -> list[bytes]:
    return [key for key, _, _ in stored(spec, *(b"k%d" % i for i in range(COUNT)))]


def all_keys() -> list[bytes]:
    return [b"k%d" % i for i in range(COUNT)]


def committed(spec: FeedSpec) -> int:
    groups = GroupOffsets(spec.name, spec.kafka)
    found = groups.read([(spec.right.topic, p) for p in range(2)])
    groups.close()
    return sum(offset or 0 for offset in found.values())


def test_a_store_that_refuses_for_a_while_fails_and_answers_nonsense_gets_every_record(
    spec: FeedSpec, port: int, proxy: Proxy, tmp_path: Path
) -> None:
    """429 is waited out as requested, lost and spoilt answers are retried; each record is stored once."""
    faults = [status(429, {"Retry-After": "1"}), status(429), half_a_body, closed, passed_on, slow, status(503)]
    proxy.faults = [*faults, nonsense, status(500), closed]

    with server_here(tmp_path / "store", port, namespaces=NAMESPACES):
        summaries = Feeding(spec).feed()
        found = stored_keys(spec)

    assert not proxy.faults
    assert sum(summary.stored for summary in summaries) == COUNT
    assert found == all_keys()


class Unreachable:
    """A store that takes nothing."""

    def write(self, *_: object) -> Future[Any]:
        refused: Future[Any] = Future()
        refused.set_exception(StoreUnreachable("nothing was stored"))
        return refused

    def check_generation(self, fed: str) -> None:
        """It is still that."""


def test_canary_without_waiting_for_the_store_a_task_reports_what_is_not_stored(
    spec: FeedSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its batch would be committed, and the records would never be read again."""
    monkeypatch.setattr(stage, "store_of", lambda _: Unreachable())
    ticket = FeedTicket(0, 0, COUNT // 2, None, 1, 1, wall_ms() + HOUR_MS, HOUR_MS, "g")

    with pytest.raises(StoreUnreachable):
        FeedTask(spec, ticket).run()
    monkeypatch.setattr(FeedTask, "_settle", lambda *_: None)
    reported = FeedTask(spec, ticket).run()

    assert (reported.read, reported.end) == (COUNT // 2, COUNT // 2)


def test_a_store_that_is_unreachable_for_too_long_stops_the_feeder_which_continues_from_its_checkpoint(
    spec: FeedSpec, port: int, proxy: Proxy, tmp_path: Path
) -> None:
    """Killed in the middle of a batch; no position beyond what is stored was committed."""
    hasty = replace(spec, storage=replace(spec.storage, unreachable_for_s=0.5))

    with server_process(tmp_path / "store", port, namespaces=NAMESPACES) as (process, _):

        def kill(handler: Any, forward: Any) -> None:
            process.kill()
            process.wait()
            passed_on(handler, forward)

        proxy.faults = [passed_on] * 6 + [kill]
        feeding = Feeding(hasty)
        with pytest.raises(StoreUnreachable, match="start the storage API"):
            feeding.feed()
    with server_here(tmp_path / "store", port, namespaces=NAMESPACES):
        survived, before = stored_keys(spec), committed(spec)
        feeding.spec = spec
        feeding.feed()
        found = stored_keys(spec)

    assert before <= len(survived) < COUNT
    assert found == all_keys()
    assert committed(spec) >= before


def test_a_feeder_killed_in_the_middle_of_a_batch_loses_nothing(
    spec: FeedSpec, port: int, proxy: Proxy, tmp_path: Path
) -> None:
    """kill -9 with a request in flight; the next one repeats the batch, and completes the work."""
    proxy.faults = [passed_on] * 6 + [slow] * 100

    with server_here(tmp_path / "store", port, namespaces=NAMESPACES):
        process = feeding_process(spec, tmp_path / "checkpoint")
        wait_until(lambda: len(proxy.faults) < 100 or not process.is_alive())
        process.kill()
        process.join()
        before = committed(spec)
        proxy.faults = []
        repeated = Feeding(spec, file=tmp_path / "checkpoint").feed()
        found = stored_keys(spec)

    assert 0 < before < COUNT
    assert sum(summary.read for summary in repeated) == COUNT - before
    assert found == all_keys()


@pytest.mark.slow
def test_a_feeder_job_killed_in_the_middle_of_a_batch_loses_nothing(
    spec: FeedSpec, port: int, proxy: Proxy, tmp_path: Path
) -> None:
    """The same with Spark's checkpoint, which the next start of the job continues."""
    job = {
        "name": spec.name,
        "kind": "feeder",
        "kafka": dict(spec.kafka),
        "right": {"topic": spec.right.topic, "disorder": "100ms"},
        "storage": {"url": proxy.url, "namespace": "right", "token": TOKEN, "items_per_request": 5},
        "records_per_batch": 20,
        "checkpoint": str(tmp_path / "c"),
        "trigger": "available_now",
    }
    proxy.faults = [passed_on] * 6 + [slow] * 100

    with server_here(tmp_path / "store", port, namespaces=NAMESPACES):
        process = JobProcess(tmp_path, job)
        process.until(lambda: len(proxy.faults) < 100, "a write is under way")
        process.kill()
        before = committed(spec)
        proxy.faults = []
        assert JobProcess(tmp_path, job).ended() == ExitCode.DONE
        found = stored_keys(spec)

    assert before < COUNT
    assert found == all_keys()


def test_times_in_the_payload_decide_and_records_without_one_are_dead_letters(
    spec: FeedSpec, port: int, topic_factory: Any, tmp_path: Path
) -> None:
    """Milliseconds or ISO-8601; Kafka's timestamp, an hour old here, counts for nothing."""
    now_ms = wall_ms()
    topic = topic_factory(1)
    spec = replace(
        spec,
        right=Side(topic=topic, time="$.at", format=Format.JSON, disorder_ms=100),
        dead_letter=topic_factory(1),
    )
    iso = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now_ms // 1000))
    values = [b'{"at": %d}' % now_ms, b'{"at": "%s"}' % iso.encode(), b'{"at": null}', b"no json", b'{"at": 9e15}']
    produce(dict(spec.kafka), topic, [Put(0, b"k%d" % i, now_ms - HOUR_MS, v) for i, v in enumerate(values)])

    with server_here(tmp_path / "store", port, namespaces=NAMESPACES):
        (summary,) = Feeding(spec).feed()
        found = stored(spec, *(b"k%d" % i for i in range(5)))

    assert [(key, time_ms) for key, time_ms, _ in found] == [(b"k0", now_ms), (b"k1", now_ms // 1000 * 1000)]
    assert summary.stored == 2
    assert sum(summary.dead.values()) == 3
    assert sorted(record["key"] for record in records(spec.kafka, spec.dead_letter or "")) == [b"k2", b"k3", b"k4"]


def test_a_compacted_topic_is_refused_unless_configured_to_continue(
    kafka: dict[str, str], topic_factory: Any, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records that compaction removes unread would never be stored: a lag of a day is required, or consent."""
    monkeypatch.setattr("joins.lookup.feed.source.ONE_TRY_S", 0.1)
    made = {
        "name": "feeder",
        "storage": FeedStorage(url=f"http://127.0.0.1:{port}", namespace="right", token=TOKEN, unreachable_for_s=0.1),
        "kafka": kafka,
    }
    compacted = topic_factory(1, {"cleanup.policy": "compact"})
    patient = topic_factory(1, {"cleanup.policy": "compact", "min.compaction.lag.ms": str(24 * HOUR_MS)})

    def look(topic: str, **more: Any) -> str:
        reader = FeedReader(FeedSpec(right=Side(topic=topic), **made, **more), ReaderControl())
        with pytest.raises(Exception) as raised:  # noqa: PT011 - only the unreachable store is reported
            reader.latest({})
        reader.disconnect()
        return f"{type(raised.value).__name__}: {raised.value}"

    refusal = look(compacted)
    assert refusal.startswith("DataLoss: topic ")
    assert "86400000 or more" in refusal
    assert look(patient).startswith("StoreUnreachable")
    assert look(compacted, on_data_loss="continue").startswith("StoreUnreachable")


def test_a_page_of_something_else_is_waited_out_where_the_api_has_answered(
    spec: FeedSpec, port: int, proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A load balancer that has no API behind it for a moment answers 404, in HTML."""
    monkeypatch.setattr("joins.lookup.feed.source.STORE_POLL_EVERY_S", 0.0)
    reader = FeedReader(spec, ReaderControl())

    with server_here(tmp_path / "store", port, namespaces=NAMESPACES):
        begun = reader.latest({})
        proxy.only, proxy.faults = "namespaces", [status(404), nonsense, status(502)]
        following = reader.latest(begun)
    reader.disconnect()

    assert not proxy.faults
    assert following["number"] == begun["number"] + 1


def test_a_page_where_the_api_has_never_answered_ends_the_feeder_at_once(spec: FeedSpec, proxy: Proxy) -> None:
    """The URL leads to something else."""
    proxy.only, proxy.faults = "namespaces", [status(404)]
    reader = FeedReader(spec, ReaderControl())

    with pytest.raises(CallRefused, match=r"404 .*`storage\.url`"):
        reader.latest({})
    reader.disconnect()


def test_a_wrong_token_ends_the_feeder_at_once(spec: FeedSpec, port: int, tmp_path: Path) -> None:
    """Nobody waits five minutes for it."""
    wrong = replace(spec, storage=replace(spec.storage, token="wrong"))
    reader = FeedReader(wrong, ReaderControl())

    with server_here(tmp_path / "store", port, namespaces=NAMESPACES), pytest.raises(CallRefused, match=r" 401 "):
        reader.latest({})
    reader.disconnect()


def test_a_namespace_without_retention_ends_the_feeder_at_once(spec: FeedSpec, port: int, tmp_path: Path) -> None:
    """With a remedy that the store accepts: the retention of an existing namespace cannot be raised."""
    reader = FeedReader(spec, ReaderControl())

    with (
        server_here(tmp_path / "store", port, namespaces=[{"name": "right"}]),
        pytest.raises(NoRetention, match=r"'right'.*`retention`"),
    ):
        reader.latest({})
    reader.disconnect()
