"""Stores what is published: every acknowledged write is committed, every read of a delay is from memory.

A change is decided in a transaction, on the newest state, and is in memory once it is committed; only histories are
read from the database. If other servers may write as well (`shared`), each read first asks which entries have another
sequence number than those in memory, and reads these.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

from sqlalchemy import Connection, RowMapping, bindparam, delete, insert, select, update
from sqlalchemy.exc import SQLAlchemyError

from datadelay.api.databases import Database, open_database
from datadelay.api.schema import from_row, history, published, to_row
from datadelay.errors import DelayNotFound, StoreUnavailable
from datadelay.model import DelayState, Point
from datadelay.publish import Published

_STATES = {state.value: state for state in DelayState}
_NEWEST_FIRST = (
    select(
        history.c.sequence,
        history.c.at_ms,
        history.c.state,
        history.c.consumed_until_ms,
        history.c.reason,
        history.c.slowest_partition,
    )
    .where(
        history.c.published_id
        == select(published.c.id)
        .where(published.c.consumer == bindparam("consumer"), published.c.topic == bindparam("topic"))
        .scalar_subquery()
    )
    .order_by(history.c.sequence.desc())
)


@dataclass(frozen=True, slots=True)
class _Entry:
    """What is published, and which version of its row this copies."""

    version: tuple[int, int]
    published: Published

    @classmethod
    def of(cls, row: RowMapping) -> _Entry:
        """Returns the entry of a row with all columns."""
        return cls((row["id"], row["sequence"]), from_row(row))


class DelayStore:
    """All consumers and topics, each with its history. Thread-safe."""

    def __init__(self, database: Database, *, retention_ms: int, max_points: int) -> None:
        self._database = database
        self._retention_ms = retention_ms
        self._max_points = max_points
        self._entries: Mapping[tuple[str, str], _Entry] = {}
        self._entries = self._refreshed()

    @classmethod
    def open(cls, database: str, *, retention_ms: int, max_points: int) -> Self:
        """Opens the database, migrates it, and reads it. Raises `StoreUnavailable`, `ConfigInvalid`."""
        opened = open_database(database)
        try:
            return cls(opened, retention_ms=retention_ms, max_points=max_points)
        except BaseException:
            opened.close()
            raise

    def close(self) -> None:
        """Closes the database."""
        self._database.close()

    @property
    def shared(self) -> bool:
        """Whether reads ask the database."""
        return self._database.shared

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def all(self) -> list[Published]:
        """Returns all that is published, ordered by consumer and topic. Raises `StoreUnavailable` if it is shared."""
        return [entry.published for _, entry in sorted(self._current().items())]

    def get(self, consumer: str, topic: str) -> Published:
        """Returns what is published of one consumer and topic. Raises `DelayNotFound`, and as `all`."""
        entry = self._current().get((consumer, topic))
        if entry is None:
            raise never_submitted(consumer, topic)
        return entry.published

    def change(
        self, consumer: str, topic: str, decide: Callable[[Published | None], Published], now_ms: int
    ) -> Published:
        """Publishes what `decide` makes of what is published now, with a point in the history; commits first.

        If `decide` raises, nothing changes. If it returns what it was given, nothing is written.
        """
        key = (consumer, topic)
        with self._database.writing:
            with self._connection() as connection:
                self._database.exclude_others(connection, consumer, topic)
                before = self._newest(connection, consumer, topic)
                after = decide(None if before is None else before.published)
                if before is not None and after is before.published:
                    return after
                entry = _Entry(self._write(connection, after, now_ms), after)
            self._entries = {**self._entries, key: entry}  # readers iterate over the old mapping
        return after

    def forget(self, consumer: str, topic: str) -> None:
        """Removes a retired consumer and topic with its history. Raises `DelayNotFound`."""
        with self._database.writing:
            with self._connection() as connection:
                self._database.exclude_others(connection, consumer, topic)
                if not connection.execute(delete(published).where(*_is(consumer, topic))).rowcount:
                    raise never_submitted(consumer, topic)
            self._entries = {key: entry for key, entry in self._entries.items() if key != (consumer, topic)}

    def history(
        self, consumer: str, topic: str, *, limit: int, before: int | None, since_ms: int | None
    ) -> list[Point]:
        """Returns up to `limit` points below the sequence number `before`, newest first. Raises `DelayNotFound`."""
        self.get(consumer, topic)
        query = _NEWEST_FIRST
        if before is not None:
            query = query.where(history.c.sequence < before)
        if since_ms is not None:
            query = query.where(history.c.at_ms >= since_ms)
        with self._connection() as connection:
            rows = connection.execute(query.limit(limit), {"consumer": consumer, "topic": topic}).all()
        return [
            Point(sequence, at_ms, _STATES[state], value_ms, reason, slowest_partition)
            for sequence, at_ms, state, value_ms, reason, slowest_partition in rows
        ]

    def check(self) -> None:
        """Raises `StoreUnavailable` if the database cannot be written."""
        with self._database.writing, self._connection() as connection:
            self._database.check(connection)

    def _current(self) -> Mapping[tuple[str, str], _Entry]:
        """Returns all entries as of the moment of the call, or later."""
        if self._database.shared:
            self._entries = entries = self._refreshed()
            return entries  # another thread may have put an older reading in its place
        return self._entries

    def _refreshed(self) -> Mapping[tuple[str, str], _Entry]:
        """Reads what has changed; unchanged entries stay the same objects."""
        columns = published.c.consumer, published.c.topic, published.c.id, published.c.sequence
        current = self._entries
        with self._connection() as connection:
            rows = connection.execute(select(*columns)).all()
            entries = {
                (consumer, topic): entry
                for consumer, topic, *version in rows
                if (entry := current.get((consumer, topic))) is not None and entry.version == tuple(version)
            }
            if len(entries) < len(rows):
                wanted = [row.id for row in rows if (row.consumer, row.topic) not in entries]
                changed = select(published).where(published.c.id.in_(wanted))
                for row in connection.execute(changed).mappings():
                    entries[row["consumer"], row["topic"]] = _Entry.of(row)
        return entries

    def _newest(self, connection: Connection, consumer: str, topic: str) -> _Entry | None:
        """Returns the entry in memory if it is a copy of the row; otherwise reads the row."""
        mine = _is(consumer, topic)
        version = connection.execute(select(published.c.id, published.c.sequence).where(*mine)).one_or_none()
        if version is None:
            return None
        entry = self._entries.get((consumer, topic))
        if entry is not None and entry.version == tuple(version):
            return entry
        return _Entry.of(connection.execute(select(published).where(*mine)).mappings().one())

    @contextmanager
    def _connection(self) -> Iterator[Connection]:
        try:
            with self._database.engine.begin() as connection:
                yield connection
            self._database.check_kept()
        except SQLAlchemyError as error:
            raise StoreUnavailable(f"database {self._database.name}: {self._database.said(error)}") from error

    def _write(self, connection: Connection, after: Published, now_ms: int) -> tuple[int, int]:
        values = to_row(after)
        where = _is(after.last.consumer, after.last.topic)
        row = connection.execute(
            update(published)
            .where(*where)
            .values(**values, sequence=published.c.sequence + 1)
            .returning(published.c.id, published.c.sequence)
        ).one_or_none()
        if row is None:
            row = connection.execute(
                insert(published)
                .values(consumer=after.last.consumer, topic=after.last.topic, **values, sequence=1)
                .returning(published.c.id, published.c.sequence)
            ).one()
        connection.execute(
            insert(history).values(
                published_id=row.id,
                sequence=row.sequence,
                at_ms=now_ms,
                state=after.fresh_state.value,
                consumed_until_ms=after.value_ms,
                reason=after.reason,
                slowest_partition=after.slowest.partition if after.slowest else None,
            )
        )
        self._prune(connection, row.id, row.sequence, now_ms)
        return row.id, row.sequence

    def _prune(self, connection: Connection, published_id: int, newest: int, now_ms: int) -> None:
        """Drops the points beyond the count, and the oldest few if they are beyond the retention."""
        mine = history.c.published_id == published_id
        connection.execute(delete(history).where(mine, history.c.sequence <= newest - self._max_points))
        oldest = select(history.c.sequence).where(mine).order_by(history.c.sequence).limit(100).subquery()
        connection.execute(
            delete(history).where(
                mine,
                history.c.sequence.in_(select(oldest.c.sequence)),
                history.c.at_ms < now_ms - self._retention_ms,
            )
        )


_PAGES = 256


class HistoryPages:
    """Encoded pages of histories, at most `_PAGES`, until something new is published: many look at a few charts.

    A page is stored with the `Published` object that was current before the page was read. A page of an older object is
    never returned. The least recently used pages are dropped first. For use on one event loop only.
    """

    def __init__(self) -> None:
        self._pages: OrderedDict[Hashable, tuple[Published, bytes]] = OrderedDict()

    def get(self, query: Hashable, current: Published) -> bytes | None:
        """Returns the page of `query` if it was made when `current` was already published."""
        page = self._pages.get(query)
        if page is None or page[0] is not current:
            return None
        self._pages.move_to_end(query)
        return page[1]

    def put(self, query: Hashable, current: Published, page: bytes) -> None:
        """Stores a page that was read after `current` was published."""
        self._pages[query] = (current, page)
        self._pages.move_to_end(query)
        if len(self._pages) > _PAGES:
            self._pages.popitem(last=False)


def never_submitted(consumer: str, topic: str) -> DelayNotFound:
    """Returns the error that nothing is known of this consumer and topic."""
    return DelayNotFound(
        f"nothing was ever submitted for consumer {consumer!r}, topic {topic!r}: is its collector running?"
    )


def _is(consumer: str, topic: str) -> tuple[Any, Any]:
    return published.c.consumer == consumer, published.c.topic == topic
