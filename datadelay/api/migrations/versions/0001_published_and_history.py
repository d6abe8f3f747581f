"""What is published, and its history."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Creates both tables."""
    op.create_table(
        "published",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("consumer", sa.String, nullable=False),
        sa.Column("topic", sa.String, nullable=False),
        sa.Column("listed_ms", sa.BigInteger, nullable=False),
        sa.Column("consumed_until_ms", sa.BigInteger),
        sa.Column("submitted_reason", sa.Text),
        sa.Column("caught_up", sa.Boolean, nullable=False),
        sa.Column("generation", sa.Text, nullable=False),
        sa.Column("store_generation", sa.Text),
        sa.Column("partitions", sa.JSON, nullable=False),
        sa.Column("positions", sa.JSON),
        sa.Column("value_ms", sa.BigInteger),
        sa.Column("floor_ms", sa.BigInteger),
        sa.Column("held", sa.Text),
        sa.Column("reason", sa.Text),
        sa.Column("rewound_ms", sa.BigInteger),
        sa.Column("success_ms", sa.BigInteger),
        sa.Column("since_ms", sa.BigInteger, nullable=False),
        sa.Column("sequence", sa.BigInteger, nullable=False),
        sa.UniqueConstraint("consumer", "topic", name="uq_published_consumer_topic"),
    )
    op.create_table(
        "history",
        sa.Column(
            "published_id",
            sa.Integer,
            sa.ForeignKey("published.id", ondelete="CASCADE"),
            primary_key=True,
            nullable=False,
        ),
        sa.Column("sequence", sa.BigInteger, primary_key=True, nullable=False),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("consumed_until_ms", sa.BigInteger),
        sa.Column("reason", sa.Text),
        sa.Column("slowest_partition", sa.Integer),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    """Drops both tables."""
    op.drop_table("history")
    op.drop_table("published")
