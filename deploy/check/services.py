"""The APIs of a feeder and a lookup join: whether they answer, know the names, and accept the token."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

from configfile.durations import written
from datadelay.errors import DelayError, DelayNotFound
from deploy.check.findings import Finding, error, from_error, ok, warning
from joins.apiclients import delay_client, storage_client
from joins.apirefusal import DELAY_REFUSED, REFUSED, delay_refused, refused
from joins.errors import JoinError
from joins.feed.feed import FeedSpec
from joins.lookup.keylookup import retained_from
from joins.lookup.spec import LookupSpec
from kafkaio.exitcode import ExitCode
from kafkaio.times import iso
from storage.errors import StorageError
from storage.wire import NamespaceBody


def of_lookup(spec: LookupSpec) -> Iterator[Finding]:
    """Both APIs; `read` is needed at each."""
    with closing(storage_client(spec.storage, attempts=2, give_up_after_s=5.0)) as client:

        def look() -> Iterator[Finding]:
            namespace = client.namespace(spec.storage.namespace)
            retained_from(namespace)
            client.read(namespace.name, [b"teacup.check"])
            yield from _kept(namespace, spec.span_ms)

        yield from _asked(spec.name, look)
    delay = spec.delay
    with closing(delay_client(delay)) as delays:
        try:
            found = delays.read(delay.consumer, spec.right.topic)
        except DelayNotFound as unknown:
            yield warning("delay", f"{unknown}: the collector has not submitted it yet, and left would wait")
            return
        except DELAY_REFUSED as failed:
            yield from_error("delay", delay_refused(spec.name, failed))
            return
        except DelayError as failed:
            yield from_error("delay", failed)
            return
    if found.consumed_until_ms is None:
        yield warning("delay", f"{delay.consumer!r} is {found.state}: {found.reason or 'no time yet'}; left would wait")
    else:
        yield ok("delay", f"{delay.consumer!r} has stored {spec.right.topic!r} up to {iso(found.consumed_until_ms)}")


def of_feeder(spec: FeedSpec) -> Iterator[Finding]:
    """The storage API; `write` is needed."""
    with closing(storage_client(spec.storage, attempts=2, give_up_after_s=5.0)) as client:

        def look() -> Iterator[Finding]:
            namespace = client.namespace(spec.storage.namespace)
            kept_from = retained_from(namespace)
            client.raise_retained_from(namespace.name, kept_from)  # as it is already: only `write` may
            yield from _kept(namespace, 0)

        yield from _asked(spec.name, look)


def _asked(name: str, look: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    try:
        yield from look()
    except REFUSED as failed:
        yield from_error("storage", refused(name, failed))
    except (StorageError, JoinError) as failed:
        yield from_error("storage", failed)


def _kept(namespace: NamespaceBody, needed_ms: int) -> Iterator[Finding]:
    kept_ms = namespace.retention_ms or 0
    text = f"namespace {namespace.name!r} keeps records for {written(kept_ms)}"
    if kept_ms < needed_ms:
        text += (
            f", and the join needs {written(needed_ms)}: use a namespace of another name, as no retention can be raised"
        )
        yield error("storage", text, ExitCode.DATA_LOSS)
    else:
        yield ok("storage", text)
