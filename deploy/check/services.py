"""The APIs of a feeder and a lookup join: whether they answer and accept the token; what a join would meet there."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from types import MappingProxyType
from typing import TypeVar

import polars as pl

from datadelay.errors import DelayError, DelayNotFound
from deploy.check.findings import Finding, from_error, warning
from deploy.check.lookupfindings import of_gate, of_keep, of_retention, of_stored_keys, of_window
from joins.admission.keysample import Sample
from joins.apiclients import delay_client, storage_client
from joins.apirefusal import DELAY_REFUSED, REFUSED, delay_refused, refused
from joins.errors import JoinError
from joins.feed.feed import FeedSpec
from joins.lookup.keylookup import read_right, retained_from
from joins.lookup.spec import LookupSpec
from storage.client import StorageClient
from storage.errors import StorageError
from storage.wire import NamespaceBody

T = TypeVar("T")

_A_KEY = b"teacup.check"


def of_lookup(
    spec: LookupSpec, pinned: Mapping[str, object] = MappingProxyType({}), unread: Sample | None = None
) -> Iterator[Finding]:
    """Looks at both APIs; `read` is needed at each.

    pinned   the generations that the checkpoint began with; empty for a new one
    unread   of left, what the join reads next; None: not known
    """
    unread = unread or Sample()
    with closing(storage_client(spec.storage, attempts=2, give_up_after_s=5.0)) as client:
        namespace = yield from _asked(spec.name, _namespace(spec, client, unread))
        if namespace is not None:
            yield from _asked(spec.name, _keys(spec, client, namespace, unread))
    delay = spec.delay
    with closing(delay_client(delay)) as delays:
        try:
            found = delays.read(delay.consumer, spec.right.topic)
        except DelayNotFound as unknown:
            yield warning("delay", f"{unknown}: the collector has not submitted it yet, and left would wait")
        except DELAY_REFUSED as failed:
            yield from_error("delay", delay_refused(spec.name, failed))
        except DelayError as failed:
            yield from_error("delay", failed)
        else:
            yield of_gate(spec, found, None if namespace is None else namespace.generation, pinned)


def of_feeder(spec: FeedSpec) -> Iterator[Finding]:
    """Looks at the storage API; `write` is needed."""
    with closing(storage_client(spec.storage, attempts=2, give_up_after_s=5.0)) as client:
        yield from _asked(spec.name, _writable(spec, client))


def _namespace(spec: LookupSpec, client: StorageClient, unread: Sample) -> Generator[Finding, None, NamespaceBody]:
    namespace = client.namespace(spec.storage.namespace)
    kept_from_ms = retained_from(namespace)
    yield of_retention(namespace, spec.span_ms)
    yield from of_keep(namespace)
    yield from of_window(spec, kept_from_ms, unread)
    return namespace


def _keys(
    spec: LookupSpec, client: StorageClient, namespace: NamespaceBody, unread: Sample
) -> Generator[Finding, None, None]:
    """Makes the join's own look-up, of the keys that it looks up next."""
    keys = list(unread.distinct_keys)
    right = read_right(spec, client, pl.Series(keys or [_A_KEY], dtype=pl.Binary), namespace.generation)
    yield from of_stored_keys(namespace.name, len(keys), right["key"].n_unique())


def _writable(spec: FeedSpec, client: StorageClient) -> Generator[Finding, None, None]:
    namespace = client.namespace(spec.storage.namespace)
    retained_from(namespace)
    client.raise_retained_from(namespace.name, 0)  # which changes nothing: only `write` may
    yield of_retention(namespace, 0)


def _asked(name: str, look: Generator[Finding, None, T]) -> Generator[Finding, None, T | None]:
    """Yields what `look` finds, and returns what it returns; None if the API or the join refuses."""
    try:
        return (yield from look)
    except REFUSED as failed:
        yield from_error("storage", refused(name, failed))
    except (StorageError, JoinError) as failed:
        yield from_error("storage", failed)
    return None
