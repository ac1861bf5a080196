"""The pace, which keeps the budget; crawls by day of host queues with a cap; first crawls apart.

Revision ID: 0013
Revises: 0012
"""

import sqlalchemy as sa
from alembic import op

from service.storage.tables import HOT, Id, Instant

revision = "0013"
down_revision = "0012"

AMOUNTS = ("budget", "tokens", "ahead", "carried", "spent", "paid", "debt", "n_first")


def upgrade() -> None:
    op.create_table(
        "pace",
        sa.Column("pace_id", sa.SmallInteger, autoincrement=False, nullable=False),
        sa.Column("at", Instant),
        *(sa.Column(name, sa.Double) for name in AMOUNTS),
        sa.PrimaryKeyConstraint("pace_id", name="pace_pkey"),
        comment="One row: what the servers have taken of the day's budget.",
        postgresql_with={"fillfactor": "10"},
    )
    op.create_table(
        "crawl_days",
        sa.Column("queue_id", Id, autoincrement=False, nullable=False),
        sa.Column("day", sa.Integer, nullable=False),
        *(
            sa.Column(name, sa.Double, nullable=False)
            for name in ("n_crawls", "n_first", "carried")
        ),
        sa.PrimaryKeyConstraint("queue_id", name="crawl_days_pkey"),
        comment="Crawls of the last day of host queues with a cap.",
        postgresql_with=HOT,
    )
    op.add_column(
        "due_pages",
        sa.Column("first", sa.Boolean, nullable=False, server_default=sa.false()),
    )
    op.execute("UPDATE due_pages SET first = true WHERE last_crawl_at IS NULL")
    op.create_index("due_pages_queue_id_first_idx", "due_pages", ["queue_id", "first", "next_at"])
    op.drop_index("due_pages_queue_id_next_at_idx", "due_pages")


def downgrade() -> None:
    op.create_index("due_pages_queue_id_next_at_idx", "due_pages", ["queue_id", "next_at"])
    op.drop_index("due_pages_queue_id_first_idx", "due_pages")
    op.drop_column("due_pages", "first")
    op.drop_table("crawl_days")
    op.drop_table("pace")
