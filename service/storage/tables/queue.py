"""Due pages, their leases, and what hosts and the budget permit."""

import sqlalchemy as sa

from service.storage.tables.kinds import HOT, Id, Instant, Key, metadata

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
    sa.Column("paused_status", sa.SmallInteger),
    sa.Column("windows", sa.Text),
    sa.Column("blackouts", sa.Text),
    sa.Column("first_credit", sa.Double),
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
        for name in (
            *("n_crawled", "n_absent", "n_refused", "n_alike", "n_moved"),
            *("digest", "digest_before"),
        )
    ),
    sa.Column("n_before", sa.BigInteger, nullable=False, server_default="-1"),
    sa.Column("counted_at", Instant),
    *(sa.Column(name, Instant) for name in ("absent_at", "refused_at", "alike_at", "moved_at")),
    sa.Column("no_content_since", Instant),
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

lease_answers = sa.Table(
    "lease_answers",
    metadata,
    sa.Column("key", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("body", sa.BigInteger, nullable=False),
    sa.Column("expires_at", Instant, nullable=False, index=True),
    sa.Column("answer", sa.Text, nullable=False),
    comment="Answers to lease requests with an Idempotency-Key, for two minutes.",
)

lease_filters = sa.Table(
    "lease_filters",
    metadata,
    sa.Column("filter_id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("slice", sa.Integer, nullable=False),
    sa.Column("slices", sa.Integer, nullable=False),
    sa.Column("n_hosts", sa.Integer, nullable=False),
    sa.Column("asked_at", Instant, nullable=False),
    sa.Column("until_at", Instant, nullable=False),
    comment="Filters of requests for leases, and when crawlers last sent one.",
)

filtered_hosts = sa.Table(
    "filtered_hosts",
    metadata,
    sa.Column("host", sa.Text, primary_key=True),
    sa.Column("filter_id", sa.BigInteger, primary_key=True),
    comment="Hosts that these filters name.",
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
            "in_windows",
            "lent",
            "changed",
            "cut",
        )
    ),
    comment="One row: what the servers have taken of the day's budget.",
    # all versions of the row stay in its block
    postgresql_with={"fillfactor": "10"},
)

allotments = sa.Table(
    "allotments",
    metadata,
    sa.Column("server", Id, primary_key=True, autoincrement=False),
    sa.Column("on_day", sa.Integer, nullable=False),
    sa.Column("unit", sa.Text, nullable=False),
    *(sa.Column(name, sa.Double, nullable=False) for name in ("due", "on_loan", "n_first")),
    sa.Column("ends_at", Instant, nullable=False),
    comment="Amounts of the pace that servers hold, and no lease has taken.",
    # all versions of a row stay in its block
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
