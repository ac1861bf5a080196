"""Floors on Postgres: the same rows by bare SQL, over libpq, on a copy of the same database.

Parameters are bytes that exist before the measurement, so that a floor's client costs nearly no
CPU. The columns of a table are read from a template's row. Connections are threads of two
processes, because libpq waits without the interpreter's lock.
"""

import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import psycopg
from numpy.typing import NDArray
from psycopg import pq

from benchmarks.http.clients import PROCESSES, own_pages
from benchmarks.http.data import TEMPLATES, key_of, url_of
from benchmarks.http.processes import Failed, together
from service.storage.postgres.words import PAGES, SHIFT

GOOD = (
    pq.ExecStatus.COMMAND_OK,
    pq.ExecStatus.TUPLES_OK,
    pq.ExecStatus.COPY_IN,
    pq.ExecStatus.COPY_OUT,
)
WRITTEN = (
    "last_crawl_at",
    "last_observed_at",
    "digest",
    "gone",
    "n_observations",
    "n_changes",
    "interval_factor",
    "estimate",
)
"""Columns of a page's state that a crawl changes."""
LOGGED = "page_id, observed_at, kind, changed, interval"
BIGINT, UUID = 20, 2950
DUE = (
    "last_crawl_at + "
    "least(interval_factor / nullif(crawl_rate::float8, 0), 36500) * interval '1 day'"
)
RATES = ", ".join(
    f"{name}[(pages.page_id & {PAGES - 1}) + 1] AS {name}"
    for name in ("change_rate", "crawl_rate", "crawl_probability")
)
SCHEDULED = (
    f"SELECT page_id, url, importance, change_rate, crawl_rate, crawl_probability, {DUE} "
    f"FROM (SELECT pages.page_id, url, importance, interval_factor, last_crawl_at, {RATES} "
    "FROM pages JOIN page_states USING (page_id) "
    f"JOIN schedule ON block = pages.page_id >> {SHIFT}"
)


class Bare:
    """One libpq connection with binary parameters and results."""

    def __init__(self, url: str) -> None:
        self.pgconn = pq.PGconn.connect(url.encode())
        if self.pgconn.status != pq.ConnStatus.OK:
            raise Failed(self.pgconn.error_message.decode())

    def checked(self, result: Any) -> Any:
        if result.status not in GOOD:
            raise Failed(result.error_message.decode())
        return result

    def run(self, statement: str, *parameters: bytes | None) -> Any:
        values = [*parameters]
        binary = [pq.Format.BINARY] * len(values)
        result = self.pgconn.exec_params(statement.encode(), values, None, binary, pq.Format.BINARY)
        return self.checked(result)

    def prepare(self, name: str, statement: str) -> None:
        self.checked(self.pgconn.prepare(name.encode(), statement.encode()))

    def prepared(self, name: str, *parameters: bytes | None) -> Any:
        values = [*parameters]
        binary = [pq.Format.BINARY] * len(values)
        return self.checked(
            self.pgconn.exec_prepared(name.encode(), values, binary, pq.Format.BINARY)
        )

    def command(self, statement: str) -> None:
        self.checked(self.pgconn.exec_(statement.encode()))

    def copy_in(self, statement: str, *blocks: bytes) -> None:
        self.command(statement)
        for block in blocks:
            self.pgconn.put_copy_data(block)
        self.pgconn.put_copy_end()
        while result := self.pgconn.get_result():
            self.checked(result)

    def copy_out(self, statement: str) -> int:
        """Read all rows, discard them and return their number."""
        self.command(statement)
        n_rows = 0
        while self.pgconn.get_copy_data(0)[0] > 0:
            n_rows += 1
        while result := self.pgconn.get_result():
            self.checked(result)
        return n_rows


def array(elements: NDArray[Any], oid: int) -> bytes:
    """Return a one-dimensional array of fixed width in Postgres' binary format."""
    rows = np.empty(len(elements), [("length", ">i4"), ("value", elements.dtype)])
    rows["length"] = elements.dtype.itemsize
    rows["value"] = elements
    return np.array([1, 0, oid, len(elements), 1], ">i4").tobytes() + rows.tobytes()


