"""Windows and blackouts of host queues, in one text each.

Revision ID: 0029
Revises: 0028
"""

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0028"

INDEX = "host_queues_windows_idx"
SET = sa.text("windows IS NOT NULL OR blackouts IS NOT NULL")


def upgrade() -> None:
    for name in ("windows", "blackouts"):
        op.add_column("host_queues", sa.Column(name, sa.Text))
    op.create_index(INDEX, "host_queues", ["queue_id"], postgresql_where=SET, sqlite_where=SET)


def downgrade() -> None:
    op.drop_index(INDEX, "host_queues")
    for name in ("blackouts", "windows"):
        op.drop_column("host_queues", name)
