"""Partitions on Postgres: create the next months of the log, drop old months and schedules.

Each step waits at most `LOCK_TIMEOUT` for readers of the table. If that is too short, the next
round tries again.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime
from typing import TYPE_CHECKING

import psycopg

from service.storage.postgres import sql

if TYPE_CHECKING:
    from service.storage.postgres.transaction import PostgresTransaction

LOCK_TIMEOUT = "20ms"
"""Maximum wait of housekeeping for a lock; later readers wait behind it for as long."""
LOCK_ATTEMPTS = 10
"""Maximum attempts of a step in one round."""
MOST_MOVED = 20_000
"""Maximum entries that move from the default partition to that of their month: about 0.2 s."""


def keep_house(
    begin: Callable[[], AbstractContextManager["PostgresTransaction"]],
    keep_log_since: datetime | None,
    now: datetime,
) -> None:
    """Run each step in its own transaction, so that no lock outlasts its step."""
    with begin() as tx:
        todo = chores(tx, keep_log_since, now)
    for statements in todo:
        for _ in range(LOCK_ATTEMPTS):
            with begin() as tx:
                if attempt(tx, *statements):
                    break


def chores(
    tx: "PostgresTransaction", keep_log_since: datetime | None, now: datetime
) -> list[tuple[str, ...]]:
    """Return the steps of housekeeping, each the statements of one transaction."""
    months = partitions(tx, "observations")
    steps = [
        month(tx, name, f"{first:%Y-%m-01}Z", f"{next_month(first):%Y-%m-01}Z")
        for first, name in months_ahead(now)
        if name not in months
    ]
    if keep_log_since is not None:
        steps += [(f"DELETE FROM observations_default WHERE observed_at < '{keep_log_since}'",)]
        oldest = f"observations_{keep_log_since:%Y_%m}"
        past = sorted(m for m in months if m < oldest and not m.endswith("default"))
        steps += [(f"DROP TABLE {name}",) for name in past]
    in_use = {f"schedule_{e}" for e in tx.kept()}
    old = partitions(tx, "schedule") - in_use
    # Each writer locks `alembic_version` before it reads the epoch in force.
    return steps + [("LOCK TABLE alembic_version", f"DROP TABLE {name}") for name in old]


def month(tx: "PostgresTransaction", name: str, first: str, after: str) -> tuple[str, ...]:
    """Return the statements that attach a partition and move its rows from the default partition.

    Return no statements if there are too many rows to move.
    """
    within = f"observed_at >= '{first}' AND observed_at < '{after}'"
    held = f"SELECT FROM observations_default WHERE {within} LIMIT {MOST_MOVED + 1}"
    n_held = tx.once(held).rowcount
    if n_held > MOST_MOVED:
        return ()
    moved = f"WITH moved AS (DELETE FROM observations_default WHERE {within} RETURNING *)"
    attach = f"ATTACH PARTITION {name} FOR VALUES FROM ('{first}') TO ('{after}')"
    return (
        "LOCK TABLE observations",  # otherwise a concurrent insert into the default one fails
        f"CREATE TABLE {name} (LIKE observations)",
        *([f"{moved} INSERT INTO {name} SELECT * FROM moved"] if n_held else ()),
        f"ALTER TABLE observations {attach}",
    )


def partitions(tx: "PostgresTransaction", parent: str) -> set[str]:
    """Return the names of the partitions of a table."""
    return {name for (name,) in tx.run(sql.PARTITIONS, parent=parent)}


def attempt(tx: "PostgresTransaction", *statements: str) -> bool:
    """Run all statements or none; return False if a lock was not available in time."""
    try:
        with tx.driver.transaction():
            tx.once(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'")
            for statement in statements:
                tx.once(statement)
    except (psycopg.errors.LockNotAvailable, psycopg.errors.CheckViolation):
        return False
    return True


def next_month(moment: datetime) -> datetime:
    """Return the first day of the next month."""
    return moment.replace(year=moment.year + moment.month // 12, month=moment.month % 12 + 1, day=1)


def months_ahead(now: datetime) -> list[tuple[datetime, str]]:
    """Return the running month and the two after it, with the names of their partitions."""
    first = now.replace(day=1)
    months = [first, next_month(first), next_month(next_month(first))]
    return [(month, f"observations_{month:%Y_%m}") for month in months]
