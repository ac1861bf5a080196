"""Incidents of hosts: counts of an hour, and the last incident.

Revision ID: 0008
Revises: 0005
"""

import sqlalchemy as sa
from alembic import op

from service.storage.tables import HOT, Id, Instant

revision = "0008"
down_revision = "0007"

COUNTS = ("n_crawled", "n_absent", "n_refused", "n_alike", "digest", "digest_before")


def upgrade() -> None:
    op.create_table(
        "host_incidents",
        sa.Column("host_id", Id, autoincrement=False, nullable=False),
        sa.Column("opened_at", Instant),
        *(sa.Column(n, sa.BigInteger, nullable=False, server_default="0") for n in COUNTS),
        sa.Column("n_before", sa.BigInteger, nullable=False, server_default="-1"),
        sa.Column("counted_at", Instant),
        sa.Column("kind", sa.SmallInteger, nullable=False, server_default="0"),
        sa.Column("since", Instant),
        sa.Column("shown_at", Instant),
        sa.Column("ended_at", Instant),
        sa.Column("n_pages", sa.BigInteger, nullable=False, server_default="0"),
        sa.PrimaryKeyConstraint("host_id", name="host_incidents_pkey"),
        comment="Hosts most of whose pages may show the same sign, and their last incident.",
        postgresql_with=HOT,
    )


def downgrade() -> None:
    op.drop_table("host_incidents")
    # 6: failed, the code of a page that is tried again within an hour
    op.execute("UPDATE page_states SET outcome = 6, absent_since = NULL WHERE outcome = 8")
