"""Wide revisions: each epoch keeps those that it knows, by logical shard.

Revision ID: 0020
Revises: 0019
"""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"


def upgrade() -> None:
    op.add_column("url_groups", sa.Column("wide_revisions", sa.LargeBinary))


def downgrade() -> None:
    op.drop_column("url_groups", "wide_revisions")
