"""Costs: pages have the mean cost of their crawls, epochs a unit, the history what was spent.

Revision ID: 0017
Revises: 0016
"""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    op.add_column("page_states", sa.Column("cost", sa.Double))
    op.add_column("epochs", sa.Column("unit", sa.Text))
    spent = sa.Column("spent", sa.BigInteger, nullable=False, server_default="0")
    op.add_column("history", spent)


def downgrade() -> None:
    op.drop_column("history", "spent")
    op.drop_column("epochs", "unit")
    op.drop_column("page_states", "cost")
