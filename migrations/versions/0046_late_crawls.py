"""Late crawls: the history counts them in the day on which they began.

Revision ID: 0046
Revises: 0045
"""

import sqlalchemy as sa
from alembic import op

revision = "0046"
down_revision = "0045"


def upgrade() -> None:
    op.add_column("history", sa.Column("n_late", sa.BigInteger, nullable=False, server_default="0"))


def downgrade() -> None:
    op.drop_column("history", "n_late")
