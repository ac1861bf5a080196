"""On SQLite the log is kept by the day: what is new lies together, what is old goes as a whole.

Along the pages alone, every entry of a commit fell on a leaf of its own.

Revision ID: 0004
Revises: 0003
"""

from alembic import op

revision = "0004"
down_revision = "0003"

LOG = """
ALTER TABLE observations RENAME TO old_observations;

CREATE TABLE observations (
    {day}
    page_id INTEGER NOT NULL,
    observed_at BIGINT NOT NULL,
    "interval" DOUBLE,
    crawl_rate DOUBLE,
    kind SMALLINT NOT NULL,
    changed SMALLINT,
    status SMALLINT,
    CONSTRAINT observations_pkey PRIMARY KEY ({key})
) WITHOUT ROWID;

INSERT INTO observations
SELECT {value} page_id, observed_at, "interval", crawl_rate, kind, changed, status
FROM old_observations ORDER BY {key};

DROP TABLE old_observations
"""


def upgrade() -> None:
    _rebuild(
        day="day INTEGER NOT NULL,",
        value="observed_at / 86400000000 AS day,",
        key="day, page_id, observed_at, kind",
    )


def downgrade() -> None:
    _rebuild(day="", value="", key="page_id, observed_at, kind")


def _rebuild(day: str, value: str, key: str) -> None:
    if op.get_bind().dialect.name == "sqlite":
        script = LOG.format(day=day, value=value, key=key)
        for statement in script.split(";\n\n"):
            op.get_bind().exec_driver_sql(statement)
