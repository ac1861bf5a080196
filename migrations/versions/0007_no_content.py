"""Pages without content: the rate by which they are tried again, and their number in the history.

A page that has never had content had a request of 1970, so that it was due without a share. It no
longer needs one, and pings of today could not replace it.

Revision ID: 0007
Revises: 0005
"""

import sqlalchemy as sa
from alembic import op

from service.storage.tables import Short

revision = "0007"
down_revision = "0006"

ZERO = {"sqlite": "0", "postgresql": "to_timestamp(0)"}
"""The year 1970 in the two databases."""
NO_COPY = {
    "sqlite": "last_observed_at IS NULL",
    "postgresql": "last_observed_at = '-infinity'",
}
"""Condition on crawled pages that have never had content."""


def upgrade() -> None:
    op.add_column("page_states", sa.Column("retry_rate", Short))
    op.add_column("history", sa.Column("n_no_content", sa.BigInteger))
    zero = ZERO[op.get_bind().dialect.name]
    of_1970 = f"requested_at = {zero}"
    op.execute(f"UPDATE page_states SET requested_at = NULL WHERE {of_1970}")


def downgrade() -> None:
    dialect = op.get_bind().dialect.name
    op.execute(
        f"UPDATE page_states SET requested_at = {ZERO[dialect]} "
        f"WHERE requested_at IS NULL AND last_crawl_at IS NOT NULL AND {NO_COPY[dialect]}"
    )
    op.drop_column("history", "n_no_content")
    op.drop_column("page_states", "retry_rate")
