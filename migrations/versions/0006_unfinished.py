"""Unfinished leases: a row of the queue counts those that ended without a report.

Revision ID: 0006
Revises: 0005
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

COUNTED = sa.text("n_unfinished IS NOT NULL")


def upgrade() -> None:
    op.add_column("due_pages", sa.Column("n_unfinished", sa.SmallInteger))
    op.add_column("due_pages", sa.Column("ending", sa.SmallInteger))
    op.add_column("due_pages", sa.Column("waits", sa.Boolean))
    op.create_index(
        "due_pages_n_unfinished_idx",
        "due_pages",
        ["page_id"],
        postgresql_where=COUNTED,
        sqlite_where=COUNTED,
    )


def downgrade() -> None:
    # without a count, the rows are those of pages that are due as before
    op.execute(
        "UPDATE due_pages SET worker = NULL, leased_at = NULL, expires_at = NULL "
        "WHERE token IS NULL AND n_unfinished IS NOT NULL"
    )
    op.drop_index("due_pages_n_unfinished_idx", "due_pages")
    op.drop_column("due_pages", "waits")
    op.drop_column("due_pages", "ending")
    op.drop_column("due_pages", "n_unfinished")
