"""Filters of requests for leases, by which a host without a crawler is known.

Revision ID: 0040
Revises: 0038
"""

import sqlalchemy as sa
from alembic import op

from service.storage.tables import Instant

revision = "0040"
down_revision = "0038"


def upgrade() -> None:
    op.create_table(
        "lease_filters",
        sa.Column("filter_id", sa.BigInteger, autoincrement=False),
        sa.Column("slice", sa.Integer, nullable=False),
        sa.Column("slices", sa.Integer, nullable=False),
        sa.Column("n_hosts", sa.Integer, nullable=False),
        sa.Column("asked_at", Instant, nullable=False),
        sa.Column("until_at", Instant, nullable=False),
        sa.PrimaryKeyConstraint("filter_id", name="lease_filters_pkey"),
        comment="Filters of requests for leases, and when crawlers last sent one.",
    )
    op.create_table(
        "filtered_hosts",
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("filter_id", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("host", "filter_id", name="filtered_hosts_pkey"),
        comment="Hosts that these filters name.",
    )


def downgrade() -> None:
    op.drop_table("filtered_hosts")
    op.drop_table("lease_filters")
