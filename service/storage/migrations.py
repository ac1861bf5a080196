"""Bring a database to the revision this code needs, or tell that it is not there."""

from functools import cache
from pathlib import Path
from typing import Any

import psycopg
import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from service import __version__
from service.model.errors import SchemaAhead, SchemaBehind, StoreUnavailable

NOT_OURS = (psycopg.errors.InsufficientPrivilege, psycopg.errors.DuplicateTable)
"""Rights that are missing, or tables of somebody else."""

LOCK_TIMEOUT = "10s"
"""Limit on each wait of a migration for a lock."""

_INSTALLED = Path(__file__).parents[1] / "migrations"
_SOURCE = Path(__file__).parents[2] / "migrations"
SCRIPTS = _INSTALLED if _INSTALLED.is_dir() else _SOURCE
"""The revisions: inside the installed package, or at the top of a source tree."""


def config(connection: sa.Connection | None = None) -> Config:
    """Return Alembic's configuration, its output kept quiet."""
    configured = Config(attributes={"connection": connection})
    configured.set_main_option("script_location", str(SCRIPTS))
    configured.set_main_option("path_separator", "os")
    return configured


@cache
def scripts() -> ScriptDirectory:
    """Read the revisions, once: what a running process needs does not change with its files."""
    read = ScriptDirectory.from_config(config())
    read.revision_map.heads  # noqa: B018 - reads them all
    return read


@cache
def head() -> str:
    """Return the revision this code needs."""
    return scripts().get_current_head() or ""


def current(connection: sa.Connection) -> str | None:
    """Return the revision the database is at, None for a new one; raises `SchemaAhead`."""
    found = MigrationContext.configure(connection).get_current_revision()
    known = {script.revision for script in scripts().walk_revisions()}
    if found is not None and found not in known:
        raise SchemaAhead(
            f"the database is at revision {found}, which this version of Recrawl ({__version__}) "
            "does not know: a newer one has migrated it; install that one"
        )
    return found


@cache
def fence() -> str:
    """Return a statement that fails (by a division by zero) under another revision than ours.

    It goes in front of a transaction's statements. Until the end it locks `alembic_version` against
    migrations, and against housekeeping that would drop the epoch by which the transaction goes.
    """
    return f"SELECT 1 / count(*) FROM alembic_version WHERE version_num = '{head()}'"


def upgrade(engine: sa.Engine, revision: str = "head") -> None:
    """Run the missing revisions, all in one transaction."""
    _run(engine, command.upgrade, revision)


def downgrade(engine: sa.Engine, revision: str) -> None:
    """Undo revisions down to the one named (`base` undoes all)."""
    _run(engine, command.downgrade, revision)


def _run(engine: sa.Engine, step: Any, revision: str) -> None:
    try:
        with engine.connect() as connection:
            current(connection)
        with engine.begin() as connection:
            if engine.dialect.name == "postgresql":
                keep_out(connection)
            step(config(connection), revision)
    except sa.exc.DatabaseError as error:
        ours = isinstance(error, sa.exc.ProgrammingError | sa.exc.IntegrityError)
        if ours and not isinstance(error.orig, NOT_OURS):
            raise
        reason = " ".join(str(error.orig).partition("\nLINE ")[0].split())
        name = engine.url.database
        raise StoreUnavailable(
            f"the database {name} cannot be opened or changed: {reason}"
        ) from error


def keep_out(connection: sa.Connection) -> None:
    """Lock out other migrations, then everybody who writes under the fence.

    Writers queue behind a migration that waits for a lock, so it does not wait for long.
    """
    connection.execute(sa.text("SET LOCAL lock_timeout = 0"))
    connection.execute(sa.text("SELECT pg_advisory_xact_lock(hashtext('recrawl.migrate'))"))
    connection.execute(sa.text(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'"))
    if sa.inspect(connection).has_table("alembic_version"):
        connection.execute(sa.text("LOCK TABLE alembic_version IN ACCESS EXCLUSIVE MODE"))


def check(connection: sa.Connection) -> None:
    """Raise `SchemaBehind` or `SchemaAhead` where the revision is not what this code needs."""
    found = current(connection)
    if found != head():
        raise SchemaBehind(
            f"the database is at revision {found or 'none'}, this version of Recrawl needs "
            f"{head()}; run `recrawl migrate`"
        )
