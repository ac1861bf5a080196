"""The log of observations, the feed of changes, and sums over both."""

import sqlalchemy as sa

from service.model.history import COUNTED_PAGES, COUNTS, GAUGES
from service.storage.tables.kinds import Id, Instant, metadata

observations = sa.Table(
    "observations",
    metadata,
    sa.Column("stretch", sa.Integer, nullable=False, info={"only": "sqlite"}),
    sa.Column("page_id", Id, nullable=False),
    sa.Column("observed_at", Instant, nullable=False),
    sa.Column("interval", sa.Double),
    sa.Column("crawl_rate", sa.Double),
    sa.Column("kind", sa.SmallInteger, nullable=False),
    sa.Column("changed", sa.SmallInteger),
    sa.Column("status", sa.SmallInteger),
    sa.Column("weight", sa.Double),
    sa.PrimaryKeyConstraint("stretch", "page_id", "observed_at", "kind").ddl_if("sqlite"),
    sa.Index(None, "page_id").ddl_if("postgresql"),
    comment="Append-only evidence; partitioned by time on Postgres, cut by retention.",
    postgresql_partition_by="RANGE (observed_at)",
    sqlite_with_rowid=False,
)

log_files = sa.Table(
    "log_files",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("day", Instant, nullable=False),
    sa.Column("first_page", sa.BigInteger, nullable=False),
    sa.Column("last_page", sa.BigInteger, nullable=False),
    sa.Column("n_rows", sa.BigInteger, nullable=False),
    sa.Column("n_bytes", sa.BigInteger, nullable=False),
    sa.Column("checksum", sa.Text, nullable=False),
    sa.Column("archived_at", Instant, nullable=False),
    sa.Index(None, "day"),
    comment="Files of the archive that have old days of the log.",
)

feed = sa.Table(
    "feed",
    metadata,
    sa.Column("seq", Id, primary_key=True, autoincrement=False),
    sa.Column("items", sa.LargeBinary, nullable=False),
    comment="Changes of pages: a block a commit, numbered in the order of the commits.",
)

deleted_pages = sa.Table(
    "deleted_pages",
    metadata,
    sa.Column("page_id", Id, primary_key=True, autoincrement=False),
    sa.Column("url", sa.Text, nullable=False),
    sa.Column("host", sa.Text, nullable=False),
    sa.Column("tags", sa.Text, nullable=False),
    sa.Column("deleted_at", Instant, nullable=False),
    sa.Index(None, "deleted_at"),
    comment="Pages whose deletion the feed has: their last names, kept as long as the feed.",
)

feed_files = sa.Table(
    "feed_files",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("day", Instant, nullable=False),
    sa.Column("first_seq", sa.BigInteger, nullable=False),
    sa.Column("last_seq", sa.BigInteger, nullable=False, index=True),
    sa.Column("n_rows", sa.BigInteger, nullable=False),
    sa.Column("n_bytes", sa.BigInteger, nullable=False),
    sa.Column("checksum", sa.Text, nullable=False),
    sa.Column("archived_at", Instant, nullable=False),
    comment="Files of the archive that have old days of the feed.",
)

history_parts = sa.Table(
    "history_parts",
    metadata,
    sa.Column("part", Id, sa.Identity(), primary_key=True),
    sa.Column("at", Instant, nullable=False),
    sa.Column("epoch", Id, nullable=False),
    sa.Column("sums", sa.LargeBinary, nullable=False),
    comment="Sums of commits, append-only, until they become rows of history.",
    postgresql_with={"autovacuum_vacuum_scale_factor": "0.05"},
)

ADDED = ("n_taught_nothing", "spent", "n_late")
"""Counts that databases of an earlier version lack."""
history = sa.Table(
    "history",
    metadata,
    sa.Column("host_id", Id, primary_key=True, autoincrement=False),
    sa.Column("at", Instant, primary_key=True),
    sa.Column("epoch", Id),
    *(sa.Column(name, sa.BigInteger, nullable=False) for name in COUNTS if name not in ADDED),
    *(sa.Column(name, sa.BigInteger, nullable=False, server_default="0") for name in ADDED),
    sa.Column("measured_at", Instant),
    *(sa.Column(name, sa.BigInteger) for name in COUNTED_PAGES),
    *(sa.Column(name, sa.Double) for name in GAUGES),
    sa.Index(None, "at"),
    comment="Sums and gauges of steps of ten minutes, of all pages (host_id 0) and of busy hosts.",
)

host_loads = sa.Table(
    "host_loads",
    metadata,
    sa.Column("measured_at", Instant, primary_key=True),
    sa.Column("loads", sa.LargeBinary, nullable=False),
    comment="Pages, overdue pages and crawl rates of all hosts, compressed, a row a measurement.",
)

calibrations = sa.Table(
    "calibrations",
    metadata,
    sa.Column("at", Instant, primary_key=True),
    sa.Column("epoch", Id, primary_key=True, autoincrement=False),
    sa.Column("estimator", sa.Text, primary_key=True),
    sa.Column("sums", sa.LargeBinary, nullable=False),
    sa.Index(None, "epoch"),
    comment="Predictions of changes and the results of crawls, summed by bins, a row a step.",
)
