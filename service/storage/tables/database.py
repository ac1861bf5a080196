"""The database itself: its entries, its lives and its leaders."""

import sqlalchemy as sa

from service.storage.tables.kinds import Id, Instant, Json, metadata

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
