"""Group hours: screens, evidence and profiles of URL groups that may keep hours of their own.

Revision ID: 0023
Revises: 0021
"""

import sqlalchemy as sa
from alembic import op

from service.storage.tables import Id, Instant

revision = "0023"
down_revision = "0021"


def upgrade() -> None:
    op.create_table(
        "group_hours",
        sa.Column("host_id", Id, autoincrement=False, nullable=False),
        sa.Column("url_group", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("seen_at", Instant, nullable=False),
        sa.Column("page_id", Id),
        sa.Column("in_force", sa.Boolean),
        sa.Column("has_own", sa.Boolean),
        sa.Column("screen", sa.LargeBinary),
        sa.Column("evidence", sa.LargeBinary),
        sa.Column("profile", sa.LargeBinary),
        sa.PrimaryKeyConstraint("host_id", "url_group", name="group_hours_pkey"),
        comment="Change hours of URL groups: a screen, or evidence and the profile in force.",
        postgresql_with={"fillfactor": "90"},
    )
    op.create_index(
        "group_hours_has_own_idx",
        "group_hours",
        ["host_id", "url_group"],
        postgresql_where=sa.text("has_own"),
        sqlite_where=sa.text("has_own"),
    )


def downgrade() -> None:
    op.drop_table("group_hours")
