"""Redirects: first crawls count at once, pages are found by the target of their redirect, and moves
are a sign of incidents.

Revision ID: 0049
Revises: 0046
"""

import sqlalchemy as sa
from alembic import op

from service.storage.tables import Instant

revision = "0049"
down_revision = "0048"

INDEX = "page_states_redirects_to_idx"


def upgrade() -> None:
    column = sa.Column("n_led", sa.BigInteger, nullable=False, server_default="0")
    op.add_column("url_levels", column)
    column = sa.Column("n_moved", sa.BigInteger, nullable=False, server_default="0")
    op.add_column("host_incidents", column)
    op.add_column("host_incidents", sa.Column("moved_at", Instant))
    some = sa.text("redirects_to IS NOT NULL")
    op.create_index(
        INDEX, "page_states", ["redirects_to"], postgresql_where=some, sqlite_where=some
    )


def downgrade() -> None:
    op.drop_column("host_incidents", "moved_at")
    op.drop_column("host_incidents", "n_moved")
    op.drop_index(INDEX, "page_states")
    op.drop_column("url_levels", "n_led")
