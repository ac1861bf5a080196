"""Leads: the leases of the processes that lead epochs and archiving.

Revision ID: 0004
Revises: 0003
"""

import sqlalchemy as sa
from alembic import op

from service.storage.tables import Id, Instant, Json

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.create_table(
        "leads",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("token", Id, nullable=False),
        sa.Column("sessions", Json, nullable=False),
        sa.Column("renewed_at", Instant, nullable=False),
        sa.Column("expires_at", Instant, nullable=False),
        comment="Leases of the leaders, and the sessions of their processes; on Postgres only.",
    )


def downgrade() -> None:
    op.drop_table("leads")
