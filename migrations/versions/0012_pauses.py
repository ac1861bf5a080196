"""When a host's pause after trouble began, which tells it from a host blocked by hand.

Revision ID: 0012
Revises: 0011
"""

import sqlalchemy as sa
from alembic import op

from service.storage.tables import Instant

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    op.add_column("lanes", sa.Column("paused_at", Instant))


def downgrade() -> None:
    op.drop_column("lanes", "paused_at")
