"""Division: an epoch's certificate has the parts of its budget.

Revision ID: 0014
Revises: 0013
"""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"

PARTS = "planned", "overhead", "first_crawls"


def upgrade() -> None:
    for part in PARTS:
        op.add_column("epochs", sa.Column(part, sa.Double))


def downgrade() -> None:
    for part in PARTS:
        op.drop_column("epochs", part)
