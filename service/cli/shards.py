"""`recrawl shards`: the databases of a sharded store."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import typer
from rich.table import Table

from service.cli.options import console, settings
from service.model.errors import InvalidSettings, RecrawlError

if TYPE_CHECKING:
    from service.storage.sharding.database import ShardDatabase
    from service.storage.sharding.store import ShardedStore

shards = typer.Typer(
    no_args_is_help=True, help="Show and join the databases that RECRAWL_SHARDS names."
)

PAGES = """
SELECT greatest(reltuples, 0)::bigint FROM pg_class WHERE oid = 'pages'::regclass
"""
"""Statement that reads the planner's estimate of the number of pages."""


@contextmanager
def sharded() -> "Iterator[ShardedStore]":
    """Yield the store that RECRAWL_SHARDS describes, without a check of its claims."""
    from service.estimation.estimates import width
    from service.storage import open_store
    from service.storage.sharding.store import ShardedStore

    chosen = settings(None)
    if not chosen.shards:
        raise InvalidSettings("RECRAWL_SHARDS is not set; name the file with the databases")
    url = chosen.database_url.get_secret_value()
    store = open_store(url, width(chosen.plan().estimator))
    assert isinstance(store, ShardedStore)  # noqa: S101 - for mypy
    with closing(store):
        yield store


@shards.command()
def status() -> None:
    """Show each database: its shards, pages (an estimate), epoch, and whether it agrees."""
    table = Table("database", "shards", "pages", "epoch", "state", box=None)
    n_away = 0
    with sharded() as store:
        for database in store.databases:
            row, is_away = _row(store, database)
            n_away += is_away
            table.add_row(*row)
    console.print(table)
    if n_away:
        raise typer.Exit(1)


def _row(store: "ShardedStore", database: "ShardDatabase") -> tuple[list[str], bool]:
    """Return the cells of a database, and whether it is away or disagrees."""
    from service.storage.sharding.claims import check_claim
    from service.storage.sharding.shard_map import format_shards

    name = database.database.name
    name += " (coordinator)" if database is store.coordinator else ""
    shards_text = format_shards(database.database.shards)
    try:
        database.check()
        with database.begin(write=False) as tx:
            n_pages, epoch = str(tx.scalar(PAGES)), str(tx.number_in_force())
            check_claim(tx, store.shard_map, database.database)
    except RecrawlError as error:
        return [name, shards_text, "", "", error.detail], True
    return [name, shards_text, n_pages, epoch, "ok"], False


@shards.command()
def add() -> None:
    """Join the new, empty databases of RECRAWL_SHARDS, and put its exceptions in force.

    Migrate the databases first (`recrawl migrate`).
    """
    from service.storage.sharding.claims import add as add_databases

    with sharded() as store:
        for database in store.databases:
            database.check()
        new = add_databases(store.databases, store.shard_map)
    typer.echo(f"joined: {', '.join(new)}" if new else "no database is new")


@shards.command()
def adopt() -> None:
    """Make a store that was never sharded the coordinator, with its pages in shard 0.

    Stop the service first. All ids stay. Later hosts go to the shard of their hash. Then run
    `recrawl shards add` for the other databases.
    """
    from service.storage.sharding.claims import adopt as adopt_store

    with sharded() as store:
        for database in store.databases:
            database.check()
        n_hosts = adopt_store(store.databases, store.shard_map)
    typer.echo(f"adopted: {n_hosts} hosts stay in shard 0 of {store.coordinator.database.name}")
