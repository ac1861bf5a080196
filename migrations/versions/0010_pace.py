"""Clocks have a pace: what a page's siblings show since its last crawl moves when it is due.

Existing pages start at pace 1, and are no evidence to their siblings until their next crawl.

Revision ID: 0010
Revises: 0009
"""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    op.add_column(
        "page_states", sa.Column("last_interval", sa.REAL, nullable=False, server_default="0")
    )
    op.add_column("schedule", sa.Column("pace", sa.REAL, nullable=False, server_default="1"))
    op.add_column("epochs", sa.Column("haste", sa.Double))
    op.execute("UPDATE epochs SET haste = 1.0 WHERE status = 'published'")


def downgrade() -> None:
    op.drop_column("epochs", "haste")
    op.drop_column("schedule", "pace")
    op.drop_column("page_states", "last_interval")
