"""Subscriptions: hosts that they take, their renewal, and what their hubs have sent.

Revision ID: 0026
Revises: 0025
"""

import sqlalchemy as sa
from alembic import op

from service.storage.tables import SUBSCRIPTION_COUNTS, Instant, Json

revision = "0026"
down_revision = "0025"

INSTANTS = "ask_at", "warn_at", "denied_at", "ending_at", "last_content_at"


def upgrade() -> None:
    same = sa.text("'same'")
    op.add_column("websub", sa.Column("host_policy", sa.Text, nullable=False, server_default=same))
    for name in ("listed_hosts", "last_taken", "last_rejected"):
        op.add_column("websub", sa.Column(name, Json))
    for name in ("public_url", "reason"):
        op.add_column("websub", sa.Column(name, sa.Text))
    for name in INSTANTS:
        op.add_column("websub", sa.Column(name, Instant))
    for name in SUBSCRIPTION_COUNTS:
        count = sa.Column(name, sa.BigInteger, nullable=False, server_default="0")
        op.add_column("websub", count)
    for name in ("ask_at", "warn_at"):
        op.create_index(f"websub_{name}_idx", "websub", [name])
    # nobody renews them: they have no public address
    op.execute("UPDATE websub SET warn_at = expires_at")


def downgrade() -> None:
    for name in ("ask_at", "warn_at"):
        op.drop_index(f"websub_{name}_idx", "websub")
    texts = "host_policy", "listed_hosts", "last_taken", "last_rejected", "public_url", "reason"
    for name in (*texts, *INSTANTS, *SUBSCRIPTION_COUNTS):
        op.drop_column("websub", name)
