"""Floors on SQLite: the same rows by bare sqlite3 on a copy of the same file, one connection."""

import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from itertools import count

import msgspec
import numpy as np

from benchmarks.http.data import TEMPLATES, key_of, url_of
from benchmarks.http.floors_postgres import WRITTEN
from service.storage.log.sqlite import STRETCH
from service.storage.sqlite.connections import prepare

LOG = (
    "INSERT INTO observations (stretch, page_id, observed_at, kind, changed, interval) "
    "VALUES (?, ?, ?, 0, 1, 1)"
)
SCHEDULED = (
    "SELECT schedule.page_id, url, importance, change_rate, crawl_rate, crawl_probability, "
    "last_crawl_at + CAST(interval_factor / crawl_rate * 86400e6 AS INTEGER) "
    "FROM schedule JOIN pages ON pages.page_id = schedule.page_id "
    "JOIN page_states ON page_states.page_id = schedule.page_id WHERE epoch = ?"
)
BLOCK = 10_000


def opened(path: str) -> sqlite3.Connection:
    """Return a connection with the durability and cache size of the service."""
    connection = sqlite3.connect(path)
    prepare(connection)
    return connection


def repeated(seconds: float, step: Callable[[], int]) -> float:
    """Return rows a second of a step repeated for some seconds, after a sync of the disk."""
    os.sync()
    done, begun = 0, time.monotonic()
    while time.monotonic() - begun < seconds:
        done += step()
    return done / (time.monotonic() - begun)


class SqliteFloors:
    """The floors of each row; writing floors use the copy of the file."""

    def __init__(self, path: str, copy_path: str, n_pages: int) -> None:
        self.path = path
        self.copy_path = copy_path
        self.n_pages = n_pages
        self.rng = np.random.default_rng(7)

    def batches(
        self,
        n_items: int,
        n_clients: int,  # noqa: ARG002
        seconds: float,
        *,
        by_url: bool = False,
        locked: bool = False,
    ) -> float:
        """Return rows a second of UPDATE and INSERT by executemany, one commit a batch."""
        connection = opened(self.copy_path)
        names = ", ".join(WRITTEN)
        rows = connection.execute(f"SELECT {names} FROM page_states LIMIT {n_items}").fetchall()
        update = f"UPDATE page_states SET ({names}) = ({_marks(WRITTEN)}) WHERE page_id = ?"
        marks = _marks(range(n_items))
        ((newest,),) = connection.execute("SELECT max(stretch) FROM observations")
        numbers = count(STRETCH * (newest + 1))

        def step() -> int:
            at = int(time.time() * 1e6)
            copies = self.n_pages - TEMPLATES
            chosen = TEMPLATES + 1 + np.sort(self.rng.choice(copies, n_items, replace=False))
            chosen = chosen.tolist()
            if by_url:
                keys = [key_of(url_of(page)) for page in chosen]
                find = f"SELECT page_id FROM pages WHERE key IN ({marks})"
                connection.execute(find, keys).fetchall()
            connection.execute("BEGIN IMMEDIATE")
            if locked:
                read = f"SELECT * FROM page_states WHERE page_id IN ({marks})"
                connection.execute(read, chosen).fetchall()
            new_rows = [(*row, page) for row, page in zip(rows, chosen, strict=True)]
            connection.executemany(update, new_rows)
            connection.executemany(LOG, [(next(numbers) // STRETCH, page, at) for page in chosen])
            connection.execute("COMMIT")
            return n_items

        try:
            return repeated(seconds, step)
        finally:
            connection.close()

    def singles(self, n_clients: int, seconds: float) -> float:
        """Return rows a second of commits that update one row and insert one."""
        return self.batches(1, n_clients, seconds)

    def new_pages(self, n_items: int, n_clients: int, seconds: float) -> float:  # noqa: ARG002
        """Return rows a second of INSERT into pages and, like a template's, into page_states."""
        connection = opened(self.copy_path)
        state = connection.execute("SELECT * FROM page_states WHERE page_id = 1")
        names = [column[0] for column in state.description]
        template = dict(zip(names, state.fetchone(), strict=True))
        add_states = f"INSERT INTO page_states ({', '.join(names)}) VALUES ({_marks(names)})"

        def step() -> int:
            (last,) = connection.execute("SELECT max(page_id) FROM pages").fetchone()
            ids = range(last + 1, last + 1 + n_items)
            pages = [(i, key_of(url := url_of(i)), url) for i in ids]
            states = [tuple((template | {"page_id": i}).values()) for i in ids]
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(
                "INSERT INTO pages (page_id, key, url, host_id, importance, created_at) "
                "VALUES (?, ?, ?, 1, 1, 0)",
                pages,
            )
            connection.executemany(add_states, states)
            connection.execute("COMMIT")
            return n_items

        try:
            return repeated(seconds, step)
        finally:
            connection.close()

    def schedule(self, epoch: int, limit: int, n_clients: int, seconds: float) -> float:  # noqa: ARG002
        """Return rows a second of pages of the schedule, fetched and encoded."""
        connection = opened(self.path)
        query = f"{SCHEDULED} AND schedule.page_id > ? ORDER BY schedule.page_id LIMIT {limit}"
        place = [0]

        def step() -> int:
            rows = connection.execute(query, [epoch, place[0]]).fetchall()
            msgspec.json.encode(rows)
            place[0] = rows[-1][0] if rows else 0
            return len(rows)

        try:
            return repeated(seconds, step)
        finally:
            connection.close()

    def export(self, epoch: int) -> float:
        """Return the seconds in which the exported rows are fetched."""
        connection = opened(self.path)
        begun = time.monotonic()
        rows = connection.execute(f"{SCHEDULED} ORDER BY schedule.page_id", [epoch])
        while rows.fetchmany(BLOCK):
            pass
        connection.close()
        return time.monotonic() - begun

    def epoch(self) -> float:
        """Return the seconds in which an epoch's columns are fetched and a new table is filled."""
        connection = opened(self.copy_path)
        new = [(1, page, 1.0, 1.0, 1.0) for page in range(1, self.n_pages + 1)]
        begun = time.monotonic()
        rows = connection.execute(
            "SELECT pages.page_id, importance, observability, min_crawl_rate, max_crawl_rate, "
            "pages.host_id, n_pings, recent_pings, pings_since, last_ping_at, real_pings, "
            "false_pings, trust, last_observed_at, last_interval, interval_factor, estimate "
            "FROM pages JOIN page_states ON page_states.page_id = pages.page_id"
        )
        while rows.fetchmany(BLOCK):
            pass
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(
            "CREATE TABLE fresh (epoch INTEGER, page_id INTEGER, change_rate, crawl_rate, "
            "crawl_probability, urgency, PRIMARY KEY (epoch, page_id)) WITHOUT ROWID"
        )
        names = "epoch, page_id, change_rate, crawl_rate, urgency"
        insert = f"INSERT INTO fresh ({names}) VALUES (?, ?, ?, ?, ?)"
        connection.executemany(insert, new)
        connection.execute("COMMIT")
        took = time.monotonic() - begun
        connection.execute("DROP TABLE fresh")
        connection.close()
        return took


def _marks(of: Sequence[object]) -> str:
    return ", ".join("?" * len(of))
