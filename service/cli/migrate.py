"""`recrawl migrate`: the schema of the database."""

from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.cli.options import DatabaseUrl, settings

if TYPE_CHECKING:
    from sqlalchemy import Engine

Down = Annotated[
    str | None, typer.Option(help="Go back to this revision instead (`base`: drop everything)")
]


def migrate(database_url: DatabaseUrl = None, down: Down = None) -> None:
    """Bring the database to the schema this version needs."""
    from service.estimation.estimates import width
    from service.storage import migrations, open_store

    chosen = settings(database_url)
    url = chosen.database_url.get_secret_value()
    opened: Any = open_store(url, width(chosen.plan().estimator))
    with closing(opened) as store:
        if down is None:
            migrations.upgrade(store.engine)
        else:
            _downgrade(store.engine, down)
        with store.engine.connect() as connection:
            revision = migrations.current(connection)
    typer.echo(f"the database is at revision {revision or 'base'}")


def _downgrade(engine: "Engine", revision: str) -> None:
    from alembic.util import CommandError

    from service.storage import migrations

    if not revision:
        raise typer.BadParameter("name a revision, or base", param_hint="--down")
    try:
        migrations.downgrade(engine, revision)
    except CommandError as error:
        raise typer.BadParameter(str(error), param_hint="--down") from error
