"""Where a page redirects to is part of its state, written under the lock that evidence holds.

Revision ID: 0006
Revises: 0005
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

Id = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.add_column("page_states", sa.Column("redirects_to", Id))


def downgrade() -> None:
    op.drop_column("page_states", "redirects_to")
