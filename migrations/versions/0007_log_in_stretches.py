"""On SQLite a day of the log is kept in stretches: a commit's entries share their leaves.

As one piece, a day of a million entries had ten thousand leaves, and every entry of a commit fell
on another one. What there was of a day is its first stretch.

Revision ID: 0007
Revises: 0006
"""

from alembic import op

revision = "0007"
down_revision = "0006"

LOG = """
ALTER TABLE observations RENAME TO old_observations;

CREATE TABLE observations (
    {key} INTEGER NOT NULL,
    page_id INTEGER NOT NULL,
    observed_at BIGINT NOT NULL,
    "interval" DOUBLE,
    crawl_rate DOUBLE,
    kind SMALLINT NOT NULL,
    changed SMALLINT,
    status SMALLINT,
    CONSTRAINT observations_pkey PRIMARY KEY ({key}, page_id, observed_at, kind)
) WITHOUT ROWID;

INSERT OR IGNORE INTO observations
SELECT {value}, page_id, observed_at, "interval", crawl_rate, kind, changed, status
FROM old_observations ORDER BY {order}, page_id, observed_at, kind;

DROP TABLE old_observations
"""


def upgrade() -> None:
    _rebuild(key="stretch", value="day * 10000", order="day")


def downgrade() -> None:
    _rebuild(key="day", value="stretch / 10000", order="stretch / 10000")


def _rebuild(**words: str) -> None:
    if op.get_bind().dialect.name == "sqlite":
        for statement in LOG.format(**words).split(";\n\n"):
            op.get_bind().exec_driver_sql(statement)
