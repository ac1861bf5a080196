"""The tables, the same on Postgres and SQLite; migrations/ creates them, a test compares both.

Postgres checks no foreign keys, because it would look up the page of every new row and lock the row
of its host. One statement inserts a page with its state, and one method deletes both. A host is
deleted only without pages, while no other transaction can register any.
"""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from service.model.history import COUNTED_PAGES, COUNTS, GAUGES

Instant = sa.DateTime(timezone=True).with_variant(sa.BigInteger(), "sqlite")
"""Type of instants, UTC: `timestamptz` on Postgres, microseconds since 1970 on SQLite."""
Key = sa.LargeBinary(16).with_variant(postgresql.UUID(as_uuid=False), "postgresql")
Id = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
Short: sa.types.TypeEngine[float] = sa.Double().with_variant(sa.REAL, "postgresql")
"""Type of numbers with seven digits, four bytes on Postgres, for tables with many rows."""
Json = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")

metadata = sa.MetaData(
    naming_convention={
        "pk": "%(table_name)s_pkey",
        "uq": "%(table_name)s_%(column_0_name)s_key",
        "ix": "%(table_name)s_%(column_0_name)s_idx",
        "fk": "%(table_name)s_%(column_0_name)s_fkey",
    }
)

meta = sa.Table(
    "meta",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
    comment="Entries by name, such as the estimator that wrote the states.",
)

incarnations = sa.Table(
    "incarnations",
    metadata,
    sa.Column("number", Id, primary_key=True, autoincrement=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("began_at", Instant, nullable=False),
    sa.Column("place", sa.Text, nullable=False),
    sa.Column("timeline", sa.Text, nullable=False),
    *(
        sa.Column(f"{end}_{what}", sa.BigInteger, nullable=False)
        for what in ("page", "epoch", "change")
        for end in ("last", "first")
    ),
    comment="Lives of the database: one from its start, and one from each restore.",
)

leads = sa.Table(
    "leads",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("token", Id, nullable=False),
    sa.Column("sessions", Json, nullable=False),
    sa.Column("renewed_at", Instant, nullable=False),
    sa.Column("expires_at", Instant, nullable=False),
    comment="Leases of the leaders, and the sessions of their processes; on Postgres only.",
)

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
    comment="One row a page, updated by every observation: room for HOT, an index of new pages.",
    postgresql_with={
        "fillfactor": "90",
        "autovacuum_vacuum_scale_factor": "0.05",
        "autovacuum_vacuum_cost_delay": "0",
        "autovacuum_analyze_scale_factor": "0.2",
    },
)

HOT = {
    "fillfactor": "70",
    "autovacuum_vacuum_scale_factor": "0.05",
    "autovacuum_vacuum_cost_delay": "0",
}

host_queues = sa.Table(
    "host_queues",
    metadata,
    sa.Column("queue_id", Id, primary_key=True, autoincrement=False),
    sa.Column("min_delay_s", sa.Double),
    sa.Column("robots_delay_s", sa.Double),
    sa.Column("max_concurrency", sa.Integer),
    sa.Column("n_failures", sa.SmallInteger, nullable=False, server_default="0"),
    sa.Column("blocked_until", Instant),
    sa.Column("paused_at", Instant),
    sa.Column("ready_at", Instant),
    sa.Column("next_at", Instant, index=True),
    sa.Column("paused_until", Instant),
    sa.Column("latency_factor", sa.Double),
    sa.Column("max_delay_s", sa.Double),
    sa.Column("latency_s", sa.Double),
    sa.Column("usual_latency_s", sa.Double),
    sa.Column("n_latencies", sa.SmallInteger),
    sa.Column("windows", sa.Text),
    sa.Column("blackouts", sa.Text),
    sa.Index(
        "host_queues_latency_factor_idx",
        "latency_factor",
        postgresql_where=sa.text("latency_factor > 0"),
        sqlite_where=sa.text("latency_factor > 0"),
    ),
    sa.Index(
        "host_queues_windows_idx",
        "queue_id",
        postgresql_where=sa.text("windows IS NOT NULL OR blackouts IS NOT NULL"),
        sqlite_where=sa.text("windows IS NOT NULL OR blackouts IS NOT NULL"),
    ),
    comment="Queues of hosts (id of the host) and of groups (minus the id of the group).",
    postgresql_with=HOT,
)

