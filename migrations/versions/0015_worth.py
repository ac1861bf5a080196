"""Worth of new pages: levels of URLs, digests that are known, and pages that are held.

Revision ID: 0015
Revises: 0014
"""

import sqlalchemy as sa
from alembic import op

from service.storage.tables import HOT, Id, Instant

revision = "0015"
down_revision = "0014"

OLD_COMMENT = "One row a page, updated by every observation: no secondary index, room for HOT."
NEW_COMMENT = "One row a page, updated by every observation: room for HOT, an index of new pages."
HELD = sa.text("held IS NOT NULL")
STOPPED = sa.text("stopped")


def upgrade() -> None:
    op.add_column("hosts", sa.Column("first_share", sa.Double))
    op.add_column("page_states", sa.Column("held", sa.BigInteger))
    op.create_index(
        "page_states_held_idx",
        "page_states",
        ["held", "page_id"],
        postgresql_where=HELD,
        sqlite_where=HELD,
    )
    op.create_table(
        "url_levels",
        sa.Column("level", Id, primary_key=True, autoincrement=False),
        sa.Column("parent", Id, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        *(
            sa.Column(name, sa.BigInteger, nullable=False, server_default="0")
            for name in ("n_first", "n_new", "n_opened", "n_opened_new", "n_in_flight")
        ),
        sa.Column("rule", sa.SmallInteger),
        sa.Column("stopped", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("since", Instant, nullable=False),
        sa.Column("sampled_at", Instant),
        comment="First crawls and verdicts of the levels of URLs, from hosts to last segments.",
        postgresql_with=HOT,
    )
    op.create_index("url_levels_parent_idx", "url_levels", ["parent"])
    op.create_index("url_levels_name_idx", "url_levels", ["name"])
    op.create_index(
        "url_levels_stopped_idx",
        "url_levels",
        ["sampled_at", "level"],
        postgresql_where=STOPPED,
        sqlite_where=STOPPED,
    )
    op.create_table(
        "digests",
        sa.Column("digest", sa.BigInteger, primary_key=True, autoincrement=False),
        comment="Digests that first crawls have brought, which are new no more.",
    )
    op.execute(
        "INSERT INTO digests (digest) SELECT DISTINCT digest FROM page_states "
        "WHERE digest IS NOT NULL AND digest <> 0"
    )
    if op.get_bind().dialect.name == "postgresql":
        op.create_table_comment("page_states", NEW_COMMENT)


def downgrade() -> None:
    op.drop_table("digests")
    op.drop_table("url_levels")
    op.drop_index("page_states_held_idx", "page_states")
    op.drop_column("page_states", "held")
    op.drop_column("hosts", "first_share")
    if op.get_bind().dialect.name == "postgresql":
        op.create_table_comment("page_states", OLD_COMMENT)
