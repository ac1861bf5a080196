"""Keys, sessions, and the acts of operators."""

import sqlalchemy as sa

from service.storage.tables.kinds import Id, Instant, Json, metadata

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

accepted_needs = sa.Table(
    "accepted_needs",
    metadata,
    sa.Column("kind", sa.Text, primary_key=True),
    sa.Column("subject", sa.Text, primary_key=True),
    sa.Column("accepted_at", Instant, nullable=False),
    sa.Column("until_at", Instant, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    comment="Needs that an operator has accepted, and until when.",
)
