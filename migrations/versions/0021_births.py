"""Births: pages that were born after their host was known, hosts' first times, age evidence.

Revision ID: 0021
Revises: 0020
"""

import sqlalchemy as sa
from alembic import op

from service.storage.tables import Instant, Json

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    op.add_column("page_states", sa.Column("born_at", Instant))
    op.add_column("hosts", sa.Column("known_at", Instant))
    op.add_column("epochs", sa.Column("age_evidence", Json))


def downgrade() -> None:
    op.drop_column("epochs", "age_evidence")
    op.drop_column("hosts", "known_at")
    op.drop_column("page_states", "born_at")
