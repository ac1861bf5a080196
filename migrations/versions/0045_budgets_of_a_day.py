"""What changes of the budget make of a day, and the amounts that servers hold.

Revision ID: 0045
Revises: 0044
"""

import sqlalchemy as sa
from alembic import op

from service.storage.tables import Id, Instant

revision = "0045"
down_revision = "0044"
ADDED = ("lent", "changed", "cut")


def upgrade() -> None:
    for name in ADDED:
        op.add_column("pace", sa.Column(name, sa.Double))
    op.create_table(
        "allotments",
        sa.Column("server", Id, autoincrement=False),
        sa.Column("on_day", sa.Integer, nullable=False),
        sa.Column("unit", sa.Text, nullable=False),
        *(sa.Column(name, sa.Double, nullable=False) for name in ("due", "on_loan", "n_first")),
        sa.Column("ends_at", Instant, nullable=False),
        sa.PrimaryKeyConstraint("server", name="allotments_pkey"),
        comment="Amounts of the pace that servers hold, and no lease has taken.",
        postgresql_with={"fillfactor": "10"},
    )


def downgrade() -> None:
    op.drop_table("allotments")
    for name in reversed(ADDED):
        op.drop_column("pace", name)
