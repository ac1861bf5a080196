"""Redirects: hops and new targets of pages; validators in doubt, and false answers 304 of hosts.

Revision ID: 0009
Revises: 0005
"""

import sqlalchemy as sa
from alembic import op

from service.storage.tables import Instant

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.add_column("page_states", sa.Column("hops", sa.SmallInteger))
    op.add_column("page_states", sa.Column("n_targets", sa.SmallInteger))
    op.add_column("page_validators", sa.Column("doubted", sa.Boolean))
    op.add_column("hosts", sa.Column("false_304_at", Instant))


def downgrade() -> None:
    op.drop_column("hosts", "false_304_at")
    op.drop_column("page_validators", "doubted")
    op.drop_column("page_states", "n_targets")
    op.drop_column("page_states", "hops")
