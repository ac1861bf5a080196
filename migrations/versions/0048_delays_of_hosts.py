"""Delays of hosts: an epoch keeps which hosts lose much freshness to their delay.

Revision ID: 0048
Revises: 0046
"""

import sqlalchemy as sa
from alembic import op

from service.storage.tables import Json

revision = "0048"
down_revision = "0046"


def upgrade() -> None:
    op.add_column("epochs", sa.Column("delay_losses", Json))


def downgrade() -> None:
    op.drop_column("epochs", "delay_losses")
