"""Old secrets: a webhook keeps each secret that still signs, not only the last one.

Revision ID: 0003
Revises: 0002
"""

from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa
from alembic import op

from service.storage.tables import Instant, Json

revision = "0003"
down_revision = "0002"

UNIX_ZERO = datetime(1970, 1, 1, tzinfo=UTC)
webhooks = sa.table(
    "webhooks",
    sa.column("id", sa.Text),
    sa.column("old_secret", sa.Text),
    sa.column("old_secret_until", Instant),
    sa.column("old_secrets", Json),
)


def upgrade() -> None:
    op.add_column("webhooks", sa.Column("old_secrets", Json))
    old = webhooks.c.old_secret, webhooks.c.old_secret_until
    for name, secret, until in rows(*old):
        kept = [[secret, instant(until).isoformat()]]
        write(name, old_secrets=kept)
    for column in old:
        op.drop_column("webhooks", column.name)


def downgrade() -> None:
    op.add_column("webhooks", sa.Column("old_secret", sa.Text))
    op.add_column("webhooks", sa.Column("old_secret_until", Instant))
    for name, kept in rows(webhooks.c.old_secrets):
        if kept:
            secret, until = kept[0]
            write(name, old_secret=secret, old_secret_until=stored(until))
    op.drop_column("webhooks", "old_secrets")


def rows(first: sa.ColumnClause[Any], *others: sa.ColumnClause[Any]) -> list[Any]:
    chosen = sa.select(webhooks.c.id, first, *others).where(first.is_not(None))
    return list(op.get_bind().execute(chosen))


def write(name: str, **values: Any) -> None:
    op.get_bind().execute(sa.update(webhooks).where(webhooks.c.id == name).values(**values))


def instant(value: Any) -> datetime:
    return value if isinstance(value, datetime) else UNIX_ZERO + timedelta(microseconds=value)


def stored(text: str) -> Any:
    """Return an instant as the database has it."""
    at = datetime.fromisoformat(text)
    if op.get_bind().dialect.name == "postgresql":
        return at
    return (at - UNIX_ZERO) // timedelta(microseconds=1)
