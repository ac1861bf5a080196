"""The first release: every table of `service.storage.tables` at that time.

Revision ID: 0001
Revises:
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

from service.storage.tables import Id, Instant, Json, Key, Short

revision = "0001"
down_revision = None

TABLES = (
    "parked_pages",
    "webhook_deliveries",
    "webhooks",
    "feed_files",
    "feed",
    "audit",
    "api_keys",
    "ended_sessions",
    "websub",
    "clocks",
    "url_groups",
    "schedule",
    "epochs",
    "log_files",
    "observations",
    "lease_answers",
    "page_validators",
    "due_pages",
    "host_queues",
    "history_parts",
    "history",
    "host_loads",
    "calibrations",
    "page_states",
    "page_tags",
    "tags",
    "pages",
    "host_groups",
    "hosts",
    "meta",
)

HOT = {
    "fillfactor": "70",
    "autovacuum_vacuum_scale_factor": "0.05",
    "autovacuum_vacuum_cost_delay": "0",
}


def upgrade() -> None:
    sqlite = op.get_bind().dialect.name == "sqlite"
    create_pages(sqlite=sqlite)
    create_tags()
    create_states(sqlite=sqlite)
    create_queue()
    create_answers()
    create_validators()
    create_log(sqlite=sqlite)
    create_epochs()
    create_schedule(sqlite=sqlite)
    create_clocks()
    create_history()
    create_websub()
    create_feed(sqlite=sqlite)
    create_webhooks()
    create_access()


def downgrade() -> None:
    for table in TABLES:
        op.drop_table(table)
    if op.get_bind().dialect.name != "sqlite":
        op.execute("DROP SEQUENCE feed_seq")
        op.execute("DROP TABLE sealed_observations CASCADE")


def create_pages(*, sqlite: bool) -> None:
    op.create_table(
        "meta",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("value", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("name", name="meta_pkey"),
        comment="Entries by name, such as the estimator that wrote the states.",
    )
    op.create_table(
        "hosts",
        sa.Column("host_id", Id, sa.Identity(), nullable=False),
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("group_id", Id),
        sa.Column("max_crawl_rate", sa.Double),
        sa.PrimaryKeyConstraint("host_id", name="hosts_pkey"),
        sa.UniqueConstraint("host", name="hosts_host_key"),
    )
    op.create_index(
        "hosts_group_id_idx",
        "hosts",
        ["group_id"],
        postgresql_where=sa.text("group_id IS NOT NULL"),
        sqlite_where=sa.text("group_id IS NOT NULL"),
    )
    op.create_table(
        "host_groups",
        sa.Column("group_id", Id, sa.Identity(), nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("max_crawl_rate", sa.Double),
        sa.PrimaryKeyConstraint("group_id", name="host_groups_pkey"),
        sa.UniqueConstraint("name", name="host_groups_name_key"),
        comment="Hosts that share a server: one host_queue, one cap.",
    )
    host = sa.ForeignKeyConstraint(["host_id"], ["hosts.host_id"], name="pages_host_id_fkey")
    op.create_table(
        "pages",
        sa.Column("page_id", Id, sa.Identity(), primary_key=True),
        sa.Column("key", Key, nullable=False),
        sa.Column("host_id", Id, nullable=False),
        sa.Column("importance", sa.Double, nullable=False),
        sa.Column("min_crawl_rate", sa.Double),
        sa.Column("max_crawl_rate", sa.Double),
        sa.Column("created_at", Instant, nullable=False),
        sa.Column("url", sa.Text, nullable=False),
        sa.UniqueConstraint("key", name="pages_key_key"),
        *([host] if sqlite else []),
        sqlite_autoincrement=True,
    )
    if sqlite:
        op.create_index("pages_host_id_page_id_idx", "pages", ["host_id", "page_id"])
    else:
        window = sa.text("(page_id >> 14)")
        op.create_index("pages_host_id_window_idx", "pages", ["host_id", window])


def create_tags() -> None:
    op.create_table(
        "tags",
        sa.Column("tag_id", Id, sa.Identity(), primary_key=True),
        sa.Column("tag", sa.Text, nullable=False),
        sa.UniqueConstraint("tag", name="tags_tag_key"),
        comment="Names of tags.",
    )
    op.create_table(
        "page_tags",
        sa.Column("tag_id", Id, nullable=False, autoincrement=False),
        sa.Column("page_id", Id, nullable=False, autoincrement=False),
        sa.PrimaryKeyConstraint("tag_id", "page_id", name="page_tags_pkey"),
        comment="Tags of pages; a page without tags has no row.",
        sqlite_with_rowid=False,
    )
    op.create_index("page_tags_page_id_idx", "page_tags", ["page_id"])


def create_states(*, sqlite: bool) -> None:
    page = sa.ForeignKeyConstraint(
        ["page_id"], ["pages.page_id"], name="page_states_page_id_fkey", ondelete="CASCADE"
    )
    op.create_table(
        "page_states",
        sa.Column("page_id", Id, nullable=False, autoincrement=False),
        sa.Column("host_id", Id, nullable=False),
        sa.Column("last_crawl_at", Instant),
        sa.Column("last_observed_at", Instant),
        sa.Column("digest", sa.BigInteger),
        sa.Column("pings_since", Instant, nullable=False),
        sa.Column("requested_at", Instant),
        sa.Column("last_ping_at", Instant),
        sa.Column("ping_credit", sa.Double),
        sa.Column("real_pings", sa.Double),
        sa.Column("false_pings", sa.Double),
        sa.Column("trust", sa.Double),
        sa.Column("n_pings", sa.Integer),
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
        sa.Column("url_group", sa.Integer, nullable=False, server_default="0"),
        sa.PrimaryKeyConstraint("page_id", name="page_states_pkey"),
        *([page] if sqlite else []),
        comment="One row a page, updated by every observation: no secondary index, room for HOT.",
        postgresql_with={**HOT, "fillfactor": "90", "autovacuum_analyze_scale_factor": "0.2"},
    )
    if not sqlite:
        # page_ids ascend and updates in place add no entries, so the leaves need no room
        op.execute("ALTER INDEX page_states_pkey SET (fillfactor = 100)")


def create_queue() -> None:
    op.create_table(
        "host_queues",
        sa.Column("queue_id", Id, nullable=False, autoincrement=False),
        sa.Column("min_delay_s", sa.Double),
        sa.Column("robots_delay_s", sa.Double),
        sa.Column("max_concurrency", sa.Integer),
        sa.Column("n_failures", sa.SmallInteger, nullable=False, server_default="0"),
        sa.Column("blocked_until", Instant),
        sa.Column("paused_at", Instant),
        sa.Column("ready_at", Instant),
        sa.Column("next_at", Instant),
        sa.PrimaryKeyConstraint("queue_id", name="host_queues_pkey"),
        comment="Queues of hosts (id of the host) and of groups (minus the id of the group).",
        postgresql_with=HOT,
    )
    op.create_index("host_queues_next_at_idx", "host_queues", ["next_at"])
    op.create_table(
        "due_pages",
        sa.Column("page_id", Id, nullable=False, autoincrement=False),
        sa.Column("queue_id", Id, nullable=False),
        sa.Column("next_at", Instant, nullable=False),
        sa.Column("last_crawl_at", Instant),
        sa.Column("crawl_rate", sa.Double),
        sa.Column("token", sa.BigInteger),
        sa.Column("leased_at", Instant),
        sa.Column("expires_at", Instant),
        sa.Column("requested", sa.Boolean, nullable=False),
        sa.Column("worker", sa.Text),
        sa.PrimaryKeyConstraint("page_id", name="crawls_pkey"),
        comment="Pages due soon, and the leases on them.",
        postgresql_with=HOT,
    )
    op.create_index("due_pages_queue_id_next_at_idx", "due_pages", ["queue_id", "next_at"])


def create_validators() -> None:
    op.create_table(
        "page_validators",
        sa.Column("page_id", Id, nullable=False, autoincrement=False),
        sa.Column("last_modified", Instant),
        sa.Column("etag", sa.Text),
        sa.Column("note", sa.Text),
        sa.PrimaryKeyConstraint("page_id", name="page_validators_pkey"),
        comment="Validators for conditional requests and notes, for pages that have any.",
    )


def create_answers() -> None:
    op.create_table(
        "lease_answers",
        sa.Column("key", sa.BigInteger, nullable=False, autoincrement=False),
        sa.Column("body", sa.BigInteger, nullable=False),
        sa.Column("expires_at", Instant, nullable=False),
        sa.Column("answer", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("key", name="lease_answers_pkey"),
        comment="Answers to lease requests with an Idempotency-Key, for two minutes.",
    )
    op.create_index("lease_answers_expires_at_idx", "lease_answers", ["expires_at"])


def create_log(*, sqlite: bool) -> None:
    stretch = sa.Column("stretch", sa.Integer, nullable=False, autoincrement=False)
    key = sa.PrimaryKeyConstraint(
        "stretch", "page_id", "observed_at", "kind", name="observations_pkey"
    )
    op.create_table(
        "observations",
        *([stretch] if sqlite else []),
        sa.Column("page_id", Id, nullable=False, autoincrement=False),
        sa.Column("observed_at", Instant, nullable=False),
        sa.Column("interval", sa.Double),
        sa.Column("crawl_rate", sa.Double),
        sa.Column("kind", sa.SmallInteger, nullable=False, autoincrement=False),
        sa.Column("changed", sa.SmallInteger),
        sa.Column("status", sa.SmallInteger),
        *([key] if sqlite else []),
        comment="Append-only evidence; partitioned by time on Postgres, cut by retention.",
        postgresql_partition_by="RANGE (observed_at)",
        sqlite_with_rowid=False,
    )
    if not sqlite:
        op.create_index("observations_page_id_idx", "observations", ["page_id"])
        op.execute("CREATE TABLE observations_default PARTITION OF observations DEFAULT")
        op.execute("CREATE TABLE sealed_observations (LIKE observations)")
    op.create_table(
        "log_files",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("day", Instant, nullable=False),
        sa.Column("first_page", sa.BigInteger, nullable=False),
        sa.Column("last_page", sa.BigInteger, nullable=False),
        sa.Column("n_rows", sa.BigInteger, nullable=False),
        sa.Column("n_bytes", sa.BigInteger, nullable=False),
        sa.Column("checksum", sa.Text, nullable=False),
        sa.Column("archived_at", Instant, nullable=False),
        sa.PrimaryKeyConstraint("name", name="log_files_pkey"),
        comment="Files of the archive that have old days of the log.",
    )
    op.create_index("log_files_day_idx", "log_files", ["day"])
    op.create_table(
        "feed_files",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("day", Instant, nullable=False),
        sa.Column("first_seq", sa.BigInteger, nullable=False),
        sa.Column("last_seq", sa.BigInteger, nullable=False),
        sa.Column("n_rows", sa.BigInteger, nullable=False),
        sa.Column("n_bytes", sa.BigInteger, nullable=False),
        sa.Column("checksum", sa.Text, nullable=False),
        sa.Column("archived_at", Instant, nullable=False),
        sa.PrimaryKeyConstraint("name", name="feed_files_pkey"),
        comment="Files of the archive that have old days of the feed.",
    )
    op.create_index("feed_files_last_seq_idx", "feed_files", ["last_seq"])


def create_epochs() -> None:
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
        sa.Column("duality_gap", sa.Double),
        sa.Column("passes", sa.Integer),
        sa.Column("n_pages", sa.BigInteger),
        sa.Column("prior", Json),
        sa.Column("crawl_rate_quantiles", Json),
        sa.Column("seconds", Json),
        sa.Column("budget_factor", sa.Double),
        sa.Column("observed_ratios", Json),
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


def create_schedule(*, sqlite: bool) -> None:
    op.create_table(
        "url_groups",
        sa.Column("epoch", Id, nullable=False, autoincrement=False),
        sa.Column("shard", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("rate", sa.LargeBinary),
        sa.Column("share_evidence", sa.LargeBinary),
        sa.PrimaryKeyConstraint("epoch", "shard", name="url_groups_pkey"),
        comment="Mean change rates and shares of url_groups; compressed, by kept epoch and shard.",
    )
    block = sa.Column("block", sa.BigInteger, nullable=False, autoincrement=False)
    page_id = sa.Column("page_id", Id, nullable=False, autoincrement=False)
    key = sa.PrimaryKeyConstraint("epoch", "page_id", name="schedule_pkey")
    rate = sa.Double if sqlite else postgresql.ARRAY(sa.REAL)
    minutes = sa.SmallInteger if sqlite else sa.LargeBinary
    op.create_table(
        "schedule",
        *([] if sqlite else [block]),
        sa.Column("epoch", sa.Integer, nullable=False, autoincrement=False),
        *([page_id] if sqlite else []),
        sa.Column("change_rate", rate, nullable=False),
        sa.Column("crawl_rate", rate, nullable=False),
        sa.Column("urgency", rate, nullable=False),
        sa.Column("crawl_probability", sa.Double if sqlite else postgresql.ARRAY(sa.Double)),
        sa.Column("shift", minutes),
        sa.Column("carried", minutes),
        *([key] if sqlite else []),
        comment="Schedules that epochs published; on Postgres one partition an epoch.",
        postgresql_partition_by="LIST (epoch)",
        sqlite_with_rowid=False,
    )
    if not sqlite:
        op.create_index("schedule_block_idx", "schedule", ["block"])


def create_clocks() -> None:
    op.create_table(
        "clocks",
        sa.Column("host_id", Id, nullable=False, autoincrement=False),
        sa.Column("learnt_at", Instant, nullable=False),
        sa.Column("has_clock", sa.Boolean, nullable=False),
        sa.Column("evidence", sa.LargeBinary, nullable=False),
        sa.Column("profile", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("host_id", name="clocks_pkey"),
        comment="Evidence of the hours at which pages of hosts change; a host learns once a day.",
        postgresql_with={"fillfactor": "90"},
    )
    op.create_index(
        "clocks_has_clock_idx",
        "clocks",
        ["host_id"],
        postgresql_where=sa.text("has_clock"),
        sqlite_where=sa.text("has_clock"),
    )


def create_websub() -> None:
    op.create_table(
        "websub",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("topic", sa.Text, nullable=False),
        sa.Column("secret", sa.Text),
        sa.Column("hub", sa.Text, nullable=False),
        sa.Column("requested_at", Instant, nullable=False),
        sa.Column("verified_at", Instant),
        sa.Column("expires_at", Instant),
        sa.PrimaryKeyConstraint("id", name="websub_pkey"),
        comment="Subscriptions to topics at WebSub hubs.",
    )


def create_feed(*, sqlite: bool) -> None:
    op.create_table(
        "feed",
        sa.Column("seq", Id, nullable=False, autoincrement=False),
        sa.Column("items", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("seq", name="feed_pkey"),
        comment="Changes that crawls found: a block a commit, numbered in the order of the "
        "commits.",
    )
    if not sqlite:
        op.execute("CREATE SEQUENCE feed_seq AS bigint")
        op.execute("ALTER TABLE feed ALTER items SET STORAGE EXTERNAL")  # blocks do not compress


def create_webhooks() -> None:
    op.create_table(
        "webhooks",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("url", sa.Text, nullable=False),
        sa.Column("secret", sa.Text, nullable=False),
        sa.Column("old_secret", sa.Text),
        sa.Column("old_secret_until", Instant),
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
        sa.PrimaryKeyConstraint("id", name="webhooks_pkey"),
        comment="Subscriptions to the feed of changes, with the state of their deliveries.",
        postgresql_with=HOT,
    )
    op.create_table(
        "webhook_deliveries",
        sa.Column("number", Id, sa.Identity(), primary_key=True),
        sa.Column("webhook_id", sa.Text, nullable=False),
        sa.Column("delivery", sa.Text, nullable=False),
        sa.Column("sent_at", Instant, nullable=False),
        sa.Column("n_items", sa.Integer, nullable=False),
        sa.Column("first_id", sa.Text),
        sa.Column("status", sa.SmallInteger),
        sa.Column("error", sa.Text),
        sa.Column("latency_s", sa.Double, nullable=False),
        comment="Requests to the addresses of webhooks; old ones are deleted.",
    )
    op.create_index(
        "webhook_deliveries_webhook_id_idx", "webhook_deliveries", ["webhook_id", "number"]
    )
    op.create_table(
        "parked_pages",
        sa.Column("webhook_id", sa.Text, nullable=False),
        sa.Column("page_id", Id, nullable=False, autoincrement=False),
        sa.Column("change_id", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("parked_at", Instant, nullable=False),
        sa.PrimaryKeyConstraint("webhook_id", "page_id", name="parked_pages_pkey"),
        comment="Pages whose changes the address of a webhook refused.",
    )


def create_history() -> None:
    op.create_table(
        "history_parts",
        sa.Column("part", Id, sa.Identity(), primary_key=True),
        sa.Column("at", Instant, nullable=False),
        sa.Column("epoch", Id, nullable=False),
        sa.Column("sums", sa.LargeBinary, nullable=False),
        comment="Sums of commits, append-only, until they become rows of history.",
        postgresql_with={"autovacuum_vacuum_scale_factor": "0.05"},
    )
    counts = ["leased", "reported", "failed", "changed", "wasted", "pings", "true_pings"]
    counts += ["false_pings", "missed"]
    pages = ["pages", "never_crawled", "overdue", "paused_by_trouble", "paused_by_operator"]
    gauges = ["bandwidth", "asked_rate", "fresh_share", "fresh_share_plain", "harmonic_staleness"]
    gauges += ["harmonic_staleness_plain", "sampled_share"]
    op.create_table(
        "history",
        sa.Column("host_id", Id, nullable=False, autoincrement=False),
        sa.Column("at", Instant, nullable=False),
        sa.Column("epoch", Id),
        *(sa.Column(f"n_{name}", sa.BigInteger, nullable=False) for name in counts),
        sa.Column("measured_at", Instant),
        *(sa.Column(f"n_{name}", sa.BigInteger) for name in pages),
        *(sa.Column(name, sa.Double) for name in gauges),
        sa.PrimaryKeyConstraint("host_id", "at", name="history_pkey"),
        comment="Sums and gauges of steps of ten minutes, of all pages (host_id 0) and of busy"
        " hosts.",
    )
    op.create_index("history_at_idx", "history", ["at"])
    op.create_table(
        "host_loads",
        sa.Column("measured_at", Instant, nullable=False),
        sa.Column("loads", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("measured_at", name="host_loads_pkey"),
        comment="Pages, overdue pages and crawl rates of all hosts, compressed, a row a"
        " measurement.",
    )
    op.create_table(
        "calibrations",
        sa.Column("at", Instant, nullable=False),
        sa.Column("epoch", Id, nullable=False, autoincrement=False),
        sa.Column("estimator", sa.Text, nullable=False),
        sa.Column("sums", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("at", "epoch", "estimator", name="calibrations_pkey"),
        comment="Predictions of changes and the results of crawls, summed by bins, a row a step.",
    )
    op.create_index("calibrations_epoch_idx", "calibrations", ["epoch"])


def create_access() -> None:
    op.create_table(
        "api_keys",
        sa.Column("key_id", sa.Text, nullable=False),
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
        sa.PrimaryKeyConstraint("key_id", name="api_keys_pkey"),
        comment="API keys by the SHA-256 of their text; rows are never deleted.",
    )
    op.create_table(
        "ended_sessions",
        sa.Column("session", sa.LargeBinary, nullable=False),
        sa.Column("ended_at", Instant, nullable=False),
        sa.PrimaryKeyConstraint("session", name="ended_sessions_pkey"),
        comment="Sessions of the console that were signed out; a row stays while its cookie "
        "would work.",
    )
    op.create_table(
        "audit",
        sa.Column("entry", Id, sa.Identity(), primary_key=True),
        sa.Column("at", Instant, nullable=False),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("act", sa.Text, nullable=False),
        sa.Column("object", sa.Text, nullable=False),
        sa.Column("before", Json),
        sa.Column("after", Json),
        sa.Column("request_id", sa.Text),
        comment="Administrative acts, append-only; cut by retention.",
        sqlite_autoincrement=True,
    )
    op.create_index("audit_at_idx", "audit", ["at"])
    for name in ("key", "act", "object"):
        op.create_index(f"audit_{name}_entry_idx", "audit", [name, "entry"])
