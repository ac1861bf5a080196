"""The pace: the state of the gate that keeps the budget.

Revision ID: 0013
Revises: 0011
"""

import sqlalchemy as sa
from alembic import op

from service.storage.tables import Instant

revision = "0013"
down_revision = "0011"

AMOUNTS = ("budget", "tokens", "ahead", "carried", "spent", "paid", "debt", "n_first")


def upgrade() -> None:
    op.create_table(
        "pace",
        sa.Column("pace_id", sa.SmallInteger, autoincrement=False, nullable=False),
        sa.Column("at", Instant),
        *(sa.Column(name, sa.Double) for name in AMOUNTS),
        sa.PrimaryKeyConstraint("pace_id", name="pace_pkey"),
        comment="One row: what the servers have taken of the day's budget.",
        postgresql_with={"fillfactor": "10"},
    )


def downgrade() -> None:
    op.drop_table("pace")
