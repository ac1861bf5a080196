"""Planned crawls by windows, in the record of an epoch, and those of a day, in the pace.

Revision ID: 0038
Revises: 0037
"""

import sqlalchemy as sa
from alembic import op

from service.storage.tables import Json

revision = "0038"
down_revision = "0037"


def upgrade() -> None:
    op.add_column("epochs", sa.Column("window_demand", Json))
    op.add_column("pace", sa.Column("in_windows", sa.Double))


def downgrade() -> None:
    op.drop_column("pace", "in_windows")
    op.drop_column("epochs", "window_demand")
