"""Pauses of hosts by an operator and by the site, each in a column of its own.

Revision ID: 0019
Revises: 0018
"""

import sqlalchemy as sa
from alembic import op

from service.storage.tables import Instant

revision = "0019"
down_revision = "0018"

TABLES = "host_queues", "deleted_hosts"


def upgrade() -> None:
    for table in TABLES:
        op.add_column(table, sa.Column("paused_until", Instant))
        op.execute(
            f"UPDATE {table} SET paused_until = blocked_until, blocked_until = NULL "
            "WHERE paused_at IS NOT NULL"
        )


def downgrade() -> None:
    # one pause has both, until the later end; it is the site's if that ends later
    later = "(blocked_until IS NULL OR blocked_until < paused_until)"
    for table in TABLES:
        op.execute(
            f"UPDATE {table} SET "
            f"paused_at = CASE WHEN {later} THEN paused_at END, "
            f"blocked_until = CASE WHEN {later} THEN paused_until ELSE blocked_until END "
            "WHERE paused_until IS NOT NULL"
        )
        op.drop_column(table, "paused_until")
