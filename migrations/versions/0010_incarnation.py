"""Incarnations of a database, and what outlives a deletion: leases of pages, pauses of hosts.

Revision ID: 0010
Revises: 0005
"""

import sqlalchemy as sa
from alembic import op

from service.storage.tables import Id, Instant, Key

revision = "0010"
down_revision = "0009"

OLD_COMMENT = "Pages due soon, and the leases on them."
NEW_COMMENT = "Pages due soon, and the leases on them, also those that outlive their pages."


def upgrade() -> None:
    op.create_table(
        "incarnations",
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
    op.create_table(
        "deleted_hosts",
        sa.Column("host", sa.Text, primary_key=True),
        sa.Column("host_id", Id, nullable=False),
        sa.Column("n_failures", sa.SmallInteger, nullable=False),
        sa.Column("blocked_until", Instant),
        sa.Column("paused_at", Instant),
        sa.Column("ready_at", Instant),
        comment="Pauses and delays of hosts that were deleted before their end.",
    )
    op.add_column("due_pages", sa.Column("deleted_key", Key))
    op.add_column("due_pages", sa.Column("deleted_host", sa.Text))
    for name in ("deleted_key", "deleted_host"):
        kept = sa.text(f"{name} IS NOT NULL")
        op.create_index(
            f"due_pages_{name}_idx", "due_pages", [name], postgresql_where=kept, sqlite_where=kept
        )
    if op.get_bind().dialect.name == "postgresql":
        op.create_table_comment("due_pages", NEW_COMMENT)


def downgrade() -> None:
    op.execute("DELETE FROM due_pages WHERE deleted_key IS NOT NULL")
    for name in ("deleted_host", "deleted_key"):
        op.drop_index(f"due_pages_{name}_idx", "due_pages")
        op.drop_column("due_pages", name)
    if op.get_bind().dialect.name == "postgresql":
        op.create_table_comment("due_pages", OLD_COMMENT)
    op.drop_table("deleted_hosts")
    op.drop_table("incarnations")
