"""Workers: an index has the rows of the queue with a worker, of leases that run or were lost.

Revision ID: 0012
Revises: 0011
"""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"

NAMED = sa.text("worker IS NOT NULL")


def upgrade() -> None:
    op.create_index(
        "due_pages_worker_idx",
        "due_pages",
        ["worker"],
        postgresql_where=NAMED,
        sqlite_where=NAMED,
    )


def downgrade() -> None:
    op.drop_index("due_pages_worker_idx", "due_pages")
