"""The tables as the newest migration leaves them (a test compares the two)."""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

metadata = MetaData()

published = Table(
    "published",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("consumer", String, nullable=False),
    Column("topic", String, nullable=False),
    # the newest accepted submission
    Column("listed_ms", BigInteger, nullable=False),
    Column("consumed_until_ms", BigInteger),
    Column("submitted_reason", Text),
    Column("caught_up", Boolean, nullable=False),
    Column("generation", Text, nullable=False),
    Column("store_generation", Text),
    Column("partitions", JSON, nullable=False),  # [[partition, position, progress_ms, reason], ...]
    # what is published of it
    Column("positions", JSON(none_as_null=True)),  # [[partition, position], ...], NULL after a rewind
    Column("value_ms", BigInteger),
    Column("floor_ms", BigInteger),
    Column("held", Text),
    Column("reason", Text),
    Column("rewound_ms", BigInteger),
    Column("success_ms", BigInteger),
    Column("since_ms", BigInteger, nullable=False),
    Column("sequence", BigInteger, nullable=False),  # of the newest point of the history
    UniqueConstraint("consumer", "topic", name="uq_published_consumer_topic"),
)

history = Table(
    "history",
    metadata,
    Column("published_id", Integer, ForeignKey("published.id", ondelete="CASCADE"), primary_key=True, nullable=False),
    Column("sequence", BigInteger, primary_key=True, nullable=False),
    Column("at_ms", BigInteger, nullable=False),
    Column("state", String, nullable=False),
    Column("consumed_until_ms", BigInteger),
    Column("reason", Text),
    Column("slowest_partition", Integer),
    sqlite_with_rowid=False,  # a page is a contiguous range of the primary key
)
