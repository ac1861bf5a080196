"""Weights of changes: of the log's entries, and the least that a webhook wants.

Revision ID: 0028
Revises: 0027
"""

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"


def _tables() -> tuple[str, ...]:
    """Return the tables of the log; on Postgres also the one of the days that are set aside."""
    on_postgres = op.get_bind().dialect.name == "postgresql"
    return ("observations", "sealed_observations") if on_postgres else ("observations",)


def upgrade() -> None:
    for table in _tables():
        op.add_column(table, sa.Column("weight", sa.Double))
    op.add_column("webhooks", sa.Column("min_weight", sa.Double))


def downgrade() -> None:
    op.drop_column("webhooks", "min_weight")
    for table in _tables():
        op.drop_column(table, "weight")
