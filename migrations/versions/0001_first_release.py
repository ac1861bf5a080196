"""The first release: pages, their states, the log, epochs and the schedule.

Revision ID: 0001
Revises:
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

from service.storage.tables import Instant

revision = "0001"
down_revision = None

Key = sa.LargeBinary(16).with_variant(postgresql.UUID(as_uuid=False), "postgresql")
Id = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
Json = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")


def upgrade() -> None:
    op.create_table(
        "meta",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("value", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("name", name="meta_pkey"),
        comment="What must be known before states are read: the estimator that wrote them.",
    )
    op.create_table(
        "hosts",
        sa.Column("host_id", Id, sa.Identity(), nullable=False),
        sa.Column("host", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("host_id", name="hosts_pkey"),
        sa.UniqueConstraint("host", name="hosts_host_key"),
    )
    op.create_table(
        "pages",
        sa.Column("page_id", Id, sa.Identity(), primary_key=True),
        sa.Column("key", Key, nullable=False),
        sa.Column("url", sa.Text, nullable=False),
        sa.Column("host_id", Id, nullable=False),
        sa.Column("importance", sa.Double, nullable=False),
        sa.Column("observability", sa.SmallInteger, nullable=False),
        sa.Column("min_crawl_rate", sa.Double),
        sa.Column("max_crawl_rate", sa.Double),
        sa.Column("created_at", Instant, nullable=False),
        sa.UniqueConstraint("key", name="pages_key_key"),
        sa.ForeignKeyConstraint(["host_id"], ["hosts.host_id"], name="pages_host_id_fkey"),
        sqlite_autoincrement=True,
    )
    op.create_index("pages_host_id_idx", "pages", ["host_id"])
    op.create_table(
        "page_states",
        sa.Column("page_id", Id, nullable=False, autoincrement=False),
        sa.Column("last_crawl_at", Instant),
        sa.Column("last_observed_at", Instant),
        sa.Column("digest", sa.BigInteger),
        sa.Column("gone", sa.Boolean, nullable=False),
        sa.Column("n_observations", sa.BigInteger, nullable=False),
        sa.Column("n_changes", sa.BigInteger, nullable=False),
        sa.Column("n_pings", sa.BigInteger, nullable=False),
        sa.Column("last_ping_at", Instant),
        sa.Column("pings_since", Instant, nullable=False),
        sa.Column("ping_credit", sa.Double, nullable=False),
        sa.Column("recent_pings", sa.BigInteger, nullable=False),
        sa.Column("real_pings", sa.Double, nullable=False),
        sa.Column("false_pings", sa.Double, nullable=False),
        sa.Column("trust", sa.Double, nullable=False),
        sa.Column("wanted_at", Instant),
        sa.Column("gap", sa.Double, nullable=False),
        sa.Column("estimate", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("page_id", name="page_states_pkey"),
        sa.ForeignKeyConstraint(
            ["page_id"], ["pages.page_id"], name="page_states_page_id_fkey", ondelete="CASCADE"
        ),
        comment="One row a page, rewritten by every observation: no secondary index, room for HOT.",
        postgresql_with={"fillfactor": "70", "autovacuum_vacuum_scale_factor": "0.05"},
    )
    op.create_table(
        "observations",
        sa.Column("page_id", Id, nullable=False, autoincrement=False),
        sa.Column("observed_at", Instant, nullable=False),
        sa.Column("kind", sa.SmallInteger, nullable=False),
        sa.Column("changed", sa.SmallInteger),
        sa.Column("interval", sa.Double),
        sa.Column("crawl_rate", sa.Double),
        sa.Column("status", sa.SmallInteger),
        sa.PrimaryKeyConstraint("page_id", "observed_at", "kind", name="observations_pkey"),
        comment="Append-only evidence; partitioned by month on Postgres, cut by retention.",
        postgresql_partition_by="RANGE (observed_at)",
        sqlite_with_rowid=False,
    )
    op.create_table(
        "epochs",
        sa.Column("epoch", Id, sa.Identity(), primary_key=True),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("requested_at", Instant, nullable=False),
        sa.Column("started_at", Instant),
        sa.Column("finished_at", Instant),
        sa.Column("reason", sa.Text),
        sa.Column("bandwidth", sa.Double),
        sa.Column("bandwidth_used", sa.Double),
        sa.Column("multiplier", sa.Double),
        sa.Column("harmonic_cost", sa.Double),
        sa.Column("binary_cost", sa.Double),
        sa.Column("kkt_residual", sa.Double),
        sa.Column("passes", sa.Integer),
        sa.Column("n_pages", sa.BigInteger),
        sa.Column("prior", Json),
        sa.Column("crawl_rate_quantiles", Json),
        sa.Column("seconds", Json),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "epochs_one_request_idx",
        "epochs",
        ["status"],
        unique=True,
        postgresql_where=sa.text("status = 'requested'"),
        sqlite_where=sa.text("status = 'requested'"),
    )
    op.create_table(
        "schedule",
        sa.Column("epoch", Id, nullable=False, autoincrement=False),
        sa.Column("page_id", Id, nullable=False, autoincrement=False),
        sa.Column("change_rate", sa.Double, nullable=False),
        sa.Column("crawl_rate", sa.Double, nullable=False),
        sa.Column("crawl_probability", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("epoch", "page_id", name="schedule_pkey"),
        comment="What epochs published; on Postgres one partition an epoch.",
        postgresql_partition_by="LIST (epoch)",
        sqlite_with_rowid=False,
    )
    if op.get_bind().dialect.name == "postgresql":
        op.execute("CREATE TABLE observations_default PARTITION OF observations DEFAULT")


def downgrade() -> None:
    for table in ("schedule", "epochs", "observations", "page_states", "pages", "hosts", "meta"):
        op.drop_table(table)