host_incidents = sa.Table(
    "host_incidents",
    metadata,
    sa.Column("host_id", Id, primary_key=True, autoincrement=False),
    sa.Column("opened_at", Instant),
    *(
        sa.Column(name, sa.BigInteger, nullable=False, server_default="0")
        for name in ("n_crawled", "n_absent", "n_refused", "n_alike", "digest", "digest_before")
    ),
    sa.Column("n_before", sa.BigInteger, nullable=False, server_default="-1"),
    sa.Column("counted_at", Instant),
    sa.Column("kind", sa.SmallInteger, nullable=False, server_default="0"),
    sa.Column("since", Instant),
    sa.Column("shown_at", Instant),
    sa.Column("ended_at", Instant),
    sa.Column("n_pages", sa.BigInteger, nullable=False, server_default="0"),
    comment="Hosts most of whose pages may show the same sign, and their last incident.",
    postgresql_with=HOT,
)

FEED_INDEXES = {"feeds": ["next_at"], "feeds_of_queue": ["queue_id", "first", "next_at"]}
"""Columns of the indexes of queued feeds, by the name of the index."""

due_pages = sa.Table(
    "due_pages",
    metadata,
    sa.Column("page_id", Id, primary_key=True, autoincrement=False),
    sa.Column("queue_id", Id, nullable=False),
    sa.Column("next_at", Instant, nullable=False),
    sa.Column("last_crawl_at", Instant),
    sa.Column("crawl_rate", sa.Double),
    sa.Column("token", sa.BigInteger),
    sa.Column("leased_at", Instant),
    sa.Column("expires_at", Instant),
    sa.Column("requested", sa.Boolean, nullable=False),
    sa.Column("first", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("worker", sa.Text),
    sa.Column("n_unfinished", sa.SmallInteger),
    sa.Column("ending", sa.SmallInteger),
    sa.Column("waits", sa.Boolean),
    sa.Column("deleted_key", Key),
    sa.Column("deleted_host", sa.Text),
    sa.Column("feed", sa.Boolean),
    # first crawls and others apart, so that many of one kind never hide the other
    sa.Index("due_pages_queue_id_first_idx", "queue_id", "first", "next_at"),
    sa.Index(
        "due_pages_n_unfinished_idx",
        "page_id",
        postgresql_where=sa.text("n_unfinished IS NOT NULL"),
        sqlite_where=sa.text("n_unfinished IS NOT NULL"),
    ),
    *(
        sa.Index(
            f"due_pages_{name}_idx",
            name,
            postgresql_where=sa.text(f"{name} IS NOT NULL"),
            sqlite_where=sa.text(f"{name} IS NOT NULL"),
        )
        for name in ("worker", "deleted_key", "deleted_host")
    ),
    # few rows are feeds, and their readers look for nothing else
    *(
        sa.Index(
            f"due_pages_{name}_idx",
            *columns,
            postgresql_where=sa.text("feed IS NOT NULL"),
            sqlite_where=sa.text("feed IS NOT NULL"),
        )
        for name, columns in FEED_INDEXES.items()
    ),
    comment="Pages due soon, and the leases on them, also those that outlive their pages.",
    postgresql_with=HOT,
)

pace = sa.Table(
    "pace",
    metadata,
    sa.Column("pace_id", sa.SmallInteger, primary_key=True, autoincrement=False),
    sa.Column("at", Instant),
    *(
        sa.Column(name, sa.Double)
        for name in (
            "budget",
            "tokens",
            "ahead",
            "carried",
            "spent",
            "paid",
            "debt",
            "n_first",
        )
    ),
    comment="One row: what the servers have taken of the day's budget.",
    # all versions of the row stay in its block
    postgresql_with={"fillfactor": "10"},
)

crawl_days = sa.Table(
    "crawl_days",
    metadata,
    sa.Column("queue_id", Id, primary_key=True, autoincrement=False),
    sa.Column("day", sa.Integer, nullable=False),
    *(sa.Column(name, sa.Double, nullable=False) for name in ("n_crawls", "n_first", "carried")),
    comment="Crawls of the last day of host queues with a cap.",
    postgresql_with=HOT,
)

deleted_hosts = sa.Table(
    "deleted_hosts",
    metadata,
    sa.Column("host", sa.Text, primary_key=True),
    sa.Column("host_id", Id, nullable=False),
    sa.Column("n_failures", sa.SmallInteger, nullable=False),
    sa.Column("blocked_until", Instant),
    sa.Column("paused_at", Instant),
    sa.Column("ready_at", Instant),
    sa.Column("paused_until", Instant),
    comment="Pauses and delays of hosts that were deleted before their end.",
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

lease_answers = sa.Table(
    "lease_answers",
    metadata,
    sa.Column("key", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("body", sa.BigInteger, nullable=False),
    sa.Column("expires_at", Instant, nullable=False, index=True),
    sa.Column("answer", sa.Text, nullable=False),
    comment="Answers to lease requests with an Idempotency-Key, for two minutes.",
)

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
    comment="Changes that crawls found: a block a commit, numbered in the order of the commits.",
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

epochs = sa.Table(
    "epochs",
    metadata,
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
    sa.Column("duality_gap", sa.Double),
    sa.Column("passes", sa.Integer),
    sa.Column("n_pages", sa.BigInteger),
    sa.Column("prior", Json),
    sa.Column("crawl_rate_quantiles", Json),
    sa.Column("seconds", Json),
    sa.Column("budget_factor", sa.Double),
    sa.Column("observed_ratios", Json),
    sa.Column("planned", sa.Double),
    sa.Column("overhead", sa.Double),
    sa.Column("first_crawls", sa.Double),
    sa.Column("unit", sa.Text),
    sa.Column("age_evidence", Json),
    sa.Column("recalibration", Json),
    sa.Column("window_losses", Json),
    sa.Index(
        "epochs_one_request_idx",
        "status",
        unique=True,
        postgresql_where=sa.text("status = 'requested'"),
        sqlite_where=sa.text("status = 'requested'"),
    ),
    sqlite_autoincrement=True,
)

url_groups = sa.Table(
    "url_groups",
    metadata,
    sa.Column("epoch", Id, primary_key=True, autoincrement=False),
    sa.Column("shard", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("rate", sa.LargeBinary),
    sa.Column("share_evidence", sa.LargeBinary),
    sa.Column("wide_revisions", sa.LargeBinary),
    sa.Column("ping_feeds", sa.LargeBinary),
    comment="Mean change rates and shares of url_groups; compressed, by kept epoch and shard.",
)

url_levels = sa.Table(
    "url_levels",
    metadata,
    sa.Column("level", Id, primary_key=True, autoincrement=False),
    sa.Column("parent", Id, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    *(
        sa.Column(name, sa.BigInteger, nullable=False, server_default="0")
        for name in (
            *("n_first", "n_new", "n_opened", "n_opened_new", "n_in_flight", "n_forbidden"),
        )
    ),
    sa.Column("rule", sa.SmallInteger),
    sa.Column("stopped", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("since", Instant, nullable=False),
    sa.Column("sampled_at", Instant),
    sa.Index(None, "parent"),
    sa.Index(None, "name"),
    sa.Index(
        "url_levels_stopped_idx",
        "sampled_at",
        "level",
        postgresql_where=sa.text("stopped"),
        sqlite_where=sa.text("stopped"),
    ),
    comment="First crawls and verdicts of the levels of URLs, from hosts to last segments.",
    postgresql_with=HOT,
)

digests = sa.Table(
    "digests",
    metadata,
    sa.Column("digest", sa.BigInteger, primary_key=True, autoincrement=False),
    comment="Digests that first crawls have brought, which are new no more.",
)

change_hours = sa.Table(
    "change_hours",
    metadata,
    sa.Column("host_id", Id, primary_key=True, autoincrement=False),
    sa.Column("learnt_at", Instant, nullable=False),
    sa.Column("has_hours", sa.Boolean, nullable=False),
    sa.Column("evidence", sa.LargeBinary, nullable=False),
    sa.Column("profile", sa.LargeBinary, nullable=False),
    sa.Index(
        "change_hours_has_hours_idx",
        "host_id",
        postgresql_where=sa.text("has_hours"),
        sqlite_where=sa.text("has_hours"),
    ),
    comment="Evidence of the hours at which pages of hosts change; a host learns once a day.",
    postgresql_with={"fillfactor": "90"},
)

group_hours = sa.Table(
    "group_hours",
    metadata,
    sa.Column("host_id", Id, primary_key=True, autoincrement=False),
    sa.Column("url_group", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("seen_at", Instant, nullable=False),
    sa.Column("page_id", Id),
    sa.Column("in_force", sa.Boolean),
    sa.Column("has_own", sa.Boolean),
    sa.Column("screen", sa.LargeBinary),
    sa.Column("evidence", sa.LargeBinary),
    sa.Column("profile", sa.LargeBinary),
    sa.Index(
        "group_hours_has_own_idx",
        "host_id",
        "url_group",
        postgresql_where=sa.text("has_own"),
        sqlite_where=sa.text("has_own"),
    ),
    comment="Change hours of URL groups: a screen, or evidence and the profile in force.",
    postgresql_with={"fillfactor": "90"},
)


def _by_block(kind: type[sa.types.TypeEngine[Any]], element: Any) -> sa.types.TypeEngine[Any]:
    """Return the type of a column of schedules: on Postgres the numbers of a block of pages."""
    return kind().with_variant(postgresql.ARRAY(element), "postgresql")


MINUTES = sa.SmallInteger().with_variant(sa.LargeBinary(), "postgresql")
"""Type of moves; on Postgres those of a block are packed (`epochs.schedule_blocks`)."""

schedule = sa.Table(
    "schedule",
    metadata,
    sa.Column("block", sa.BigInteger, nullable=False, info={"only": "postgresql"}),
    sa.Column("epoch", sa.Integer, nullable=False),
    sa.Column("page_id", Id, nullable=False, info={"only": "sqlite"}),
    sa.Column("change_rate", _by_block(sa.Double, sa.REAL), nullable=False),
    sa.Column("crawl_rate", _by_block(sa.Double, sa.REAL), nullable=False),
    sa.Column("urgency", _by_block(sa.Double, sa.REAL), nullable=False),
    sa.Column("crawl_probability", _by_block(sa.Double, sa.Double)),
    sa.Column("shift", MINUTES),
    sa.Column("carried", MINUTES),
    sa.Column("observed_ratio", _by_block(sa.Double, sa.REAL)),
    sa.PrimaryKeyConstraint("epoch", "page_id").ddl_if("sqlite"),
    sa.Index(None, "block").ddl_if("postgresql"),
    comment="Schedules that epochs published; on Postgres one partition an epoch.",
    postgresql_partition_by="LIST (epoch)",
    sqlite_with_rowid=False,
)

SUBSCRIPTION_COUNTS = ("n_asked", "n_contents", "n_unsigned", "n_taken", "n_rejected")
websub = sa.Table(
    "websub",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("topic", sa.Text, nullable=False),
    sa.Column("secret", sa.Text),
    sa.Column("hub", sa.Text, nullable=False),
    sa.Column("requested_at", Instant, nullable=False),
    sa.Column("verified_at", Instant),
    sa.Column("expires_at", Instant),
    sa.Column("host_policy", sa.Text, nullable=False, server_default="same"),
    *(sa.Column(name, Json) for name in ("listed_hosts", "last_taken", "last_rejected")),
    *(sa.Column(name, sa.Text) for name in ("public_url", "reason")),
    *(
        sa.Column(name, Instant)
        for name in ("ask_at", "warn_at", "denied_at", "ending_at", "last_content_at")
    ),
    *(
        sa.Column(name, sa.BigInteger, nullable=False, server_default="0")
        for name in SUBSCRIPTION_COUNTS
    ),
    sa.Index(None, "ask_at"),
    sa.Index(None, "warn_at"),
    comment="Subscriptions to topics at WebSub hubs.",
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

ADDED = ("n_taught_nothing", "spent")
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

webhooks = sa.Table(
    "webhooks",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("url", sa.Text, nullable=False),
    sa.Column("secret", sa.Text, nullable=False),
    sa.Column("kinds", Json),
    sa.Column("host", sa.Text),
    sa.Column("prefix", sa.Text),
    sa.Column("tag", sa.Text),
    sa.Column("max_items", sa.Integer, nullable=False),
    sa.Column("created_at", Instant, nullable=False),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("reason", sa.Text),
    sa.Column("seq", sa.BigInteger, nullable=False),
    sa.Column("item", sa.Integer, nullable=False),
    sa.Column("delivery", sa.Text),
    sa.Column("to_seq", sa.BigInteger, nullable=False),
    sa.Column("to_item", sa.Integer, nullable=False),
    sa.Column("n_sent", sa.Integer, nullable=False),
    sa.Column("most", sa.Integer, nullable=False),
    sa.Column("n_attempts", sa.Integer, nullable=False),
    sa.Column("failing_since", Instant),
    sa.Column("next_at", Instant, nullable=False),
    sa.Column("n_confirmed", sa.BigInteger, nullable=False),
    sa.Column("n_refused", sa.BigInteger, nullable=False),
    sa.Column("n_failed", sa.BigInteger, nullable=False),
    sa.Column("token", sa.BigInteger, nullable=False),
    sa.Column("leased_until", Instant),
    sa.Column("old_secrets", Json),
    sa.Column("min_weight", sa.Double),
    comment="Subscriptions to the feed of changes, with the state of their deliveries.",
    postgresql_with=HOT,
)

webhook_deliveries = sa.Table(
    "webhook_deliveries",
    metadata,
    sa.Column("number", Id, sa.Identity(), primary_key=True),
    sa.Column("webhook_id", sa.Text, nullable=False),
    sa.Column("delivery", sa.Text, nullable=False),
    sa.Column("sent_at", Instant, nullable=False),
    sa.Column("n_items", sa.Integer, nullable=False),
    sa.Column("first_id", sa.Text),
    sa.Column("status", sa.SmallInteger),
    sa.Column("error", sa.Text),
    sa.Column("latency_s", sa.Double, nullable=False),
    sa.Index(None, "webhook_id", "number"),
    comment="Requests to the addresses of webhooks; old ones are deleted.",
)

parked_pages = sa.Table(
    "parked_pages",
    metadata,
    sa.Column("webhook_id", sa.Text, primary_key=True),
    sa.Column("page_id", Id, primary_key=True, autoincrement=False),
    sa.Column("change_id", sa.Text, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("parked_at", Instant, nullable=False),
    comment="Pages whose changes the address of a webhook refused.",
)

api_keys = sa.Table(
    "api_keys",
    metadata,
    sa.Column("key_id", sa.Text, primary_key=True),
    sa.Column("digest", sa.LargeBinary, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("role", sa.Text, nullable=False),
    sa.Column("created_at", Instant, nullable=False),
    sa.Column("expires_at", Instant),
    sa.Column("last_used_at", Instant),
    sa.Column("revoked_at", Instant),
    sa.Column("items_per_s", sa.Double),
    sa.Column("hosts", Json, nullable=False),
    sa.Column("url_prefixes", Json, nullable=False),
    comment="API keys by the SHA-256 of their text; rows are never deleted.",
)

ended_sessions = sa.Table(
    "ended_sessions",
    metadata,
    sa.Column("session", sa.LargeBinary, primary_key=True),
    sa.Column("ended_at", Instant, nullable=False),
    comment="Sessions of the console that were signed out; a row stays while its cookie would "
    "work.",
)

audit = sa.Table(
    "audit",
    metadata,
    sa.Column("entry", Id, sa.Identity(), primary_key=True),
    sa.Column("at", Instant, nullable=False, index=True),
    sa.Column("key", sa.Text, nullable=False),
    sa.Column("act", sa.Text, nullable=False),
    sa.Column("object", sa.Text, nullable=False),
    sa.Column("before", Json),
    sa.Column("after", Json),
    sa.Column("request_id", sa.Text),
    *(sa.Index(f"audit_{name}_entry_idx", name, "entry") for name in ("key", "act", "object")),
    comment="Administrative acts, append-only; cut by retention.",
    sqlite_autoincrement=True,
)
