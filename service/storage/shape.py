"""The tables of a database, compared with those that this code needs.

A revision is a name, and tables may differ under one name: a database of an unreleased version, or
columns that somebody dropped. One query of the catalogue finds it out. The comparison is about
what breaks statements:

| in the database | |
| --- | --- |
| a table or a column is missing | refused |
| a column has a type of another kind (`KINDS`) | refused |
| a further column without a default that must not be NULL | refused, because no row can be added |
| another width of a type, further columns, tables and indexes | no difference |
"""

from collections.abc import Iterator
from functools import cache

import sqlalchemy as sa

from service.model.errors import SchemaDiffers
from service.storage.tables import metadata

POSTGRES = """
SELECT relname, attname, format_type(atttypid, NULL), attnotnull AND NOT atthasdef
    AND attidentity = ''
FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid
WHERE relkind IN ('r', 'p') AND pg_table_is_visible(pg_class.oid) AND relname = ANY(:names)
    AND attnum > 0 AND NOT attisdropped
"""
SQLITE = """
SELECT tables.name, columns.name, columns.type,
    columns."notnull" AND columns.dflt_value IS NULL AND NOT columns.pk
FROM sqlite_master AS tables, pragma_table_info(tables.name) AS columns
WHERE tables.type = 'table'
"""
KINDS = {
    "text": ("text", "character", "varchar", "char"),
    "whole number": ("smallint", "integer", "bigint"),
    "number": ("real", "double", "float", "numeric"),
    "time": ("timestamp",),
    "bytes": ("bytea", "blob"),
    "truth": ("boolean",),
    "JSON": ("json", "jsonb"),
}
"""First words of the types of each kind."""
SHOWN = 3
"""Maximum number of differences in an error."""

Shape = dict[str, dict[str, str]]
"""Kind of each column of each table."""


@cache
def kind_of(declared: str) -> str:
    """Return the kind of a type; another type is a kind of its own.

    >>> kind_of("DOUBLE PRECISION"), kind_of("character varying"), kind_of("uuid")
    ('number', 'text', 'uuid')
    """
    plain = declared.lower().partition("(")[0]
    is_array = plain.endswith("[]")
    word = plain.removesuffix("[]").split()[0] if plain else ""
    kind = next((kind for kind, words in KINDS.items() if word in words), word)
    return f"{kind}[]" if is_array else kind


@cache
def needed(dialect: str) -> Shape:
    """Return the tables that this code needs on a dialect."""
    compiler = sa.make_url(f"{dialect}://").get_dialect()()
    return {
        table.name: {
            column.name: kind_of(column.type.compile(compiler))
            for column in table.columns
            if column.info.get("only", dialect) == dialect
        }
        for table in metadata.tables.values()
    }


def check_tables(connection: sa.Connection, revision: str) -> None:
    """Raise `SchemaDiffers` unless the database has the tables that this code needs."""
    differences = list(_differences(connection))
    if differences:
        more = f" and {len(differences) - SHOWN} more" if len(differences) > SHOWN else ""
        shown = "; ".join(differences[:SHOWN])
        raise SchemaDiffers(
            f"the database is at revision {revision}, but its tables are not those of this "
            f"revision: {shown}{more}; undo the change, or restore a backup. "
            "Export a database of an unreleased version with that version, then import it anew"
        )


def _differences(connection: sa.Connection) -> Iterator[str]:
    dialect = connection.dialect.name
    wanted, stored = needed(dialect), dict[str, dict[str, tuple[str, bool]]]()
    if dialect == "postgresql":
        rows = connection.execute(sa.text(POSTGRES), {"names": list(wanted)})
    else:
        rows = connection.execute(sa.text(SQLITE))
    for table, column, declared, must in rows:
        stored.setdefault(table, {})[column] = kind_of(declared), bool(must)
    for table, columns in wanted.items():
        own = stored.get(table)
        if own is None:
            yield f"there is no table {table}"
            continue
        for column, kind in columns.items():
            if column not in own:
                yield f"{table} has no column {column}"
            elif own[column][0] != kind:
                yield f"{table}.{column} is of the kind {own[column][0]}, not {kind}"
        for column in own.keys() - columns.keys():
            if own[column][1]:
                yield f"{table} has a further column {column} that must have a value"