def copied(*columns: NDArray[Any]) -> bytes:
    """Return rows in the format of COPY … FROM STDIN (FORMAT BINARY)."""
    layout: list[tuple[str, Any]] = [("n", ">i2")]
    for i, column in enumerate(columns):
        layout += [(f"length{i}", ">i4"), (f"value{i}", column.dtype)]
    rows = np.empty(len(columns[0]), layout)
    rows["n"] = len(columns)
    for i, column in enumerate(columns):
        rows[f"length{i}"] = column.dtype.itemsize
        rows[f"value{i}"] = column
    return b"PGCOPY\n\xff\r\n\0" + bytes(8) + rows.tobytes() + b"\xff\xff"


def instant() -> int:
    """Return the present in Postgres' binary unit, µs since 2000."""
    return int((time.time() - 946_684_800) * 1e6)


def log_rows(page_id: NDArray[np.int64]) -> bytes:
    n = len(page_id)
    return copied(
        page_id.astype(">i8"),
        np.full(n, instant(), ">i8"),
        np.zeros(n, ">i2"),
        np.ones(n, ">i2"),
        np.ones(n, ">f8"),
    )


def types(connection: Bare) -> dict[str, str]:
    """Return the columns of page_states with their types in the catalogue."""
    result = connection.run(
        "SELECT attname::text, format_type(atttypid, NULL) FROM pg_attribute "
        "WHERE attrelid = 'page_states'::regclass AND attnum > 0 AND NOT attisdropped"
    )
    rows = range(result.ntuples)
    return {result.get_value(i, 0).decode(): result.get_value(i, 1).decode() for i in rows}


class Batches:
    """UPDATE … FROM unnest and COPY into the log in one commit, optionally after a read."""

    def __init__(self, n_items: int, *, by_url: bool = False, locked: bool = False) -> None:
        self.n_items = n_items
        self.by_url = by_url
        self.locked = locked

    def prepare(self, connection: Bare) -> tuple[bytes | None, ...]:
        """Return the values to write, a template's in every row."""
        column_types = types(connection)
        names = [name for name in WRITTEN if name in column_types]
        values = ", ".join(f"array_agg({n} ORDER BY page_id)" for n in names)
        result = connection.run(
            f"SELECT {values} FROM (SELECT * FROM page_states ORDER BY page_id "
            f"LIMIT {self.n_items}) AS templates"
        )
        sets = ", ".join(f"{n} = given.{n}" for n in names)
        arrays = ", ".join(f"${i}::{column_types[n]}[]" for i, n in enumerate(names, 2))
        connection.prepare(
            "write",
            f"UPDATE page_states SET {sets} FROM unnest($1::bigint[], {arrays}) "
            f"AS given (page_id, {', '.join(names)}) WHERE page_states.page_id = given.page_id",
        )
        read = ", ".join(f"array_agg({name})" for name in column_types)
        connection.prepare(
            "lock",
            f"SELECT {read} FROM (SELECT * FROM page_states WHERE page_id = ANY($1::bigint[]) "
            "ORDER BY page_id FOR NO KEY UPDATE) AS locked",
        )
        by_key = "SELECT array_agg(page_id) FROM pages WHERE key = ANY($1::uuid[])"
        connection.prepare("find", by_key)
        return tuple(result.get_value(0, i) for i in range(len(names)))

    def __call__(
        self, connection: Bare, page_id: NDArray[np.int64], values: tuple[bytes | None, ...]
    ) -> None:
        ids = array(np.sort(page_id).astype(">i8"), BIGINT)
        if self.by_url:
            keys = [key_of(url_of(page)) for page in page_id.tolist()]
            connection.prepared("find", array(np.array(keys, "V16"), UUID))
        connection.command("BEGIN")
        if self.locked:
            connection.prepared("lock", ids)
        connection.prepared("write", ids, *values)
        connection.copy_in(
            f"COPY observations ({LOGGED}) FROM STDIN (FORMAT BINARY)", log_rows(page_id)
        )
        connection.command("COMMIT")


