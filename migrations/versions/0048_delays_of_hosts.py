"""Delays and pauses: hosts that lose freshness to their delay, and the status behind a pause.

Revision ID: 0048
Revises: 0046
"""

import sqlalchemy as sa
from alembic import op

from service.storage.tables import Json

revision = "0048"
down_revision = "0047"


def upgrade() -> None:
    op.add_column("epochs", sa.Column("delay_losses", Json))
    op.add_column("host_queues", sa.Column("paused_status", sa.SmallInteger))


def downgrade() -> None:
    op.drop_column("host_queues", "paused_status")
    op.drop_column("epochs", "delay_losses")
