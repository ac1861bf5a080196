"""Recent pings: a page's state has the pings of the last days, of which the older weigh less.

Revision ID: 0016
Revises: 0015
"""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"

MEAN_LIFE_DAYS = 10.1
"""Mean life of the weight of a ping, days."""
DAYS = {
    "postgresql": "extract(epoch FROM last_ping_at - pings_since) / 86400.0",
    "sqlite": "(last_ping_at - pings_since) / 86400e6",
}
"""Days from the start of counting to the last ping."""


def upgrade() -> None:
    op.add_column("page_states", sa.Column("recent_pings", sa.Double))
    days = DAYS[op.get_bind().dialect.name]
    # as if the pings so far had come at a steady rate
    op.execute(
        "UPDATE page_states SET recent_pings = "
        f"CASE WHEN {days} > {MEAN_LIFE_DAYS} THEN n_pings * {MEAN_LIFE_DAYS} / ({days}) "
        "ELSE n_pings END WHERE n_pings > 0"
    )


def downgrade() -> None:
    op.drop_column("page_states", "recent_pings")