class Singles:
    """One row updated and one inserted by one statement, which is one commit."""

    n_items = 1

    def prepare(self, connection: Bare) -> tuple[bytes | None, ...]:
        column_types = types(connection)
        names = [name for name in WRITTEN if name in column_types]
        result = connection.run(f"SELECT {', '.join(names)} FROM page_states WHERE page_id = 1")
        sets = ", ".join(f"{n} = ${i}::{column_types[n]}" for i, n in enumerate(names, 3))
        connection.prepare(
            "write",
            f"WITH done AS (UPDATE page_states SET {sets} WHERE page_id = $1::bigint) "
            f"INSERT INTO observations ({LOGGED}) VALUES ($1, $2::timestamptz, 0, 1, 1)",
        )
        return tuple(result.get_value(0, i) for i in range(len(names)))

    def __call__(
        self, connection: Bare, page_id: NDArray[np.int64], values: tuple[bytes | None, ...]
    ) -> None:
        at = instant().to_bytes(8, "big")
        connection.prepared("write", int(page_id[0]).to_bytes(8, "big"), at, *values)


class NewPages:
    """COPY of pages, and of page_states like a template's, in one commit."""

    def __init__(self, n_items: int, n_pages: int) -> None:
        self.n_items = n_items
        self.n_pages = n_pages

    def prepare(self, connection: Bare) -> list[int]:
        """Return the last page_id, from which new ones are counted."""
        connection.command(
            "CREATE TEMP TABLE template AS SELECT * FROM page_states WHERE page_id = 1"
        )
        names = ", ".join(name for name in types(connection) if name != "page_id")
        connection.prepare(
            "states",
            f"INSERT INTO page_states (page_id, {names}) "
            f"SELECT id, {names} FROM unnest($1::bigint[]) AS id, template",
        )
        last = connection.run("SELECT max(page_id) FROM pages").get_value(0, 0)
        return [int.from_bytes(last, "big")]

    def __call__(self, connection: Bare, page_id: NDArray[np.int64], last: list[int]) -> None:
        own = np.sort(page_id) + last[0]
        last[0] += self.n_pages
        lines = (
            f"{i}\t{key_of(url := url_of(i)).hex()}\t{url}\t1\t1\t2020-01-01Z\n"
            for i in own.tolist()
        )
        connection.command("BEGIN")
        connection.copy_in(
            "COPY pages (page_id, key, url, host_id, importance, created_at) FROM STDIN",
            "".join(lines).encode(),
        )
        connection.prepared("states", array(own.astype(">i8"), BIGINT))
        connection.command("COMMIT")


