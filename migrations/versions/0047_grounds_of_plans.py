"""Grounds of plans: epochs keep how many costs they assume, and the sum of the minimum crawl rates.

Revision ID: 0047
Revises: 0046
"""

import sqlalchemy as sa
from alembic import op

revision = "0047"
down_revision = "0046"


def upgrade() -> None:
    op.add_column("epochs", sa.Column("n_assumed_costs", sa.BigInteger))
    op.add_column("epochs", sa.Column("min_bandwidth", sa.Double))


def downgrade() -> None:
    op.drop_column("epochs", "min_bandwidth")
    op.drop_column("epochs", "n_assumed_costs")
