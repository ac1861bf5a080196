"""Crawls that taught nothing: the history counts them.

Revision ID: 0018
Revises: 0017
"""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    op.add_column(
        "history",
        sa.Column("n_taught_nothing", sa.BigInteger, nullable=False, server_default="0"),
    )
    # failed crawls are most of them
    op.execute("UPDATE history SET n_taught_nothing = n_failed WHERE n_failed > 0")


def downgrade() -> None:
    op.drop_column("history", "n_taught_nothing")
