"""Partitions of tables on Postgres, and steps that change them.

Each step waits at most `LOCK_TIMEOUT` for readers of the table. If that is too short, the next
round tries again.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager

import psycopg

from service.storage.dialect import Dialect
from service.storage.postgres.dialect import PostgresDialect

Begin = Callable[[], AbstractContextManager[PostgresDialect]]
"""Function that opens a transaction."""
LOCK_TIMEOUT = "20ms"
"""Maximum wait of housekeeping for a lock; later readers wait behind it for as long."""
LOCK_ATTEMPTS = 10
"""Maximum attempts of a step in one round."""

PARTITIONS = """
SELECT child.relname FROM pg_inherits
JOIN pg_class AS child ON child.oid = inhrelid
WHERE inhparent = %(parent)s::regclass
"""


def partitions(tx: Dialect, parent: str) -> set[str]:
    """Return the names of the partitions of a table."""
    return {name for (name,) in tx.run(PARTITIONS, parent=parent)}


def attempt(tx: PostgresDialect, *statements: str) -> bool:
    """Run all statements or none; return False if a lock was not available in time."""
    try:
        with tx.driver.transaction():
            tx.once(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'")
            for statement in statements:
                tx.once(statement)
    except (psycopg.errors.LockNotAvailable, psycopg.errors.CheckViolation):
        return False
    return True


def in_steps(begin: Begin, steps: Iterable[Sequence[str]]) -> None:
    """Run the statements of each step in one transaction, so that no lock outlasts its step."""
    for statements in steps:
        for _ in range(LOCK_ATTEMPTS):
            with begin() as tx:
                if attempt(tx, *statements):
                    break
