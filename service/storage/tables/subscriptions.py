"""Webhooks with their deliveries, and subscriptions to topics at WebSub hubs."""

import sqlalchemy as sa

from service.storage.tables.kinds import HOT, Id, Instant, Json, metadata

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
