"""Needs that an operator has accepted for some time; stopped pages in the history;
first signs of incidents; requests of operators.

Revision ID: 0042
Revises: 0041
"""

import sqlalchemy as sa
from alembic import op

from service.storage.tables import Instant

revision = "0042"
down_revision = "0041"

FIRST_SIGNS = ("absent_at", "refused_at", "alike_at")


def upgrade() -> None:
    op.create_table(
        "accepted_needs",
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("accepted_at", Instant, nullable=False),
        sa.Column("until_at", Instant, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("kind", "subject", name="accepted_needs_pkey"),
        comment="Needs that an operator has accepted, and until when.",
    )
    op.add_column("history", sa.Column("n_stopped", sa.BigInteger))
    op.add_column("page_states", sa.Column("asked_at", Instant))
    for name in FIRST_SIGNS:
        op.add_column("host_incidents", sa.Column(name, Instant))


def downgrade() -> None:
    for name in FIRST_SIGNS:
        op.drop_column("host_incidents", name)
    op.drop_column("page_states", "asked_at")
    op.drop_column("history", "n_stopped")
    op.drop_table("accepted_needs")
