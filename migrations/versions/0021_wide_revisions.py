"""Wide revisions: each epoch keeps those that it knows, by logical shard.

Revision ID: 0021
Revises: 0018
"""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0018"


def upgrade() -> None:
    op.add_column("url_groups", sa.Column("wide_revisions", sa.LargeBinary))


def downgrade() -> None:
    op.drop_column("url_groups", "wide_revisions")
