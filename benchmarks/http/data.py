"""A large set of pages: a thousand made by the service, the others copied from them in SQL.

The first `TEMPLATES` pages are registered, crawled and scheduled over HTTP, so the service itself
writes their rows. Every other page is a copy of the rows of a template under its own page_id, url
and key, with one entry of the log. This module names no other column than those three.
Clients use the copies only. Because the service chooses page_ids in its own order, only a copy's
URL equals `url_of` its page_id.
"""

import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from hashlib import blake2b

import httpx
import numpy as np
import psycopg

from service.model.urls import normalise
from service.storage import tables

TEMPLATES = 1_000
"""Number of template pages, one per host."""
URL_BYTES = 60
CRAWLS = 6
BLOCK = 100_000

STARTED = datetime.now(UTC).replace(microsecond=0)

CRAWLED_BEFORE = timedelta(hours=1)
"""Age of the last template's crawl; the templates' crawls are a second apart."""
MEASURED_BEFORE = timedelta(minutes=40)
"""Age of the first crawl that clients report."""
TICK = timedelta(milliseconds=25)
"""Time between a client's batches; tens of thousands of batches fit before the present."""


def url_of(page_id: int) -> str:
    """Return the 60-byte URL of a page, which is its own normal form."""
    return f"https://host{page_id % TEMPLATES:06}.example/articles/in/the/archive/{page_id:09}"


def key_of(url: str) -> bytes:
    """Return the key under which the service finds a normal URL."""
    return blake2b(url.encode(), digest_size=16).digest()


def copied_tables() -> list[str]:
    """Return the tables with one row a page, in the order of their foreign keys.

    The table of due pages is left out, because epochs fill it and few pages are due in a fleet
    that keeps up.
    """
    kept_apart = (tables.schedule, tables.observations, tables.due_pages)
    return [
        table.name
        for table in tables.metadata.sorted_tables
        if "page_id" in table.columns and table not in kept_apart
    ]


def make_templates(base: str) -> list[int]:
    """Register and crawl the templates over HTTP; return their page_ids, one per host."""
    rng = np.random.default_rng(1)
    ids = range(1, TEMPLATES + 1)
    importance = np.exp(rng.normal(np.log(10), 1.5, len(ids)))
    change_rate = np.exp(rng.normal(np.log(0.3), 1.2, len(ids)))
    normal = normalise(url_of(1))
    if len(normal.url) != URL_BYTES or normal.key != key_of(url_of(1)):
        raise RuntimeError("url_of and key_of differ from the service's URL and key; correct them")
    pages = [{"url": url_of(i), "importance": w} for i, w in zip(ids, importance, strict=True)]
    with httpx.Client(base_url=base, timeout=60) as client:
        page_ids = client.post("/pages", json=pages).raise_for_status().json()["page_ids"]
        if sorted(page_ids) != list(ids):
            raise RuntimeError("the database already has pages; use an empty one")
        for crawl in range(CRAWLS):
            at = STARTED - CRAWLED_BEFORE - timedelta(days=2 * (CRAWLS - 1 - crawl))
            changed = rng.random(len(ids)) < -np.expm1(-2 * change_rate)
            items = [
                {
                    "page_id": i,
                    "observed_at": (at + timedelta(seconds=i)).isoformat(),
                    "changed": bool(c),
                }
                for i, c in zip(page_ids, changed, strict=True)
            ]
            client.post("/observations", json=items).raise_for_status()
    return page_ids


def multiply_on_postgres(url: str, n_pages: int, templates: list[int]) -> None:
    """Copy the templates' rows until there are `n_pages` pages."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET session_replication_role = replica")  # no checks of foreign keys
        connection.execute("SET synchronous_commit = off")
        connection.execute(
            "CREATE UNLOGGED TABLE named (page_id bigint, template bigint, key uuid, url text)"
        )
        with connection.cursor().copy("COPY named FROM STDIN") as copy:
            for block in _blocks(n_pages, templates):
                lines = (f"{i}\t{t}\t{key.hex()}\t{url}\n" for i, t, key, url in block)
                copy.write("".join(lines))
        for statement in _copies("postgresql", "page_id", "key", "url"):
            connection.execute(statement)
        connection.execute("DROP TABLE named")
        connection.execute(
            "SELECT setval(pg_get_serial_sequence('pages', 'page_id'), max(page_id)) FROM pages"
        )
        connection.execute("VACUUM ANALYZE")
        connection.execute("CHECKPOINT")


def multiply_on_sqlite(path: str, n_pages: int, templates: list[int]) -> None:
    """Copy the templates' rows until there are `n_pages` pages."""
    connection = sqlite3.connect(path, isolation_level=None)
    for pragma in ("synchronous = OFF", "cache_size = -262144", "temp_store = MEMORY"):
        connection.execute(f"PRAGMA {pragma}")
    connection.execute(
        "CREATE TEMP TABLE named "
        "(page_id INTEGER PRIMARY KEY, template INTEGER, key BLOB, url TEXT)"
    )
    connection.execute("BEGIN")
    for block in _blocks(n_pages, templates):
        connection.executemany("INSERT INTO named VALUES (?, ?, ?, ?)", block)
    for statement in _copies("sqlite", "page_id", "key", "url"):
        connection.execute(statement)
    connection.execute("COMMIT")
    connection.execute("ANALYZE")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


def _blocks(n_pages: int, templates: list[int]) -> Iterator[list[tuple[int, int, bytes, str]]]:
    for first in range(TEMPLATES + 1, n_pages + 1, BLOCK):
        ids = range(first, min(first + BLOCK, n_pages + 1))
        yield [(i, templates[(i - 1) % TEMPLATES], key_of(url := url_of(i)), url) for i in ids]


def _copies(dialect: str, *own: str) -> Iterator[str]:
    """Yield the statements that copy a template's rows to each page of `named`."""
    for name in copied_tables():
        columns = tables.metadata.tables[name].columns.keys()
        values = (f"named.{c}" if c in own else f'a."{c}"' for c in columns)
        yield (
            f"INSERT INTO {name} ({_quoted(columns)}) SELECT {', '.join(values)} FROM named "
            f"JOIN {name} AS a ON a.page_id = named.template ORDER BY named.page_id"
        )
    columns = [
        column.name
        for column in tables.observations.columns
        if column.info.get("only", dialect) == dialect
    ]
    values = (f"named.{c}" if c == "page_id" else f'a."{c}"' for c in columns)
    yield (
        "WITH ranked AS (SELECT observations.*, row_number() OVER "
        "(PARTITION BY page_id ORDER BY observed_at DESC) AS place FROM observations), "
        "newest AS (SELECT * FROM ranked WHERE place = 1) "
        f"INSERT INTO observations ({_quoted(columns)}) SELECT {', '.join(values)} FROM named "
        "JOIN newest AS a ON a.page_id = named.template ORDER BY named.page_id"
    )


def _quoted(names: list[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)
