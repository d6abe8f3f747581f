"""Stores what is published in SQLite: every acknowledged write is on disk, every read of a delay is from memory.

One server process owns the file (`datadelay.api.database`). So the newest state of every consumer and topic is also
kept in memory, and is replaced there after its transaction is committed; only histories are read from the database.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self, TextIO

from sqlalchemy import Connection, Engine, bindparam, delete, insert, select, update
from sqlalchemy.exc import SQLAlchemyError

from datadelay.api.database import open_database
from datadelay.api.rows import from_row, to_row
from datadelay.api.schema import history, published
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


class DelayStore:
    """All consumers and topics, each with its history. Thread-safe."""

    def __init__(self, engine: Engine, lock: TextIO, *, retention_ms: int, max_points: int) -> None:
        self._engine = engine
        self._lock = lock
        self._retention_ms = retention_ms
        self._max_points = max_points
        self._writing = threading.Lock()
        with self._connection() as connection:
            self._published: Mapping[tuple[str, str], Published] = {
                (row["consumer"], row["topic"]): from_row(row)
                for row in connection.execute(select(published)).mappings()
            }

    @classmethod
    def open(cls, database: str, *, retention_ms: int, max_points: int) -> Self:
        """Lock the file, migrate it to the newest version, read it. Raises `StoreUnavailable`."""
        engine, lock = open_database(database)
        try:
            return cls(engine, lock, retention_ms=retention_ms, max_points=max_points)
        except BaseException:
            engine.dispose()
            lock.close()
            raise

    def close(self) -> None:
        """Close the connections and release the file."""
        self._engine.dispose()
        self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def all(self) -> list[Published]:
        """Everything that is published, ordered by consumer and topic."""
        return [entry for _, entry in sorted(self._published.items())]

    def get(self, consumer: str, topic: str) -> Published:
        """What is published of one consumer and topic. Raises `DelayNotFound`."""
        try:
            return self._published[consumer, topic]
        except KeyError:
            raise DelayNotFound(
                f"nothing was ever submitted for consumer {consumer!r}, topic {topic!r}: is its collector running?"
            ) from None

    def change(
        self, consumer: str, topic: str, decide: Callable[[Published | None], Published], now_ms: int
    ) -> Published:
        """Publish what `decide` returns for what is published now, with a point in the history; commits first.

        If `decide` raises, nothing changes. If it returns what it was given, nothing is written.
        """
        key = (consumer, topic)
        with self._writing:
            before = self._published.get(key)
            after = decide(before)
            if after is not before:
                with self._connection() as connection:
                    self._write(connection, after, now_ms)
                self._published = {**self._published, key: after}  # readers iterate over the old mapping
        return after

    def forget(self, consumer: str, topic: str) -> None:
        """Remove a retired consumer and topic with its history. Raises `DelayNotFound`."""
        with self._writing:
            self.get(consumer, topic)
            with self._connection() as connection:
                connection.execute(delete(published).where(*_is(consumer, topic)))
            self._published = {k: v for k, v in self._published.items() if k != (consumer, topic)}

    def history(
        self, consumer: str, topic: str, *, limit: int, before: int | None, since_ms: int | None
    ) -> list[Point]:
        """Up to `limit` points below the sequence number `before`, newest first. Raises `DelayNotFound`."""
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
        """Write to the database, as a full disk can still be read. Raises `StoreUnavailable`."""
        with self._writing, self._connection() as connection:
            connection.exec_driver_sql("PRAGMA user_version = 1")  # used for nothing else

    @contextmanager
    def _connection(self) -> Iterator[Connection]:
        try:
            with self._engine.begin() as connection:
                yield connection
        except SQLAlchemyError as error:
            raise StoreUnavailable(f"database {self._engine.url.database}: {error}") from error

    def _write(self, connection: Connection, after: Published, now_ms: int) -> None:
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

    def _prune(self, connection: Connection, published_id: int, newest: int, now_ms: int) -> None:
        """Drop the points beyond the count, then the oldest few if they are beyond the retention."""
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


def _is(consumer: str, topic: str) -> tuple[Any, Any]:
    return published.c.consumer == consumer, published.c.topic == topic