def writes(
    url: str,
    step: Any,
    clients: list[int],
    n_clients: int,
    n_pages: int,
    seconds: float,
    ready: Callable[[], object],
) -> float:
    """Repeat a step on one connection per client; return rows a second."""
    connections = [Bare(url) for _ in clients]
    values = [step.prepare(connection) for connection in connections]
    rates: list[float] = []
    failures: list[Failed] = []

    def repeat(client: int, connection: Bare, some: Any) -> None:
        rng = np.random.default_rng([client, 7])
        pages = own_pages(n_pages, client, n_clients)
        done, begun = 0, time.monotonic()
        try:
            while time.monotonic() - begun < seconds:
                step(connection, rng.choice(pages, step.n_items, replace=False), some)
                done += step.n_items
        except Failed as failure:
            failures.append(failure)
        rates.append(done / (time.monotonic() - begun))

    ready()
    threads = [
        threading.Thread(target=repeat, args=some)
        for some in zip(clients, connections, values, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return sum(rates)


def reads(
    url: str,
    epoch: int,
    limit: int,
    n_pages: int,
    clients: list[int],
    seconds: float,
    ready: Callable[[], object],
) -> float:
    """Fetch pages of the schedule and encode them; return rows a second."""
    between = " AND ".join(
        f"{table}.page_id BETWEEN %(first)s AND %(last)s" for table in ("pages", "page_states")
    )
    of_blocks = f"block BETWEEN %(first)s::bigint >> {SHIFT} AND %(last)s::bigint >> {SHIFT}"
    where = f"epoch = {epoch} AND {between} AND {of_blocks}"
    query = f"{SCHEDULED} WHERE {where}) AS read WHERE crawl_rate >= 0 ORDER BY page_id"
    rates: list[float] = []

    def repeat(client: int) -> None:
        rng = np.random.default_rng(client)
        with psycopg.connect(url, autocommit=True) as connection:
            done, begun = 0, time.monotonic()
            first = int(rng.integers(n_pages))
            while time.monotonic() - begun < seconds:
                ids = {"first": first, "last": first + limit - 1}
                rows = connection.execute(query, ids, binary=True, prepare=True).fetchall()
                msgspec.json.encode(rows)
                done += len(rows)
                first = (first + limit) % n_pages
            rates.append(done / (time.monotonic() - begun))

    threads = [threading.Thread(target=repeat, args=[client]) for client in clients]
    ready()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(rates)


class PostgresFloors:
    """The floors of each row; writing floors use the copy of the database."""

    def __init__(self, url: str, copy_url: str, n_pages: int) -> None:
        self.url = url
        self.copy_url = copy_url
        self.n_pages = n_pages

    def batches(self, n_items: int, n_clients: int, seconds: float, **kinds: bool) -> float:
        return self._writes(Batches(n_items, **kinds), n_clients, seconds)

    def singles(self, n_clients: int, seconds: float) -> float:
        return self._writes(Singles(), n_clients, seconds)

    def new_pages(self, n_items: int, n_clients: int, seconds: float) -> float:
        step = NewPages(min(n_items, (self.n_pages - TEMPLATES) // n_clients), self.n_pages)
        return self._writes(step, n_clients, seconds)

    def _writes(self, step: Any, n_clients: int, seconds: float) -> float:
        shares = _shares(n_clients)
        arguments = [(self.copy_url, step, s, n_clients, self.n_pages, seconds) for s in shares]
        return float(sum(together(writes, arguments)))

    def schedule(self, epoch: int, limit: int, n_clients: int, seconds: float) -> float:
        arguments = [(self.url, epoch, limit, self.n_pages, s, seconds) for s in _shares(n_clients)]
        return float(sum(together(reads, arguments)))

    def export(self, epoch: int) -> float:
        """Return the seconds of a COPY of the exported rows."""
        connection = Bare(self.url)
        begun = time.monotonic()
        rows = f"{SCHEDULED} WHERE epoch = {epoch}) AS read WHERE crawl_rate >= 0 ORDER BY page_id"
        connection.copy_out(f"COPY ({rows}) TO STDOUT")
        return time.monotonic() - begun

    def epoch(self) -> float:
        """Return the seconds of a COPY from the columns of an epoch and a COPY into a new table."""
        connection = Bare(self.copy_url)
        ids = np.arange(1, self.n_pages + 1, dtype=">i8")
        short = np.ones(self.n_pages, ">f4")
        rows = copied(np.ones(self.n_pages, ">i4"), short, ids, short, short)
        blocks = [rows[at : at + 1_000_000] for at in range(0, len(rows), 1_000_000)]
        begun = time.monotonic()
        connection.command("BEGIN")
        connection.copy_out(
            "COPY (SELECT page_id, importance, observability, min_crawl_rate, max_crawl_rate, "
            "pages.host_id, n_pings, recent_pings, pings_since, last_ping_at, real_pings, "
            "false_pings, trust, last_observed_at, last_interval, interval_factor, estimate "
            "FROM pages JOIN page_states USING (page_id)) TO STDOUT (FORMAT BINARY)"
        )
        connection.command(
            "CREATE TABLE fresh (epoch int, change_rate real, page_id bigint, crawl_rate real, "
            "urgency real)"
        )
        connection.copy_in(
            "COPY fresh (epoch, change_rate, page_id, crawl_rate, urgency) "
            "FROM STDIN (FORMAT BINARY)",
            *blocks,
        )
        connection.command("CREATE INDEX ON fresh (page_id)")
        connection.command("COMMIT")
        took = time.monotonic() - begun
        connection.command("DROP TABLE fresh")
        return took


def _shares(n_clients: int) -> list[list[int]]:
    return [list(range(k, n_clients, PROCESSES)) for k in range(min(PROCESSES, n_clients))]
