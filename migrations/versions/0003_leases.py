"""Leases: the crawls that are due soon or handed out, and the gates of the hosts they go to.

`crawls` starts empty; the next epoch's round fills it.

Revision ID: 0003
Revises: 0002
"""

import sqlalchemy as sa
from alembic import op

from service.storage.tables import Instant

revision = "0003"
down_revision = "0002"

Id = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
HOT = {
    "fillfactor": "70",
    "autovacuum_vacuum_scale_factor": "0.05",
    "autovacuum_vacuum_cost_delay": "0",
}


def upgrade() -> None:
    op.create_table(
        "host_groups",
        sa.Column("group_id", Id, sa.Identity(), primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("max_crawl_rate", sa.Double),
        sa.UniqueConstraint("name", name="host_groups_name_key"),
        comment="Hosts that share a server: one lane, one cap.",
    )
    op.add_column("hosts", sa.Column("group_id", Id))
    op.add_column("hosts", sa.Column("max_crawl_rate", sa.Double))
    op.add_column("page_states", sa.Column("n_failures", sa.SmallInteger))
    op.create_table(
        "lanes",
        sa.Column("lane_id", Id, nullable=False, autoincrement=False),
        sa.Column("min_delay_s", sa.Double),
        sa.Column("robots_delay_s", sa.Double),
        sa.Column("max_concurrency", sa.Integer),
        sa.Column("n_failures", sa.SmallInteger, nullable=False, server_default="0"),
        sa.Column("blocked_until", Instant),
        sa.Column("ready_at", Instant),
        sa.Column("next_at", Instant),
        sa.PrimaryKeyConstraint("lane_id", name="lanes_pkey"),
        comment="What is crawled one after the other: a host (its id) or a group (minus its id).",
        postgresql_with=HOT,
    )
    op.create_index("lanes_next_at_idx", "lanes", ["next_at"])
    op.create_table(
        "crawls",
        sa.Column("page_id", Id, nullable=False, autoincrement=False),
        sa.Column("lane_id", Id, nullable=False),
        sa.Column("next_at", Instant, nullable=False),
        sa.Column("last_crawl_at", Instant),
        sa.Column("crawl_rate", sa.Double),
        sa.Column("token", sa.BigInteger),
        sa.Column("leased_at", Instant),
        sa.Column("expires_at", Instant),
        sa.Column("wanted", sa.Boolean, nullable=False),
        sa.Column("worker", sa.Text),
        sa.PrimaryKeyConstraint("page_id", name="crawls_pkey"),
        comment="Pages due soon, and the leases on them.",
        postgresql_with=HOT,
    )
    op.create_index("crawls_lane_id_next_at_idx", "crawls", ["lane_id", "next_at"])


def downgrade() -> None:
    op.drop_table("crawls")
    op.drop_table("lanes")
    for table, column in (
        ("page_states", "n_failures"),
        ("hosts", "max_crawl_rate"),
        ("hosts", "group_id"),
    ):
        op.drop_column(table, column)
    op.drop_table("host_groups")
