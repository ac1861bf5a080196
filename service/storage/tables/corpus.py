"""Hosts and pages, and what is known of each."""

import sqlalchemy as sa

from service.storage.tables.kinds import Id, Instant, Key, Short, metadata

hosts = sa.Table(
    "hosts",
    metadata,
    sa.Column("host_id", Id, sa.Identity(), primary_key=True),
    sa.Column("host", sa.Text, nullable=False, unique=True),
    sa.Column("group_id", Id),
    sa.Column("max_crawl_rate", sa.Double),
    sa.Column("false_304_at", Instant),
    sa.Column("first_share", sa.Double),
    sa.Column("known_at", Instant),
    sa.Index(
        "hosts_group_id_idx",
        "group_id",
        postgresql_where=sa.text("group_id IS NOT NULL"),
        sqlite_where=sa.text("group_id IS NOT NULL"),
    ),
)

host_groups = sa.Table(
    "host_groups",
    metadata,
    sa.Column("group_id", Id, sa.Identity(), primary_key=True),
    sa.Column("name", sa.Text, nullable=False, unique=True),
    sa.Column("max_crawl_rate", sa.Double),
    comment="Hosts that share a server: one host_queue, one cap.",
)

pages = sa.Table(
    "pages",
    metadata,
    sa.Column("page_id", Id, sa.Identity(), primary_key=True),
    sa.Column("key", Key, nullable=False, unique=True),
    sa.Column("host_id", Id, nullable=False),
    sa.Column("importance", sa.Double, nullable=False),
    sa.Column("min_crawl_rate", sa.Double),
    sa.Column("max_crawl_rate", sa.Double),
    sa.Column("created_at", Instant, nullable=False),
    sa.Column("url", sa.Text, nullable=False),
    sa.Column("feed", sa.Boolean),
    sa.ForeignKeyConstraint(["host_id"], ["hosts.host_id"]).ddl_if("sqlite"),
    sa.Index("pages_host_id_page_id_idx", "host_id", "page_id").ddl_if("sqlite"),
    # a host's pages of one window share an entry, which makes the index a third as large
    sa.Index("pages_host_id_window_idx", "host_id", sa.text("(page_id >> 14)")).ddl_if(
        "postgresql"
    ),
    sqlite_autoincrement=True,
)

tags = sa.Table(
    "tags",
    metadata,
    sa.Column("tag_id", Id, sa.Identity(), primary_key=True),
    sa.Column("tag", sa.Text, nullable=False, unique=True),
    comment="Names of tags.",
)

page_tags = sa.Table(
    "page_tags",
    metadata,
    sa.Column("tag_id", Id, nullable=False),
    sa.Column("page_id", Id, nullable=False),
    sa.PrimaryKeyConstraint("tag_id", "page_id"),
    sa.Index(None, "page_id"),
    comment="Tags of pages; a page without tags has no row.",
    sqlite_with_rowid=False,
)

page_states = sa.Table(
    "page_states",
    metadata,
    sa.Column("page_id", Id, primary_key=True, autoincrement=False),
    sa.Column("host_id", Id, nullable=False),
    sa.Column("last_crawl_at", Instant),
    sa.Column("last_observed_at", Instant),
    sa.Column("digest", sa.BigInteger),
    sa.Column("pings_since", Instant, nullable=False),
    sa.Column("requested_at", Instant),
    sa.Column("renewed_at", Instant),
    sa.Column("asked_at", Instant),
    sa.Column("last_ping_at", Instant),
    sa.Column("ping_credit", sa.Double),
    sa.Column("real_pings", sa.Double),
    sa.Column("false_pings", sa.Double),
    sa.Column("trust", sa.Double),
    sa.Column("n_pings", sa.Integer),
    sa.Column("recent_pings", sa.Double),
    sa.Column("pings_since_crawl", sa.Integer),
    sa.Column("n_observations", sa.Integer, nullable=False),
    sa.Column("n_changes", sa.Integer, nullable=False),
    sa.Column("interval_factor", Short, nullable=False),
    sa.Column("last_interval", Short, nullable=False, server_default="0"),
    sa.Column("last_age", Short),
    sa.Column("observability", sa.SmallInteger, nullable=False),
    sa.Column("gone", sa.Boolean, nullable=False),
    sa.Column("estimate", sa.LargeBinary, nullable=False),
    sa.Column("n_failures", sa.SmallInteger),
    sa.Column("redirects_to", Id),
    sa.Column("outcome", sa.SmallInteger),
    sa.Column("absent_since", Instant),
    sa.Column("hops", sa.SmallInteger),
    sa.Column("n_targets", sa.SmallInteger),
    sa.Column("retry_rate", Short),
    sa.Column("cost", sa.Double),
    sa.Column("url_group", sa.Integer, nullable=False, server_default="0"),
    sa.Column("held", sa.BigInteger),
    sa.Column("born_at", Instant),
    sa.ForeignKeyConstraint(["page_id"], ["pages.page_id"], ondelete="CASCADE").ddl_if("sqlite"),
    # only a first crawl changes the column, so other updates stay HOT
    sa.Index(
        "page_states_held_idx",
        "held",
        "page_id",
        postgresql_where=sa.text("held IS NOT NULL"),
        sqlite_where=sa.text("held IS NOT NULL"),
    ),
    sa.Index(
        "page_states_redirects_to_idx",
        "redirects_to",
        postgresql_where=sa.text("redirects_to IS NOT NULL"),
        sqlite_where=sa.text("redirects_to IS NOT NULL"),
    ),
    comment="One row a page, updated by every observation: room for HOT, an index of new pages.",
    postgresql_with={
        "fillfactor": "90",
        "autovacuum_vacuum_scale_factor": "0.05",
        "autovacuum_vacuum_cost_delay": "0",
        "autovacuum_analyze_scale_factor": "0.2",
    },
)

page_validators = sa.Table(
    "page_validators",
    metadata,
    sa.Column("page_id", Id, primary_key=True, autoincrement=False),
    sa.Column("last_modified", Instant),
    sa.Column("etag", sa.Text),
    sa.Column("note", sa.Text),
    sa.Column("doubted", sa.Boolean),
    comment="Validators for conditional requests and notes, for pages that have any.",
)
