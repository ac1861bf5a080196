"""The crawls of readers without leases, from which the next epoch goes on.

Revision ID: 0044
Revises: 0043
"""

import sqlalchemy as sa
from alembic import op

revision = "0044"
down_revision = "0043"


def upgrade() -> None:
    op.add_column("epochs", sa.Column("feedback", sa.Double))
    op.add_column("epochs", sa.Column("still_due", sa.Double))


def downgrade() -> None:
    op.drop_column("epochs", "still_due")
    op.drop_column("epochs", "feedback")
