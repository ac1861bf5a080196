"""Latencies of host queues: the factor on the delay and its maximum, and what was learnt.

Revision ID: 0027
Revises: 0026
"""

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"

NUMBERS = "latency_factor", "max_delay_s", "latency_s", "usual_latency_s"
INDEX = "host_queues_latency_factor_idx"
SET = sa.text("latency_factor > 0")


def upgrade() -> None:
    for name in NUMBERS:
        op.add_column("host_queues", sa.Column(name, sa.Double))
    op.add_column("host_queues", sa.Column("n_latencies", sa.SmallInteger))
    op.create_index(
        INDEX, "host_queues", ["latency_factor"], postgresql_where=SET, sqlite_where=SET
    )


def downgrade() -> None:
    op.drop_index(INDEX, "host_queues")
    for name in ("n_latencies", *reversed(NUMBERS)):
        op.drop_column("host_queues", name)
