"""Chains of redirects: first crawls are counted at once, and judged at the end of their chain.

Revision ID: 0049
Revises: 0046
"""

import sqlalchemy as sa
from alembic import op

revision = "0049"
down_revision = "0046"


def upgrade() -> None:
    column = sa.Column("n_led", sa.BigInteger, nullable=False, server_default="0")
    op.add_column("url_levels", column)


def downgrade() -> None:
    op.drop_column("url_levels", "n_led")
