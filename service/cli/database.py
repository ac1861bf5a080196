"""Commands on the whole database: `migrate`, `restored` and `rebuild`."""

from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import Progress

from service.cli.confirming import Yes, confirm
from service.cli.export import expected_pages
from service.cli.options import DatabaseUrl, console, settings
from service.model.words import counted

if TYPE_CHECKING:
    from sqlalchemy import Engine


Down = Annotated[
    str | None, typer.Option(help="Go back to this revision instead (`base`: drop everything)")
]


def migrate(database_url: DatabaseUrl = None, down: Down = None, yes: Yes = False) -> None:
    """Migrate the database to the schema of this version; --down asks, because it drops data."""
    from service.estimation.estimates import width
    from service.storage import migrations, open_store

    chosen = settings(database_url)
    url = chosen.database_url.get_secret_value()
    opened: Any = open_store(url, width(chosen.plan().estimator))
    with closing(opened) as store:
        if down is not None:
            _confirm_downgrade([part.engine for part in store.parts], down, yes=yes)
        for part in store.parts:
            if down is None:
                migrations.upgrade(part.engine)
            else:
                _downgrade(part.engine, down)
            with part.engine.connect() as connection:
                revision = migrations.current(connection)
        if revision == migrations.head():
            store.recognise()
    typer.echo(f"the database is at revision {revision or 'base'}")


def restored(database_url: DatabaseUrl = None) -> None:
    """Begin a new incarnation after a restore, so that the database repeats no id.

    Recrawl notices most restores by itself. Some need this command, with the service stopped: a
    snapshot of a whole disk, a recovery to a few minutes ago, and a backup of an older version.
    """
    from service.estimation.estimates import width
    from service.storage import open_store

    chosen = settings(database_url)
    opened: Any = open_store(chosen.database_url.get_secret_value(), width(chosen.plan().estimator))
    with closing(opened) as store:
        store.prepare(existing=True)
        store.check()
        begun = store.begin_incarnation()
    for each in begun:
        typer.echo(
            f"incarnation {each.name}: the next page has the id {each.first_page}, the next epoch "
            f"the number {each.first_epoch}"
        )


def send_webhooks(database_url: DatabaseUrl = None) -> None:
    """Let the webhooks of a restored database send again, as it is no copy.

    The service may run meanwhile. It sends what has changed since the places of the backup.
    """
    from service.access.audit import write_audit
    from service.estimation.estimates import width
    from service.model.access import Actor
    from service.storage import open_store

    chosen = settings(database_url)
    opened: Any = open_store(chosen.database_url.get_secret_value(), width(chosen.plan().estimator))
    with closing(opened) as store:
        store.prepare(existing=True)
        store.check()
        store.recognise()  # the restore may not have been noticed yet
        with store.begin() as tx:
            were_held = tx.release_webhooks()
            if were_held:
                write_audit(tx, Actor("command-line"), "webhooks.release", "webhooks")
    typer.echo("webhooks send again" if were_held else "webhooks were not held")


def _confirm_downgrade(engines: "list[Engine]", revision: str, *, yes: bool) -> None:
    """Ask before tables or columns are dropped; databases without tables lose nothing."""
    from service.storage import migrations

    counts = [n for engine in engines if (n := migrations.count_pages(engine)) is not None]
    if not counts or not migrations.exists(revision):  # the downgrade refuses what does not exist
        return
    if revision == migrations.BASE:
        least = "at least " if max(counts) >= migrations.MOST_COUNTED else ""
        pages = counted(sum(counts), "page")
        act = f"this drops all tables, with {least}{pages}, their logs, and all keys and webhooks"
    else:
        lost = Counter[str]()
        for engine in engines:
            lost.update(migrations.drops(engine, revision))
        rows = [f"{name} ({counted(n, 'row')})" for name, n in lost.items()]
        act = f"this goes back to revision {revision} and drops {', '.join(rows) or 'no values'}"
    confirm(act, yes=yes)


def _downgrade(engine: "Engine", revision: str) -> None:
    from alembic.util import CommandError

    from service.storage import migrations

    if not revision:
        raise typer.BadParameter("name a revision, or base", param_hint="--down")
    try:
        migrations.downgrade(engine, revision)
    except CommandError as error:
        names = ", ".join((migrations.BASE, *sorted(migrations.known())))
        detail = f"{error}; send one of {names}"
        raise typer.BadParameter(detail, param_hint="--down") from error


def rebuild(database_url: DatabaseUrl = None) -> None:
    """Compute all estimates again from the observation log, as after a change of estimator.

    Archived days of the log are read from RECRAWL_ARCHIVE.

    Stop the service first. Two kinds of evidence are lost: log entries that retention has deleted,
    and imported states, which have no log.
    """
    import numpy as np

    from service.estimation.estimates import width
    from service.estimation.rules import Rules, rules_in_force
    from service.ingest.rebuild import rebuild
    from service.storage import open_store
    from service.storage.clock import system_clock

    chosen = settings(database_url)
    plan = chosen.plan()
    rules = Rules(plan.estimator, plan.timing, np.random.default_rng())
    url, archive = chosen.database_url.get_secret_value(), chosen.log_archive()
    with closing(open_store(url, width(plan.estimator), archive=archive)) as store:
        store.check()
        with store.begin(write=False) as tx:
            rules = rules_in_force(tx, rules)
            total = expected_pages(tx)
        with Progress(console=console) as progress:
            task = progress.add_task(f"rebuilding {plan.estimator.name} states", total=total)
            done = 0
            for n_pages in rebuild(store, rules):
                done += n_pages
                progress.update(task, completed=done)
    typer.echo(f"{counted(done, 'page')} rebuilt at {system_clock():%Y-%m-%d %H:%M:%S}Z")
