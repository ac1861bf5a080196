"""Checks of a session of Postgres: its encoding is UTF8, and no pooler shares it."""

from collections.abc import Callable
from typing import Any

import psycopg

from service.model.errors import DatabaseUnsuitable

ENCODING = "UTF8"
SHARED = (
    "the address of the database leads to a pooler that changes the session between transactions, "
    "such as PgBouncer in transaction mode; set pool_mode=session for this database, or name the "
    "address of Postgres itself"
)


def check_encoding(driver: psycopg.Connection[Any]) -> None:
    """Raise `DatabaseUnsuitable` for a database of another encoding than UTF8."""
    value = driver.pgconn.parameter_status(b"server_encoding")
    encoding = ENCODING if value is None else value.decode()
    if encoding != ENCODING:
        raise DatabaseUnsuitable(
            f"the database {driver.info.dbname} has the encoding {encoding}, and Recrawl needs "
            f"{ENCODING}; make another database by `createdb -E UTF8 -T template0 --locale=C NAME`"
        )


def check_own(
    driver: psycopg.Connection[Any], another: Callable[[], psycopg.Connection[Any]]
) -> None:
    """Raise `DatabaseUnsuitable` where a pooler changes the session between transactions.

    Prepared statements, advisory locks and LISTEN end with the session. A pooler has process
    numbers of its own. In transaction mode another client gets the session that has just become
    free, or the next transaction gets another one.
    """
    before = _number(driver)
    driver.rollback()
    if before == driver.pgconn.backend_pid:
        return
    with another() as other:  # its transaction keeps its session until the end of the block
        shared = _number(other) == before or _number(driver) != before
        driver.rollback()
    if shared:
        raise DatabaseUnsuitable(SHARED)


def _number(driver: psycopg.Connection[Any]) -> int:
    """Return the number of the server's process, in a transaction."""
    row = driver.execute("SELECT pg_backend_pid()").fetchone()
    return 0 if row is None else int(row[0])
