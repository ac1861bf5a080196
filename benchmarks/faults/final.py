"""Read the database after a campaign, without the service."""

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

import psycopg

from benchmarks.faults.verdicts import Final, Logged, State

Query = Callable[[str], Sequence[Any]]
LOG = "SELECT page_id, {observed_at}, interval IS NOT NULL, changed = 1 FROM observations"
STATES = "SELECT page_id, n_observations, n_changes, {last_crawl_at} FROM page_states"
EPOCHS = "SELECT epoch, n_pages FROM epochs WHERE status = 'published'"
PAGES = "SELECT url, page_id FROM pages"
BULK_CHANGES = """
SELECT coalesce(sum(n_changes), 0) FROM page_states
JOIN pages ON pages.page_id = page_states.page_id WHERE url LIKE 'https://bulk%'
"""


def read(urls: Sequence[str]) -> Final:
    """Return the rows of all databases that the checks compare with the history."""
    each = [read_one(url) for url in urls]
    return Final(
        crawls=[crawl for one in each for crawl in one.crawls],
        pings=[ping for one in each for ping in one.pings],
        states={page: state for one in each for page, state in one.states.items()},
        epochs={epoch: n for one in each for epoch, n in one.epochs.items()},
        pages={page_url: page for one in each for page_url, page in one.pages.items()},
    )


def read_one(url: str) -> Final:
    """Return the rows of one database."""
    if url.startswith("postgresql"):
        with psycopg.connect(url) as connection:
            return final(
                lambda statement: connection.execute(statement).fetchall(),
                "(extract(epoch FROM {0}) * 1000000)::bigint",
            )
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file:
        return final(lambda statement: file.execute(statement).fetchall(), "{0}")


def n_changes(urls: Sequence[str]) -> int:
    """Return the number of changes of the pages that are reported in bursts."""
    return sum(map(n_changes_of_one, urls))


def n_changes_of_one(url: str) -> int:
    """Return that number of one database."""
    if url.startswith("postgresql"):
        with psycopg.connect(url) as connection:
            return int(connection.execute(BULK_CHANGES).fetchall()[0][0])
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file:
        return int(file.execute(BULK_CHANGES).fetchall()[0][0])


def final(query: Query, instant: str) -> Final:
    """Return the rows of the tables; `instant` is SQL that turns a column into µs since 1970."""
    names = {name: instant.format(name) for name in ("observed_at", "last_crawl_at")}
    log = LOG.format(**names)
    return Final(
        crawls=[
            Logged(page, at, bool(evidence), bool(changed))
            for page, at, evidence, changed in query(f"{log} WHERE kind = 0")
        ],
        pings=[(page, at) for page, at, *_ in query(f"{log} WHERE kind = 1")],
        states={page: State(*state) for page, *state in query(STATES.format(**names))},
        epochs=dict(query(EPOCHS)),
        pages=dict(query(PAGES)),
    )
