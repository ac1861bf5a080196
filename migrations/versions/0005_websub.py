"""WebSub: the topics that hubs tell of.

Revision ID: 0005
Revises: 0004
"""

import sqlalchemy as sa
from alembic import op

from service.storage.tables import Instant

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.create_table(
        "websub",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("topic", sa.Text, nullable=False),
        sa.Column("secret", sa.Text),
        sa.Column("hub", sa.Text, nullable=False),
        sa.Column("requested_at", Instant, nullable=False),
        sa.Column("verified_at", Instant),
        sa.Column("expires_at", Instant),
        sa.PrimaryKeyConstraint("id", name="websub_pkey"),
        comment="Topics that hubs tell of.",
    )


def downgrade() -> None:
    op.drop_table("websub")
