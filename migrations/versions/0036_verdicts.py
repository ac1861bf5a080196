"""Verdicts: pings of hosts, ratios that urgencies hide, and what crawls show of forecasts.

Revision ID: 0036
Revises: 0030
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

from service.storage.tables import Json

revision = "0036"
down_revision = "0030"


def upgrade() -> None:
    on_postgres = op.get_bind().dialect.name == "postgresql"
    ratio = postgresql.ARRAY(sa.REAL) if on_postgres else sa.Double()
    op.add_column("epochs", sa.Column("recalibration", Json))
    op.add_column("url_groups", sa.Column("ping_feeds", sa.LargeBinary))
    op.add_column("schedule", sa.Column("observed_ratio", ratio))


def downgrade() -> None:
    op.drop_column("schedule", "observed_ratio")
    op.drop_column("url_groups", "ping_feeds")
    op.drop_column("epochs", "recalibration")
