"""Turns of a host queue that its first crawls have earned beside other crawls.

Revision ID: 0041
Revises: 0040
"""

import sqlalchemy as sa
from alembic import op

revision = "0041"
down_revision = "0040"


def upgrade() -> None:
    op.add_column("host_queues", sa.Column("first_credit", sa.Double))


def downgrade() -> None:
    op.drop_column("host_queues", "first_credit")
