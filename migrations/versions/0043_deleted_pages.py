"""Deleted pages, whose URLs the feed of changes names.

Revision ID: 0043
Revises: 0042
"""

import sqlalchemy as sa
from alembic import op

from service.storage.tables import Id, Instant

revision = "0043"
down_revision = "0042"

OLD_COMMENT = "Changes that crawls found: a block a commit, numbered in the order of the commits."
NEW_COMMENT = "Changes of pages: a block a commit, numbered in the order of the commits."


def upgrade() -> None:
    op.create_table(
        "deleted_pages",
        sa.Column("page_id", Id, autoincrement=False),
        sa.Column("url", sa.Text, nullable=False),
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("tags", sa.Text, nullable=False),
        sa.Column("deleted_at", Instant, nullable=False),
        sa.PrimaryKeyConstraint("page_id", name="deleted_pages_pkey"),
        comment="Pages whose deletion the feed has: their last names, kept as long as the feed.",
    )
    op.create_index("deleted_pages_deleted_at_idx", "deleted_pages", ["deleted_at"])
    if op.get_bind().dialect.name == "postgresql":
        op.create_table_comment("feed", NEW_COMMENT)


def downgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.create_table_comment("feed", OLD_COMMENT)
    op.drop_table("deleted_pages")
