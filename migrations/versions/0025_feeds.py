"""Feeds: pages of their own kind, and their rows of the queue.

Revision ID: 0025
Revises: 0023
"""

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0023"

INDEXES = {
    "due_pages_feeds_idx": ["next_at"],
    "due_pages_feeds_of_queue_idx": ["queue_id", "first", "next_at"],
}


def upgrade() -> None:
    op.add_column("pages", sa.Column("feed", sa.Boolean))
    op.add_column("due_pages", sa.Column("feed", sa.Boolean))
    queued = sa.text("feed IS NOT NULL")
    for name, columns in INDEXES.items():
        op.create_index(name, "due_pages", columns, postgresql_where=queued, sqlite_where=queued)


def downgrade() -> None:
    for name in INDEXES:
        op.drop_index(name, "due_pages")
    op.drop_column("due_pages", "feed")
    op.drop_column("pages", "feed")
