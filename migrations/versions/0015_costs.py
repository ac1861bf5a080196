"""Costs: pages have the mean cost of their crawls, and epochs the unit of their budget.

Revision ID: 0015
Revises: 0011
"""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0011"


def upgrade() -> None:
    op.add_column("page_states", sa.Column("cost", sa.Double))
    op.add_column("epochs", sa.Column("unit", sa.Text))


def downgrade() -> None:
    op.drop_column("epochs", "unit")
    op.drop_column("page_states", "cost")
