"""What the APIs of a feeder and a lookup join say before the first start."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import polars as pl
import pytest

from deploy.broker.lifeline import free_port
from deploy.check.findings import Finding, Level
from deploy.check.lookup_findings import of_feeder, of_lookup
from joins import DelayApi, JoinSpec, Right, Side, StorageApi, Store
from joins.lookup.feed.spec import FeedSpec, FeedStorage
from joins.lookup.gate import CONSUMER, STORE
from joins.lookup.right_items import to_items
from joins.plan.start.startup_sample import Sample
from joins.rows.frames import OWN_KEY, RECORD
from teacup.base.errors import ExitCode
from teacup.base.now import wall_ms
from tests.support import delay_server
from tests.support.making import changed
from tests.support.storage_process import TOKEN, client, server_process
from tests.support.submitted import RIGHT, submission

HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JoinSpec]:
    """A lookup join between both APIs; nothing is fed yet."""
    folder, port = tmp_path_factory.mktemp("services"), free_port()
    (folder / "delay").mkdir()
    names = [
        {"name": "right", "keep": "all", "bound": 100, "retention": "1h"},
        {"name": "latest", "retention": "1h"},
    ]
    with (
        delay_server.running_server(folder / "delay") as delays,
        server_process(folder / "storage", port, namespaces=names),
    ):
        delays.clock.now_ms = wall_ms()
        with delays.client() as collector:
            for consumer, store in (("elsewhere", "another-store"), ("unclear", None)):
                collector.submit(submission(consumer, store))
        storage = StorageApi(url=f"http://127.0.0.1:{port}", namespace="right", token=TOKEN)
        delay = DelayApi(url=delays.url, consumer="feeder", token=delays.secrets["reader"])
        right = Right(topic=RIGHT.topic, before_ms=60_000, source=Store(storage=storage, delay=delay))
        yield JoinSpec(name="j", left=Side(topic="clicks"), right=right)


def feed(spec: JoinSpec, namespace: str, *keys: bytes, own_key: bool = False) -> None:
    """Right records of now."""
    rows = [
        {"partition": 0, "offset": i, "time": wall_ms(), "key": key, "value": b"v", "headers": None}
        for i, key in enumerate(keys)
    ]
    frame = pl.DataFrame(rows, schema=RECORD)
    if own_key:
        frame = frame.with_columns(pl.lit(b"own").alias(OWN_KEY))
    late = pl.repeat(False, len(rows), dtype=pl.Boolean, eager=True)
    with client(spec.right.store.storage.url) as storage:
        assert not storage.write_table(namespace, to_items(frame, late, HOUR_MS)).num_rows


def unread(*keys: bytes | None, ago_ms: int = 0) -> Sample:
    return Sample({0: keys}, {0: [wall_ms() - ago_ms] * len(keys)}, len(keys))


def found(findings: Iterable[Finding]) -> dict[str, str]:
    """The texts, by level and name."""
    return {f"{finding.level} {finding.what}": finding.text for finding in findings}


def storage_of(spec: JoinSpec, **changes: str) -> dict[str, str | None]:
    return {"url": spec.right.store.storage.url, "namespace": "right", "token": TOKEN, **changes}


def joining(spec: JoinSpec, before_ms: int = 60_000, **storage: str) -> JoinSpec:
    at = StorageApi(**storage_of(spec, **storage))
    source = replace(spec.right.store, storage=at)
    return changed(spec, before_ms=before_ms, source=source)


def test_a_store_that_is_ready_and_a_consumer_that_nobody_has_heard_of(spec: JoinSpec) -> None:
    """The feeder may be started later."""
    storage, delay = of_lookup(spec)

    assert (storage.level, storage.text) == (Level.OK, "namespace 'right' keeps records for 1h")
    assert (delay.level, delay.what) == (Level.WARNING, "delay")
    assert "the collector has not submitted it yet" in delay.text


def test_what_the_store_refuses(spec: JoinSpec) -> None:
    """The token, the namespace, the time that records are kept."""
    by_token, _ = of_lookup(joining(spec, token="wrong"))
    by_name, _ = of_lookup(joining(spec, namespace="left"))
    too_short, _ = of_lookup(joining(spec, before_ms=2 * HOUR_MS))

    assert {finding.level for finding in (by_token, by_name, too_short)} == {Level.ERROR}
    assert "correct `storage` (url, namespace, token)" in by_token.text
    assert "'left'" in by_name.text
    assert too_short.code is ExitCode.DATA_LOSS


def test_the_addresses_of_the_two_apis_swapped(spec: JoinSpec) -> None:
    """Each names its key; so does a token that the Data Delay API does not know."""
    storage, delay = of_lookup(
        changed(
            spec,
            storage=replace(spec.right.store.storage, url=spec.right.store.delay.url),
            delay=replace(spec.right.store.delay, url=spec.right.store.storage.url),
        )
    )
    _, by_token = of_lookup(changed(spec, delay=replace(spec.right.store.delay, token="wrong")))

    assert {finding.code for finding in (storage, delay, by_token)} == {ExitCode.BAD_JOB_FILE}
    assert "this is not the storage API; correct `storage.url`" in storage.text
    assert "this is not the Data Delay API; correct `delay.url`" in delay.text
    assert "correct `delay.token`" in by_token.text


def test_what_the_join_would_meet_in_the_store(spec: JoinSpec) -> None:
    """Windows that reach back too far, and records that were replaced; all of it at once."""
    at = changed(spec, storage=replace(spec.right.store.storage, namespace="latest"))

    seen = found(of_lookup(at, unread=unread(b"a", None, ago_ms=HOUR_MS)))
    unmatched = found(
        of_lookup(
            changed(at, on_expired="unmatched"),
            unread=unread(b"a", ago_ms=HOUR_MS),
        )
    )
    recent = found(of_lookup(spec, unread=unread(b"a")))

    assert "and 1 of the next 1 left records look for them from" in seen["error storage.retained"]
    assert "`keep: latest`" in seen["warning storage.keep"]
    assert "ok storage" in seen
    assert "warning delay" in seen
    assert "no_longer_stored" in unmatched["warning storage.retained"]
    assert "ok storage.retained" in recent
    assert "warning storage.keep" not in recent


def test_the_keys_that_are_looked_up_next(spec: JoinSpec) -> None:
    """Known to the store, unknown, or stored by a feeder that takes its keys from elsewhere."""
    feed(spec, "right", b"known")
    feed(spec, "right", b"of-a-field", own_key=True)

    known = found(of_lookup(spec, unread=unread(b"known", b"unknown", b"")))
    unknown = found(of_lookup(spec, unread=unread(*(b"user-%d" % i for i in range(30)))))
    of_a_field = found(of_lookup(spec, unread=unread(b"known", b"of-a-field")))

    assert known["ok storage.keys"] == "of 3 keys of the next left records 1 are stored in namespace 'right'"
    assert "feeder and join have different keys" in unknown["warning storage.keys"]
    assert "feeder and join need the same `right.key`" in of_a_field["error storage"]


def test_a_store_or_a_feeder_that_the_join_does_not_rely_on(spec: JoinSpec) -> None:
    """Left would wait for ever; unless the generation is accepted."""
    elsewhere = changed(spec, delay=replace(spec.right.store.delay, consumer="elsewhere"))
    unclear = changed(spec, delay=replace(spec.right.store.delay, consumer="unclear"))

    assert "feeds a store of generation another-store" in found(of_lookup(elsewhere))["error delay"]
    assert "ok delay" in found(of_lookup(changed(elsewhere, accepted_generations=("another-store",))))
    assert "ok delay" in found(of_lookup(unclear, {CONSUMER: "g1"}))
    assert "this checkpoint began with g0" in found(of_lookup(unclear, {CONSUMER: "g0"}))["error delay"]
    assert "this checkpoint began with s0" in found(of_lookup(unclear, {STORE: "s0"}))["error delay"]


def test_without_a_store_the_gate_is_still_looked_at(spec: JoinSpec) -> None:
    """Whether the generation of the store is right is then not known."""
    unclear = changed(joining(spec, token="wrong"), delay=replace(spec.right.store.delay, consumer="unclear"))

    assert "ok delay" in found(of_lookup(unclear, {CONSUMER: "g1", STORE: "s0"}))
    assert "error delay" in found(of_lookup(unclear, {CONSUMER: "g0"}))


def test_a_feeder_needs_to_write(spec: JoinSpec) -> None:
    """Shown by a call that changes nothing."""

    def levels(**changes: str) -> list[Level]:
        at = FeedStorage(**storage_of(spec, **changes))
        return [finding.level for finding in of_feeder(FeedSpec(name="f", right=RIGHT, storage=at))]

    assert levels() == [Level.OK]
    assert levels(token="wrong") == [Level.ERROR]
