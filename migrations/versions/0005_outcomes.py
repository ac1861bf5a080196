"""Outcomes: a page's state has the outcome of its last crawl, and the time of its first absence.

Revision ID: 0005
Revises: 0004
"""

import sqlalchemy as sa
from alembic import op

from service.storage.tables import Instant

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.add_column("page_states", sa.Column("outcome", sa.SmallInteger))
    op.add_column("page_states", sa.Column("absent_since", Instant))
    # codes of service.model.outcomes: 2 absent, 6 failed; a gone page has had one more look
    op.execute(
        "UPDATE page_states SET outcome = 2, absent_since = last_observed_at, "
        "n_failures = coalesce(n_failures, 0) + 1 WHERE gone"
    )
    op.execute("UPDATE page_states SET outcome = 6 WHERE NOT gone AND n_failures > 0")


def downgrade() -> None:
    op.execute("UPDATE page_states SET n_failures = n_failures - 1 WHERE gone AND n_failures > 1")
    op.drop_column("page_states", "absent_since")
    op.drop_column("page_states", "outcome")
