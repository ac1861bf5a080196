"""What windows lose, in the record of an epoch.

Revision ID: 0030
Revises: 0029
"""

import sqlalchemy as sa
from alembic import op

from service.storage.tables import Json

revision = "0030"
down_revision = "0029"


def upgrade() -> None:
    op.add_column("epochs", sa.Column("window_losses", Json))


def downgrade() -> None:
    op.drop_column("epochs", "window_losses")
