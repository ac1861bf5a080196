"""Where a page redirects to is part of its state, written under the lock that evidence holds.

Revision ID: 0006
Revises: 0005
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

Id = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
MOVE = """
UPDATE {to} SET redirects_to = (
    SELECT redirects_to FROM {source} WHERE {source}.page_id = {to}.page_id
) WHERE page_id IN (SELECT page_id FROM {source} WHERE redirects_to IS NOT NULL)
"""


def upgrade() -> None:
    op.add_column("page_states", sa.Column("redirects_to", Id))
    op.execute(MOVE.format(to="page_states", source="pages"))
    op.drop_column("pages", "redirects_to")


def downgrade() -> None:
    op.add_column("pages", sa.Column("redirects_to", Id))
    op.execute(MOVE.format(to="pages", source="page_states"))
    op.drop_column("page_states", "redirects_to")
