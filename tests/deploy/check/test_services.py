"""What the APIs of a feeder and a lookup join say before the first start."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from deploy.broker.ports import free_port
from deploy.check.findings import Level
from deploy.check.services import of_feeder, of_lookup
from joins import DelayAt, LookupSpec, Side, StorageAt
from joins.feed.feed import FeedSpec, FeedStorage
from kafkaio.exitcode import ExitCode
from tests.support import delay_server
from tests.support.storage_process import TOKEN, server_process

HOUR_MS = 3_600_000
RIGHT = Side(topic="impressions")


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LookupSpec]:
    """A lookup join between both APIs; nothing is fed yet."""
    folder, port = tmp_path_factory.mktemp("services"), free_port()
    (folder / "delay").mkdir()
    names = [{"name": "right", "keep": "all", "bound": 100, "retention": "1h"}]
    with (
        delay_server.running_server(folder / "delay") as delays,
        server_process(folder / "storage", port, namespaces=names),
    ):
        yield LookupSpec(
            name="j",
            left=Side(topic="clicks"),
            right=RIGHT,
            before_ms=60_000,
            storage=StorageAt(url=f"http://127.0.0.1:{port}", namespace="right", token=TOKEN),
            delay=DelayAt(url=delays.url, consumer="feeder", token=delays.secrets["reader"]),
        )


def storage_of(spec: LookupSpec, **changes: str) -> dict[str, str | None]:
    return {"url": spec.storage.url, "namespace": "right", "token": TOKEN, **changes}


def joining(spec: LookupSpec, before_ms: int = 60_000, **storage: str) -> LookupSpec:
    at = StorageAt(**storage_of(spec, **storage))
    return LookupSpec(name="j", left=spec.left, right=RIGHT, before_ms=before_ms, storage=at, delay=spec.delay)


def test_a_store_that_is_ready_and_a_consumer_that_nobody_has_heard_of(spec: LookupSpec) -> None:
    """The feeder may be started later."""
    storage, delay = of_lookup(spec)

    assert (storage.level, storage.text) == (Level.OK, "namespace 'right' keeps records for 1h")
    assert (delay.level, delay.what) == (Level.WARNING, "delay")
    assert "the collector has not submitted it yet" in delay.text


def test_what_the_store_refuses(spec: LookupSpec) -> None:
    """The token, the namespace, the time that records are kept."""
    by_token, _ = of_lookup(joining(spec, token="wrong"))
    by_name, _ = of_lookup(joining(spec, namespace="left"))
    too_short, _ = of_lookup(joining(spec, before_ms=2 * HOUR_MS))

    assert {one.level for one in (by_token, by_name, too_short)} == {Level.ERROR}
    assert "correct `storage` (url, namespace, token)" in by_token.text
    assert "'left'" in by_name.text
    assert too_short.code is ExitCode.DATA_LOSS


def test_the_addresses_of_the_two_apis_swapped(spec: LookupSpec) -> None:
    """Each names its key; so does a token that the Data Delay API does not know."""
    storage, delay = of_lookup(
        replace(
            spec,
            storage=replace(spec.storage, url=spec.delay.url),
            delay=replace(spec.delay, url=spec.storage.url),
        )
    )
    _, by_token = of_lookup(replace(spec, delay=replace(spec.delay, token="wrong")))

    assert {one.code for one in (storage, delay, by_token)} == {ExitCode.BAD_JOB_FILE}
    assert "this is not the storage API; correct `storage.url`" in storage.text
    assert "this is not the Data Delay API; correct `delay.url`" in delay.text
    assert "correct `delay.token`" in by_token.text


def test_a_feeder_needs_to_write(spec: LookupSpec) -> None:
    """Shown by a call that changes nothing."""

    def found(**changes: str) -> list[Level]:
        at = FeedStorage(**storage_of(spec, **changes))
        return [one.level for one in of_feeder(FeedSpec(name="f", right=RIGHT, storage=at))]

    assert found() == [Level.OK]
    assert found(token="wrong") == [Level.ERROR]
