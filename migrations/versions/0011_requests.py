"""Requests: a page's state has the time of its newest request beside that of its first one.

Revision ID: 0011
Revises: 0005
"""

import sqlalchemy as sa
from alembic import op

from service.storage.tables import Instant

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    op.add_column("page_states", sa.Column("renewed_at", Instant))


def downgrade() -> None:
    op.drop_column("page_states", "renewed_at")
