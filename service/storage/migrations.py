"""Migrate a database to the revision that this code needs, or raise unless it has that revision."""

from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.operations import Operations, ops
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.script.revision import RevisionError

from service import __version__
from service.model.errors import SchemaAhead, SchemaBehind, StoreUnavailable
from service.storage.shape import check_tables

NOT_OURS = (psycopg.errors.InsufficientPrivilege, psycopg.errors.DuplicateTable)
"""Errors of missing rights, and of tables that belong to another program."""

LOCK_TIMEOUT = "10s"
"""Maximum wait of a migration for a lock."""

BASE = "base"
"""Name of the state before the first revision, without tables."""
MOST_COUNTED = 1_000_000
"""Maximum number of pages that are counted before they are dropped."""

_INSTALLED = Path(__file__).parents[1] / "migrations"
_SOURCE = Path(__file__).parents[2] / "migrations"
SCRIPTS = _INSTALLED if _INSTALLED.is_dir() else _SOURCE
"""Folder of the revisions: in the installed package, or at the top of a source tree."""


def config(connection: sa.Connection | None = None) -> Config:
    """Return Alembic's configuration, without output."""
    configured = Config(attributes={"connection": connection})
    configured.set_main_option("script_location", str(SCRIPTS))
    configured.set_main_option("path_separator", "os")
    return configured


@cache
def scripts() -> ScriptDirectory:
    """Return the revisions; they are read once, so that an upgrade of the files has no effect."""
    read = ScriptDirectory.from_config(config())
    read.revision_map.heads  # noqa: B018 - reads them all
    return read


@cache
def head() -> str:
    """Return the revision that this code needs."""
    return scripts().get_current_head() or ""


@cache
def known() -> frozenset[str]:
    """Return the revisions of this code."""
    return frozenset(script.revision for script in scripts().walk_revisions())


def exists(revision: str) -> bool:
    """Return whether a downgrade may go to this revision; -1 and its like are relative."""
    return revision == BASE or revision[:1] == "-" or revision in known()


def current(connection: sa.Connection) -> str | None:
    """Return the revision of the database, None for a new one; raise `SchemaAhead`."""
    revision = MigrationContext.configure(connection).get_current_revision()
    if revision is not None and revision not in known():
        raise SchemaAhead(
            f"the database is at revision {revision}, which this version of Recrawl "
            f"({__version__}) does not know: a newer version has migrated it; install that one"
        )
    return revision


@cache
def fence() -> str:
    """Return a statement that fails (by a division by zero) under another revision than ours.

    The statement is the first of a transaction. It locks `alembic_version` until the end, against
    migrations, and against housekeeping that would drop the epoch that the transaction uses.
    """
    short = "1::smallint / count(*)::smallint"  # no other statement divides such numbers
    return f"SELECT {short} FROM alembic_version WHERE version_num = '{head()}'"


def upgrade(engine: sa.Engine, revision: str = "head", *, checks: bool = True) -> None:
    """Run the missing revisions in one transaction; if none is missing, check the tables.

    A caller that checks the store next leaves out the check here.
    """
    _run(engine, command.upgrade, revision, checks=checks)


def downgrade(engine: sa.Engine, revision: str) -> None:
    """Undo revisions down to `revision`; `base` undoes all and leaves no table of ours."""
    _run(engine, command.downgrade, revision)
    if revision == BASE:
        with engine.begin() as connection:
            if current(connection) is None:
                connection.execute(sa.text("DROP TABLE IF EXISTS alembic_version"))


def count_pages(engine: sa.Engine) -> int | None:
    """Return the number of pages at any revision, at most `MOST_COUNTED`; None without tables."""
    statement = f"SELECT count(*) FROM (SELECT 1 FROM pages LIMIT {MOST_COUNTED}) AS counted"
    with engine.connect() as connection:
        if current(connection) is None:
            return None
        n_pages: int = connection.execute(sa.text(statement)).scalar_one()
        return n_pages


class NoConnection(NamedTuple):
    """A connection without rows, on which nothing runs."""

    dialect: sa.Dialect

    def execute(self, _: Any) -> tuple[()]:
        """Return no rows."""
        return ()


def drops(engine: sa.Engine, revision: str) -> dict[str, int]:
    """Return the tables and columns that a downgrade drops, by name, with their rows.

    Rows of a column are those with a value. Those without any row are left out, and at most
    `MOST_COUNTED` are counted. A revision that is not below drops nothing: `downgrade` refuses it.
    """
    with engine.connect() as connection:
        try:
            below = tuple(scripts().iterate_revisions(current(connection), revision))
        except RevisionError:
            return {}
        dropped = list[tuple[str, str]]()

        def note(operation: ops.MigrateOperation) -> None:
            if isinstance(operation, ops.DropColumnOp):
                dropped.append((operation.table_name, operation.column_name))
            if isinstance(operation, ops.DropTableOp):
                dropped.append((operation.table_name, ""))

        with Operations.context(MigrationContext.configure(connection)) as noting:
            # the steps run nothing
            noting.invoke, noting.get_bind = note, lambda: NoConnection(connection.dialect)  # type: ignore[method-assign,assignment,return-value]
            for script in below:
                script.module.downgrade()
        whole = {table for table, column in dropped if not column}
        counts = {}
        for table, column in dropped:
            if not column or table not in whole:
                name = f"{table}.{column}" if column else table
                counts[name] = _count(connection, table, column)
    return {name: n for name, n in counts.items() if n}


def _count(connection: sa.Connection, table: str, column: str) -> int:
    rows = sa.select(sa.literal(1)).select_from(sa.table(table)).limit(MOST_COUNTED)
    if column:
        rows = rows.where(sa.column(column).is_not(None))
    n: int = connection.execute(
        sa.select(sa.func.count()).select_from(rows.subquery())
    ).scalar_one()
    return n


def _run(engine: sa.Engine, step: Any, revision: str, *, checks: bool = False) -> None:
    try:
        with engine.connect() as connection:
            before = current(connection)
            if revision == "head" and before == head():
                if checks:
                    check_tables(connection, head())
                return  # because Alembic executes the scripts of all revisions to find none missing
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
    """Lock out other migrations, then all writers behind the fence.

    Because writers queue behind a migration that waits for a lock, the wait is short.
    """
    connection.execute(sa.text("SET LOCAL lock_timeout = 0"))
    connection.execute(sa.text("SELECT pg_advisory_xact_lock(hashtext('recrawl.migrate'))"))
    connection.execute(sa.text(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'"))
    if sa.inspect(connection).has_table("alembic_version"):
        connection.execute(sa.text("LOCK TABLE alembic_version IN ACCESS EXCLUSIVE MODE"))


def check(connection: sa.Connection) -> None:
    """Raise `SchemaBehind` or `SchemaAhead` unless the database has the revision of this code."""
    revision = current(connection)
    if revision != head():
        raise SchemaBehind(
            f"the database is at revision {revision or 'none'}, this version of Recrawl needs "
            f"{head()}; run `recrawl migrate`"
        )


def check_whole(connection: sa.Connection) -> None:
    """Raise what `check` raises, or `SchemaDiffers` if the tables are not those of the revision."""
    check(connection)
    check_tables(connection, head())
