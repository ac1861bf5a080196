"""Change hours: the table of the hours at which hosts change has the name of what it holds.

Revision ID: 0002
Revises: 0001
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    rename("clocks", "change_hours", "has_clock", "has_hours")


def downgrade() -> None:
    rename("change_hours", "clocks", "has_hours", "has_clock")


def rename(old: str, new: str, old_flag: str, new_flag: str) -> None:
    op.drop_index(f"{old}_{old_flag}_idx", old)
    op.rename_table(old, new)
    op.execute(f"ALTER TABLE {new} RENAME COLUMN {old_flag} TO {new_flag}")
    if op.get_bind().dialect.name == "postgresql":  # SQLite's key has no name of its own
        op.execute(f"ALTER INDEX {old}_pkey RENAME TO {new}_pkey")
    op.create_index(
        f"{new}_{new_flag}_idx",
        new,
        ["host_id"],
        postgresql_where=sa.text(new_flag),
        sqlite_where=sa.text(new_flag),
    )
