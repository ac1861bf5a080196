"""First crawls of URL groups that robots.txt forbids.

Revision ID: 0037
Revises: 0036
"""

import sqlalchemy as sa
from alembic import op

revision = "0037"
down_revision = "0036"


def upgrade() -> None:
    column = sa.Column("n_forbidden", sa.BigInteger, nullable=False, server_default="0")
    op.add_column("url_levels", column)


def downgrade() -> None:
    op.drop_column("url_levels", "n_forbidden")
