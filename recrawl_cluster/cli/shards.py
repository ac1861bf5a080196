"""`recrawl shards`: the databases of a sharded store."""

from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from service.cli.options import console, settings
from service.model.errors import InvalidSettings, RecrawlError
from service.model.words import counted

if TYPE_CHECKING:
    from recrawl_cluster.sharded import ShardedStore
    from recrawl_cluster.store.database import ShardDatabase

shards = typer.Typer(
    no_args_is_help=True, help="Show and join the databases that RECRAWL_CLUSTER names."
)

PAGES = """
SELECT greatest(reltuples, 0)::bigint FROM pg_class WHERE oid = 'pages'::regclass
"""
"""Statement that reads the planner's estimate of the number of pages."""


@contextmanager
def sharded() -> "Iterator[ShardedStore]":
    """Yield the store that RECRAWL_CLUSTER describes, without a check of its claims."""
    from recrawl_cluster.sharded import ShardedStore
    from service.estimation.estimates import width
    from service.storage import open_store

    chosen = settings(None)
    if not chosen.cluster:
        raise InvalidSettings("RECRAWL_CLUSTER is not set; name the file with the databases")
    url = chosen.database_url.get_secret_value()
    store = open_store(url, width(chosen.plan().estimator))
    assert isinstance(store, ShardedStore)  # noqa: S101 - for mypy
    with closing(store):
        yield store


@shards.command()
def status() -> None:
    """Show each database: its shards, pages (an estimate), epoch, and whether it agrees."""
    from recrawl_cluster.moves.move_record import read_record

    table = Table("database", "shards", "pages", "epoch", "state", box=None)
    n_away, record = 0, None
    with sharded() as store:
        for database in store.databases:
            row, is_away = _row(store, database)
            n_away += is_away
            table.add_row(*row)
        with suppress(RecrawlError), store.coordinator.unchecked() as tx:
            record = read_record(tx)
    console.print(table)
    if record is not None:
        console.print(
            f"{record}; `recrawl shards move {record.shard} --to {record.target}` goes on"
        )
    if n_away:
        raise typer.Exit(1)


def _row(store: "ShardedStore", database: "ShardDatabase") -> tuple[list[str], bool]:
    """Return the cells of a database, and whether it is away or disagrees."""
    from recrawl_cluster.store.claims import checked, read_claim
    from recrawl_cluster.store.shard_map import format_shards

    name = database.database.name
    name += " (coordinator)" if database is store.coordinator else ""
    shards_text = format_shards(database.database.shards)
    try:
        database.check()
        with database.unchecked() as tx:
            n_pages, epoch = str(tx.scalar(PAGES)), str(tx.number_in_force())
            claim = checked(read_claim(tx), store.shard_map, database.database)
            shards_text = claim.shards
    except RecrawlError as error:
        return [name, shards_text, "", "", error.detail], True
    return [name, shards_text, n_pages, epoch, "ok"], False


@shards.command()
def add() -> None:
    """Join the new, empty databases of RECRAWL_CLUSTER, and put its exceptions in force.

    Migrate the databases first (`recrawl migrate`).
    """
    from recrawl_cluster.store.claims import add as add_databases

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
    from recrawl_cluster.store.claims import adopt as adopt_store

    with sharded() as store:
        for database in store.databases:
            database.check()
        n_hosts = adopt_store(store.databases, store.shard_map)
    hosts = counted(n_hosts, "host stays", "hosts stay")
    typer.echo(f"adopted: {hosts} in shard 0 of {store.coordinator.database.name}")


To = Annotated[str, typer.Option("--to", help="Name of the database that gets the shard")]
DryRun = Annotated[bool, typer.Option(help="Show what would move, and change nothing")]
Cancel = Annotated[bool, typer.Option(help="Undo a move that is not complete")]
ClosedS = Annotated[
    float, typer.Option(help="Maximum time without the shard, seconds; then it opens again", min=1)
]
GraceS = Annotated[
    float,
    typer.Option(help="Time for which the old rows stay for running requests, seconds", min=0),
]


@shards.command()
def move(
    shard: Annotated[int, typer.Argument(help="Number of the logical shard")],
    to: To,
    dry_run: DryRun = False,
    cancel: Cancel = False,
    closed_s: ClosedS = 30.0,
    grace_s: GraceS = 30.0,
) -> None:
    """Move a logical shard to another database while the service is in use. All ids stay.

    Items of the shard are rejected with `shard_unavailable` for some seconds. A command that was
    ended goes on when it is run again.
    """
    from recrawl_cluster.moves.move import Move
    from recrawl_cluster.moves.move_plan import sizes

    with sharded() as store:
        moving = Move(store, shard, to, typer.echo, closed_s, grace_s)
        if dry_run:
            typer.echo(sizes(store, shard, to))
        elif cancel:
            moving.cancel()
            typer.echo(f"cancelled: shard {shard} stays where it was")
        else:
            moving.run()
