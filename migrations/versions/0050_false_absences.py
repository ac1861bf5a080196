"""Hosts under suspicion: the time since which no page of them has had content.

Revision ID: 0050
Revises: 0049
"""

import sqlalchemy as sa
from alembic import op

from service.storage.tables import Instant

revision = "0050"
down_revision = "0049"


def upgrade() -> None:
    op.add_column("host_incidents", sa.Column("no_content_since", Instant))


def downgrade() -> None:
    op.drop_column("host_incidents", "no_content_since")
