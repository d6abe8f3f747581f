"""Checks the two APIs of a lookup join or a feeder: whether they answer and accept the token, and what is there.

storage        whether the namespace keeps records long enough, keeps all of a key, and still has what the next left
               records look for
storage.keys   whether the store knows keys of the next left records, by the join's own look-up
delay          whether left may go, by the join's own rule (`joins.lookup.gate.admission`)
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from types import MappingProxyType
from typing import TypeVar

import polars as pl

from datadelay.errors import DelayError, DelayNotFound
from datadelay.model import Delay
from deploy.check.findings import Finding, TopicFacts, error, from_error, ok, warning
from joins.batch.rules import kept_from
from joins.errors import DataLoss, JoinError
from joins.lookup.feed.source import check_keep as check_keep_of_feeder
from joins.lookup.feed.spec import FeedSpec, check_table
from joins.lookup.gate import STORE, admission
from joins.lookup.key_lookup import (
    DELAY_REFUSED,
    REFUSED,
    check_keep,
    delay_client,
    delay_refused,
    read_right,
    refused,
    retained_from,
    storage_client,
)
from joins.plan.log_checks import is_compacted
from joins.plan.start.startup_sample import ENOUGH, Sample
from joins.spec import JoinSpec
from teacup.base.errors import ExitCode
from teacup.base.times import iso, written
from teacup.storage.client import StorageClient
from teacup.storage.codecs.codec import LARGEST
from teacup.storage.codecs.json import NamespaceBody
from teacup.storage.errors import StorageError
from teacup.storage.model import Keep

T = TypeVar("T")

_A_KEY = b"teacup.check"
SHORTEST_LAG_MS = 3_600_000
LATEST_VERSION = LARGEST
"""The time that asks for the newest version of each key."""


def of_lookup(
    spec: JoinSpec, pinned: Mapping[str, object] = MappingProxyType({}), unread: Sample | None = None
) -> Iterator[Finding]:
    """Checks both APIs. Each requires the right `read`.

    pinned   the generations that the checkpoint started with; empty for a new one
    unread   a sample of the left records that the join reads next, if known
    """
    unread = unread or Sample()
    with closing(storage_client(spec.right.store.storage, attempts=2, give_up_after_s=5.0)) as client:
        namespace = yield from _asked(spec.name, _namespace(spec, client, unread))
        if namespace is not None:
            yield from _asked(spec.name, _keys(spec, client, namespace, unread))
    delay = spec.right.store.delay
    with closing(delay_client(delay)) as delays:
        try:
            delay_read = delays.read(delay.consumer, spec.right.topic)
        except DelayNotFound as unknown:
            yield warning("delay", f"{unknown}: the collector has not submitted it yet, and left would wait")
        except DELAY_REFUSED as failed:
            yield from_error("delay", delay_refused(spec.name, failed))
        except DelayError as failed:
            yield from_error("delay", failed)
        else:
            yield of_gate(spec, delay_read, None if namespace is None else namespace.generation, pinned)


def of_feeder(spec: FeedSpec, topics: Mapping[str, TopicFacts] = MappingProxyType({})) -> Iterator[Finding]:
    """Checks the storage API, which requires the right `write`; and whether a topic of a table keeps what is needed."""
    facts = topics.get("right.topic")
    if spec.of_versions and facts is not None and facts.config is not None:
        yield of_table(spec, facts.config)
    with closing(storage_client(spec.storage, attempts=2, give_up_after_s=5.0)) as client:
        yield from _asked(spec.name, _writable(spec, client))


def of_table(spec: FeedSpec, config: Mapping[str, str]) -> Finding:
    """Says whether a topic keeps the newest version of each key, and the others for long enough to be read."""
    what, topic = "right.retention", spec.right.topic
    try:
        check_table(spec, config, {})
    except DataLoss as refused:
        return from_error(what, refused)
    if not is_compacted(config):
        return ok(what, f"{topic!r} keeps all versions")
    lag_ms = int(config.get("min.compaction.lag.ms", "0"))
    text = (
        f"{topic!r} is compacted, and keeps a version for {written(lag_ms)} after the next one (min.compaction.lag.ms)"
    )
    if lag_ms >= SHORTEST_LAG_MS:
        return ok(what, text)
    return warning(
        what,
        f"{text}: what compaction removes before the feeder reads it cannot be looked up, and left of that time stops "
        "the join, or is `no_longer_stored`; set it to how far left may lie behind, at least an hour",
    )


def of_retention(namespace: NamespaceBody, needed_ms: int) -> Finding:
    """Says whether right records are kept for as long as the join needs them."""
    kept_ms = namespace.retention_ms or 0
    text = f"namespace {namespace.name!r} keeps records for {written(kept_ms)}"
    if kept_ms >= needed_ms:
        return ok("storage", text)
    return error(
        "storage",
        f"{text}, and the join needs {written(needed_ms)}: use a namespace of another name, as no retention can be "
        "raised",
        ExitCode.DATA_LOSS,
    )


def of_keep(namespace: NamespaceBody) -> Iterator[Finding]:
    """Warns if a right record replaces others of its key."""
    if namespace.keep is Keep.LATEST:
        yield warning(
            "storage.keep",
            f"namespace {namespace.name!r} keeps only the latest right record of a key (`keep: latest`): if keys "
            "repeat within the window, the one that a left record looks for may have been replaced; feed a namespace "
            "with `keep: all`",
        )


def of_window(spec: JoinSpec, retained_from_ms: int, unread: Sample) -> Iterator[Finding]:
    """Says whether the windows of the next left records are still stored."""
    wanted = sorted(
        kept_from(spec.right, at)
        for p, keys in unread.keys.items()
        for key, at in zip(keys, unread.times[p], strict=True)
        if key is not None and at is not None
    )
    if not wanted:
        return
    gone = sum(at < retained_from_ms for at in wanted)
    retention = f"right records are kept from {iso(retained_from_ms)} on"
    if not gone:
        yield ok("storage.retained", f"{retention}; the next left records look for them from {iso(wanted[0])} on")
        return
    text = f"{retention}, and {gone} of the next {len(wanted)} left records look for them from {iso(wanted[0])} on"
    if spec.right.store.on_expired == "unmatched":
        yield warning("storage.retained", f"{text}: they will be unmatched, with the reason no_longer_stored")
        return
    yield error(
        "storage.retained",
        f"{text}: feed a namespace of another name from as far back, and start a new checkpoint; or start later "
        "(`start: TIME`); or have such left records written unmatched (`on_expired: unmatched`)",
        ExitCode.DATA_LOSS,
    )


def of_stored_keys(namespace: str, asked: int, stored: int, records: int) -> Iterator[Finding]:
    """Says whether the store knows any key of the next left records, of which so many have one."""
    text = f"of {asked} keys of the next left records {stored} are stored in namespace {namespace!r}"
    if stored:
        yield ok("storage.keys", text)
    elif records >= ENOUGH:
        yield warning(
            "storage.keys",
            f"{text}: perhaps their right records are not fed yet; otherwise feeder and join have different keys "
            "(`right.key`, `left.key`), or different namespaces",
        )


def of_gate(spec: JoinSpec, delay: Delay, store: str | None, pinned: Mapping[str, object]) -> Finding:
    """Says whether left may go.

    store    the generation of the store, if known
    pinned   the generations that the checkpoint started with; empty for a new one
    """
    if store is None:
        store = delay.store_generation or ""
        pinned = {name: value for name, value in pinned.items() if name != STORE}
    verdict = admission(delay, store, pinned, spec.right.store.accepted_generations)
    if verdict.shut:
        return error("delay", f"left would wait for ever: {verdict.waits_for}", ExitCode.CHECKPOINT)
    if verdict.waits_for is not None:
        return warning("delay", f"left would wait: {verdict.waits_for}")
    return ok("delay", f"{delay.consumer!r} has stored {delay.topic!r} up to {iso(verdict.watermark_ms)}")


def _namespace(spec: JoinSpec, client: StorageClient, unread: Sample) -> Generator[Finding, None, NamespaceBody]:
    namespace = client.namespace(spec.right.store.storage.namespace)
    kept_from_ms = retained_from(namespace)
    check_keep(spec, namespace)
    yield of_retention(namespace, spec.span_ms)
    yield from of_keep(namespace)
    yield from of_window(spec, kept_from_ms, unread)
    return namespace


def _keys(
    spec: JoinSpec, client: StorageClient, namespace: NamespaceBody, unread: Sample
) -> Generator[Finding, None, None]:
    """Looks up the join's next keys in the same way as the join."""
    keys = list(unread.distinct_keys)
    asked = pl.DataFrame({"key": pl.Series(keys or [_A_KEY], dtype=pl.Binary)})
    if spec.right.of_versions:
        asked = asked.with_columns(time=pl.lit(LATEST_VERSION))
    right, _, _ = read_right(spec, client, asked, namespace.generation)
    yield from of_stored_keys(namespace.name, len(keys), right["key"].n_unique(), unread.keyed)


def _writable(spec: FeedSpec, client: StorageClient) -> Generator[Finding, None, None]:
    namespace = client.namespace(spec.storage.namespace)
    check_keep_of_feeder(spec, namespace)
    retained_from(namespace)
    client.raise_retained_from(namespace.name, 0)  # changes nothing, but requires `write`
    yield of_retention(namespace, 0)


def _asked(name: str, look: Generator[Finding, None, T]) -> Generator[Finding, None, T | None]:
    """Yields the findings of `look`, and returns its result; None if the API or the join refuses."""
    try:
        return (yield from look)
    except REFUSED as failed:
        yield from_error("storage", refused(name, failed))
    except (StorageError, JoinError) as failed:
        yield from_error("storage", failed)
    return None
