"""The store of pages, evidence and schedules."""

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from service.archive.log_archive import LogArchive
from service.model.subscriptions import Subscription
from service.storage.clock import Clock
from service.storage.pages.contract import Brought, RegisteredPages
from service.storage.stores.contract import Lead, Store, Transaction

if TYPE_CHECKING:
    import sqlalchemy as sa

    from service.storage.postgres.connections import Deadlines

__all__ = [
    "Brought",
    "Lead",
    "RegisteredPages",
    "Store",
    "Subscription",
    "Transaction",
    "open_store",
]

CLUSTER = "cluster"
"""Scheme of the address of a store over several databases: `cluster:///FILE`, FILE is the map."""


class StoreOpener(Protocol):
    """Entry point of the group `recrawl.stores`."""

    def __call__(
        self, path: Path, width: int, *, clock: Clock | None, deadlines: "Deadlines"
    ) -> Store:
        """Return the store of the map at a path; raise `InvalidSettings`."""


def open_store(
    url: str,
    width: int,
    *,
    clock: Clock | None = None,
    timeout_s: float | None = None,
    archive: LogArchive | None = None,
) -> Store:
    """Return the store of a database URL; `width` is the estimator's number of columns.

    The address `cluster:///FILE` names the map of a store over several databases.
    A `clock` replaces the store's own clock. `timeout_s` limits one statement; None: no limit, for
    batches. `archive` has the old days of the log. Raise `InvalidSettings` unless the URL names a
    SQLite file or a Postgres database.
    """
    import sqlalchemy as sa

    from service.model.errors import InvalidSettings
    from service.model.plugins import STORES, of_cluster
    from service.storage.postgres.connections import BATCH, request_deadlines
    from service.storage.sqlite.connections import BUSY_S
    from service.storage.stores.postgres import PostgresStore
    from service.storage.stores.sqlite import SqliteStore

    try:
        parsed = sa.make_url(url)
    except (sa.exc.ArgumentError, ValueError) as error:
        raise InvalidSettings(
            "RECRAWL_DATABASE_URL is not a URL; try sqlite:///recrawl.db, and percent-encode what "
            "is special in a password (several hosts: ?host=one:5432&host=two:5432)"
        ) from error
    backend = parsed.get_backend_name()
    if backend in ("postgresql", "postgres"):
        _check_postgres(parsed)
    if backend in ("postgresql", "postgres") and parsed.database:
        deadlines = BATCH if timeout_s is None else request_deadlines(timeout_s)
        store: Store = PostgresStore(url, width, deadlines=deadlines, clock=clock)
    elif backend == CLUSTER and parsed.database:
        deadlines = BATCH if timeout_s is None else request_deadlines(timeout_s)
        opener: StoreOpener = of_cluster(STORES, backend, "RECRAWL_CLUSTER")
        store = opener(Path(parsed.database), width, clock=clock, deadlines=deadlines)
    elif backend == "sqlite" and parsed.database not in (None, "", ":memory:"):
        store = SqliteStore(url, width, BUSY_S if timeout_s is None else timeout_s, clock=clock)
    else:
        raise InvalidSettings(
            "RECRAWL_DATABASE_URL must be sqlite:///FILE or postgresql://USER@HOST/DATABASE"
        )
    store.archive = archive
    return store


def _check_postgres(url: "sa.URL") -> None:
    """Raise `InvalidSettings` for a URL whose password ends elsewhere, or with an unknown option.

    Else the errors of the driver would show a part of the password.
    """
    from psycopg import ProgrammingError
    from psycopg.conninfo import make_conninfo

    from service.model.errors import InvalidSettings

    if "@" in f"{url.host or ''}{url.database or ''}":
        raise InvalidSettings(
            "RECRAWL_DATABASE_URL has an @ or / in its password; write %40 for @ and %2F for /"
        )
    for name in url.query:
        try:
            make_conninfo("", **{name: "1"})
        except ProgrammingError as error:
            raise InvalidSettings(
                f"RECRAWL_DATABASE_URL has the unknown option {name[:40]}; remove it"
            ) from error
