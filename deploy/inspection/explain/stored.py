"""Lookup join: what the store holds of a key now, and how far right is stored. Both APIs are only read."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass

import polars as pl

from datadelay.errors import DelayError
from joins.errors import JoinError
from joins.explain import THERE, BatchSpan, SideRecord
from joins.lookup.key_lookup import delay_client, lookup_client, read_right, retained_from
from joins.lookup.right_items import position_of
from joins.spec import JoinSpec
from teacup.base.times import iso
from teacup.storage.errors import StorageError


@dataclass(frozen=True, slots=True)
class StoredNow:
    """What is stored of one key.

    records           its right records; `late` ones may have come after a look-up
    retained_from_ms  records below it may have been dropped; None if that is not known
    problem           why the store could not be asked
    """

    records: tuple[SideRecord, ...] = ()
    retained_from_ms: int | None = None
    problem: str | None = None


def stored_now(spec: JoinSpec, key: bytes, complete_ms: int | None) -> StoredNow:
    """Looks up a key.

    complete_ms   every right record below it was stored when the left record was looked up; None if that is not known
    """
    try:
        with closing(lookup_client(spec)) as client:
            namespace = client.namespace(spec.right.store.storage.namespace)
            wanted = pl.DataFrame({"key": pl.Series([key], dtype=pl.Binary)})
            rows, _, _ = read_right(spec, client, wanted)
            items = client.read(namespace.name, [key])[0].items if spec.right.of_versions else ()
        kept_from = retained_from(namespace)
    except (StorageError, JoinError) as error:
        return StoredNow(problem=str(error))
    deletes = [
        SideRecord(
            *position_of(item.tag), time_ms=item.version, key=key, read=_read(item.version, complete_ms), deleted=True
        )
        for item in items
        if not item.value
    ]
    records = (
        SideRecord(
            partition=row["partition"],
            offset=row["offset"],
            time_ms=row["time"],
            key=row["key"],
            read=BatchSpan() if row["late"] else _read(row["time"], complete_ms),
        )
        for row in rows.to_dicts()
    )
    return StoredNow((*records, *deletes), kept_from)


def _read(time_ms: int, complete_ms: int | None) -> BatchSpan:
    return THERE if complete_ms is not None and time_ms < complete_ms else BatchSpan()


def how_far(spec: JoinSpec) -> str:
    """Says how far right is stored according to the Data Delay API, or why that is not known."""
    who = f"consumer {spec.right.store.delay.consumer!r}"
    try:
        with closing(delay_client(spec.right.store.delay)) as client:
            delay = client.read(spec.right.store.delay.consumer, spec.right.topic)
    except DelayError as error:
        return f"how far {who} has stored right is not known: {error}"
    if delay.consumed_until_ms is None:
        return f"how far {who} has stored right is {delay.state}{f': {delay.reason}' if delay.reason else ''}"
    return f"{who} has stored right up to {iso(delay.consumed_until_ms)}"
