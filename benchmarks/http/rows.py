"""Each row of the table: the service and its floor in turn, `rounds` times."""

import sqlite3
import statistics
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from shutil import copyfile
from typing import Any

import httpx
import psycopg

from benchmarks.http import clients, data
from benchmarks.http.floors_postgres import PostgresFloors
from benchmarks.http.floors_sqlite import SqliteFloors
from benchmarks.http.processes import (
    Failed,
    Serving,
    Usage,
    megabytes,
    postgres_database,
    reset_peak,
    serving,
)
from service.storage import open_store

MOST_BATCHES_PER_S = 160
MOST_SINGLES_PER_S = 15_000
MOST_NEW_PER_S = 12
"""Maximum requests prepared per second of a round: of batches, singles and new pages."""
EPOCH_WITHIN_S = 900
STILL_S = 2.0
ANY_WIDTH = 1
"""Width of a state for callers that read none."""
SETTINGS = {"admission": "all"}
"""Settings of the service: its pages are copies of a few, which must not wait."""


@dataclass
class Figure:
    """One row of the table, the median of several rounds."""

    store: str
    row: str
    what: str
    unit: str
    rounds: list[float]
    floor: list[float] = field(default_factory=list)
    target: float | None = None
    at_most: bool = False
    """True for a target that is a maximum."""
    ratio_target: float | None = None
    note: str = ""
    details: dict[str, Any] = field(default_factory=dict)
    failure: str = ""

    @property
    def value(self) -> float:
        return statistics.median(self.rounds) if self.rounds else float("nan")

    @property
    def ratio(self) -> float | None:
        """Return value over floor; both are rates, or both are seconds."""
        if not self.floor or not self.rounds:
            return None
        return self.value / statistics.median(self.floor)

    @property
    def met(self) -> bool | None:
        if self.failure:
            return False
        if self.target is None:
            return None
        good = self.value <= self.target if self.at_most else self.value >= self.target
        return good and (self.ratio_target is None or (self.ratio or 0) >= self.ratio_target)


@dataclass
class Bench:
    """A filled database with its service and its floors."""

    store: str
    url: str
    service: Serving
    http: httpx.Client
    floors: PostgresFloors | SqliteFloors
    n_pages: int
    options: Namespace
    ticks: int = 0
    """Seconds of simulated crawl time in use; no instant is used twice."""

    def figure(self, row: str, what: str, unit: str, rounds: list[float], **more: Any) -> Figure:
        return Figure(self.store, row, what, unit, rounds, **more)

    def on_postgres(self) -> bool:
        return self.store == "postgres"

    def target(self, postgres: float | None, sqlite: float | None) -> float | None:
        return postgres if self.on_postgres() else sqlite

    def crawls(self, n_clients: int, batch: int, seconds: float, *, by_url: bool) -> clients.Crawls:
        most = MOST_SINGLES_PER_S if batch == 1 else MOST_BATCHES_PER_S
        n_requests = max(2, int(seconds * most / n_clients))
        self.ticks += n_requests
        first = data.STARTED - data.MEASURED_BEFORE + data.TICK * (self.ticks - n_requests)
        if first + data.TICK * n_requests > datetime.now(UTC):
            raise Failed("no instants are left before now; choose fewer rounds or seconds")
        batch = min(batch, (self.n_pages - data.TEMPLATES) // n_clients)
        return clients.Crawls(self.n_pages, n_clients, batch, n_requests, first, by_url)

    def get(self, path: str, **query: Any) -> httpx.Response:
        return self.http.get(path, params=query).raise_for_status()

    def load(
        self, work: clients.Work, n_clients: int, seconds: float
    ) -> tuple[Any, dict[str, float]]:
        """Run a round; return its load and the cores it used."""
        with clients.started(self.service.port, work, n_clients, seconds) as group:
            begun = group.go()
            before = Usage.now(self.service, self.url)
            load = clients.gathered(begun, group)
        after = Usage.now(self.service, self.url)
        return load, after.since(before) | {"clients": load.cpu}

    def number_in_force(self) -> int:
        return int(self.get("/schedule", limit=1).json()["epoch"] or 0)

    def epoch(self) -> tuple[dict[str, Any], float, float]:
        """Run an epoch; return it, and the seconds to visibility from its request and its start."""
        requested_at = time.time()
        number = self.http.post("/epochs").raise_for_status().json()["epoch"]
        deadline = time.monotonic() + EPOCH_WITHIN_S
        while self.number_in_force() < number:
            epoch = self.get(f"/epochs/{number}").json()
            if epoch["status"] == "failed" or time.monotonic() > deadline:
                raise Failed(f"the epoch is {epoch['status']}: {epoch.get('reason')}")
            time.sleep(0.02)
        visible = time.time()
        epoch = self.get(f"/epochs/{number}").json()
        begun = datetime.fromisoformat(epoch["started_at"]).timestamp()
        return epoch, visible - requested_at, visible - begun

    def settle(self) -> None:
        """Wait until the work after an epoch is done: old schedules dropped, due pages queued."""
        deadline = time.monotonic() + EPOCH_WITHIN_S
        store = open_store(self.url, ANY_WIDTH)
        try:
            while True:
                with store.begin(write=False) as tx:
                    if tx.filled().epoch == tx.number_in_force():
                        return
                if time.monotonic() > deadline:
                    raise Failed("the epoch in force queued no due pages")
                time.sleep(0.1)
        finally:
            store.close()


@contextmanager
def prepared(
    store: str, n_pages: int, options: Namespace, folder: Path, say: Callable[[str], None]
) -> Iterator[Bench]:
    """Fill a database with `n_pages` pages, serve it, and publish one epoch."""
    begun = time.monotonic()
    floors: PostgresFloors | SqliteFloors
    with ExitStack() as stack:
        if store == "postgres":
            name = f"recrawl_bench_{options.pid}"
            url = stack.enter_context(postgres_database(options.postgres, name))
        else:
            path = f"{folder}/pages{n_pages}.db"
            url = f"sqlite:///{path}"
        with serving(url, folder, new=True, **SETTINGS) as service:
            templates = data.make_templates(service.base)
        if store == "postgres":
            data.multiply_on_postgres(url, n_pages, templates)
            copy = postgres_database(options.postgres, f"{name}_floor", name)
            floors = PostgresFloors(url, stack.enter_context(copy), n_pages)
        else:
            data.multiply_on_sqlite(path, n_pages, templates)
            floors = SqliteFloors(path, str(copyfile(path, f"{path}.floor")), n_pages)
        service = stack.enter_context(serving(url, folder, **SETTINGS))
        http = stack.enter_context(httpx.Client(base_url=service.base, timeout=60))
        bench = Bench(store, url, service, http, floors, n_pages, options)
        bench.epoch()
        say(f"{store}: {n_pages:,} pages filled in {time.monotonic() - begun:.0f} s")
        yield bench


def observations(bench: Bench) -> list[Figure]:
    """Measure batches of 1,000 observations by page_id."""
    figure = _batches(bench, by_url=False)
    figure.target, figure.ratio_target = bench.target(60_000, 50_000), bench.target(0.6, None)
    return [figure]


def by_url(bench: Bench) -> list[Figure]:
    """Measure batches of 1,000 observations by url."""
    figure = _batches(bench, by_url=True)
    figure.target = bench.target(45_000, 40_000)
    return [figure]


def _batches(bench: Bench, *, by_url: bool) -> Figure:
    options, floors = bench.options, bench.floors
    rates, bare, locked, used, p99 = [], [], [], [], []
    for _ in range(options.rounds):
        work = bench.crawls(options.clients, 1_000, options.seconds, by_url=by_url)
        load, usage = bench.load(work, options.clients, options.seconds)
        rates.append(load.rate())
        p99.append(load.quantile_ms(0.99))
        used.append(usage)
        n = work.batch
        bare.append(floors.batches(n, options.clients, options.seconds, by_url=by_url))
        locked.append(
            floors.batches(n, options.clients, options.seconds, by_url=by_url, locked=True)
        )
    name = "by_url" if by_url else "observations"
    what = f"POST /observations, {n:,} each{' by url' if by_url else ''}, {options.clients} clients"
    figure = bench.figure(name, what, "obs/s", rates, floor=bare, details=_median(used))
    figure.details |= {"p99_ms": statistics.median(p99), "floor_locked": locked}
    figure.note = f"{figure.value / statistics.median(locked):.2f} of a floor that reads states"
    return figure


def single(bench: Bench) -> list[Figure]:
    """Measure requests of one observation each."""
    options, floors = bench.options, bench.floors
    n = options.singles
    rates, bare, used, p50, p99 = [], [], [], [], []
    for _ in range(options.rounds):
        load, usage = bench.load(
            bench.crawls(n, 1, options.seconds, by_url=False), n, options.seconds
        )
        rates.append(load.rate())
        p50.append(load.quantile_ms(0.5))
        p99.append(load.quantile_ms(0.99))
        used.append(usage)
        bare.append(floors.singles(n, options.seconds))
    what, note = (
        f"POST /observations, one each, {n} clients",
        f"p50 {statistics.median(p50):.1f} ms",
    )
    return [
        bench.figure(
            "single",
            what,
            "obs/s",
            rates,
            floor=bare,
            details=_median(used),
            target=bench.target(4_000, 3_000),
            note=note,
        ),
        bench.figure("single", "… p99", "ms", p99, at_most=True, target=bench.target(40, None)),
    ]


def new_pages(bench: Bench) -> list[Figure]:
    """Measure the registration of new pages, in batches of 10,000."""
    options, floors = bench.options, bench.floors
    rates, bare, used = [], [], []
    n_clients, batch = options.clients, min(10_000, bench.n_pages // 2)
    first = bench.n_pages + 1
    for _ in range(options.rounds):
        n_requests = max(2, int(options.seconds * MOST_NEW_PER_S / n_clients))
        work = clients.NewPages(first, n_clients, batch, n_requests)
        first += n_requests * n_clients * batch
        load, usage = bench.load(work, n_clients, options.seconds)
        rates.append(load.rate())
        used.append(usage)
        bare.append(floors.new_pages(batch, n_clients, options.seconds))
    what = f"POST /pages, new, {batch:,} each, {n_clients} clients"
    return [
        bench.figure(
            "pages",
            what,
            "pages/s",
            rates,
            floor=bare,
            details=_median(used),
            target=bench.target(25_000, 40_000),
        )
    ]


def epoch(bench: Bench) -> list[Figure]:
    """Measure epochs of all pages: seconds and peak memory."""
    took, from_requests, peaks, bare, stages, used = [], [], [], [], [], []
    for _ in range(bench.options.rounds):
        bench.settle()
        reset_peak(bench.service.worker)
        before = Usage.now(bench.service, bench.url)
        done, from_request, from_start = bench.epoch()
        used.append(Usage.now(bench.service, bench.url).since(before))
        took.append(from_start)
        from_requests.append(from_request)
        peaks.append(megabytes(bench.service.worker, "VmHWM"))
        stages.append(done["seconds"])
        bare.append(bench.floors.epoch())
    what = f"epoch of {bench.n_pages:,} pages, load to visible"
    parts = ", ".join(f"{name} {value:.2f}" for name, value in _median(stages).items())
    details = _median(used) | {"stages": stages, "from_request_s": from_requests}
    return [
        bench.figure(
            "epoch",
            what,
            "s",
            took,
            floor=bare,
            target=bench.target(4, 8),
            at_most=True,
            details=details,
            note=f"{parts}; {statistics.median(from_requests):.2f} from POST",
        ),
        bench.figure(
            "epoch",
            "… peak RSS",
            "MB",
            peaks,
            target=bench.target(700, None),
            at_most=True,
        ),
    ]


def disk(bench: Bench) -> list[Figure]:
    """Measure the bytes a page with two epochs and one log entry a page."""
    bench.epoch()
    bench.epoch()
    sizes = settled_sizes(bench)
    what = "disk per page: 60-byte url, 1 log entry, 2 epochs"
    note = ", ".join(f"{name} {size / bench.n_pages:.0f}" for name, size in sizes.items())
    return [
        bench.figure(
            "disk",
            what,
            "bytes",
            [sum(sizes.values()) / bench.n_pages],
            note=note,
            at_most=True,
            target=bench.target(500, 500),
        )
    ]


def settled_sizes(bench: Bench) -> dict[str, int]:
    """Return the sizes once they are stable: old schedules are dropped after a new epoch."""
    current, since = sizes_of(bench), time.monotonic()
    while time.monotonic() - since < STILL_S:
        time.sleep(STILL_S / 10)
        if (now := sizes_of(bench)) != current:
            current, since = now, time.monotonic()
    return current


def sizes_of(bench: Bench) -> dict[str, int]:
    """Return the bytes on disk, by table with indexes on Postgres, by part of SQLite's files."""
    if bench.on_postgres():
        with psycopg.connect(bench.url) as connection:
            tables = connection.execute(
                "SELECT regexp_replace(relname, '_([0-9_]+|default)$', ''), "
                "sum(pg_total_relation_size(oid))::bigint FROM pg_class WHERE relkind = 'r' "
                "AND relnamespace = 'public'::regnamespace GROUP BY 1 ORDER BY 2 DESC"
            ).fetchall()
        return {name: size for name, size in tables if size > bench.n_pages}
    path = Path(bench.url.removeprefix("sqlite:///"))
    connection = sqlite3.connect(path, timeout=10)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    (log,) = connection.execute(
        "SELECT sum(pgsize) FROM dbstat WHERE name = 'observations'"
    ).fetchone()
    connection.close()
    wal = path.with_name(f"{path.name}-wal")
    return {
        "observations": log,
        "rest of the file": path.stat().st_size - log,
        "wal": wal.stat().st_size if wal.exists() else 0,
    }


def schedule(bench: Bench) -> list[Figure]:
    """Measure reads of the schedule in pages of 1,000."""
    options, floors = bench.options, bench.floors
    n, number = options.readers, bench.number_in_force()
    work = clients.Pages(1_000, _places(bench, n))
    rates, bare, used, p99 = [], [], [], []
    for _ in range(options.rounds):
        load, usage = bench.load(work, n, options.seconds)
        rates.append(load.rate())
        p99.append(load.quantile_ms(0.99))
        used.append(usage)
        bare.append(floors.schedule(number, 1_000, n, options.seconds))
    return [
        bench.figure(
            "schedule",
            f"GET /schedule, 1,000 each, {n} clients",
            "rows/s",
            rates,
            floor=bare,
            target=150_000,
            details=_median(used),
        ),
        bench.figure("schedule", "… p99", "ms", p99, target=30, at_most=True),
    ]


def _places(bench: Bench, n_clients: int) -> tuple[str, ...]:
    """Return cursors at even distances."""
    cursors = [""]
    while True:
        place = {"cursor": cursors[-1]} if cursors[-1] else {}
        tail = bench.get("/schedule", limit=10_000, **place).content[-300:]
        match = clients.CURSOR.search(tail)
        if match is None or not match[1]:
            break
        cursors.append(match[1].decode())
    return tuple(cursors[k * len(cursors) // n_clients] for k in range(n_clients))


def export(bench: Bench) -> list[Figure]:
    """Measure an export of the whole schedule as one NDJSON stream."""
    number, floors = bench.number_in_force(), bench.floors
    took, grown, bare, used = [], [], [], []
    for _ in range(bench.options.rounds):
        reset_peak(bench.service.server)
        resident = megabytes(bench.service.server, "VmRSS")
        before = Usage.now(bench.service, bench.url)
        begun, n_lines = time.monotonic(), 0
        accept = {"Accept": "application/x-ndjson", "Accept-Encoding": "identity"}
        with bench.http.stream("GET", "/schedule", headers=accept) as s:
            for block in s.iter_raw():
                n_lines += block.count(b"\n")
        took.append(time.monotonic() - begun)
        used.append(Usage.now(bench.service, bench.url).since(before))
        grown.append(megabytes(bench.service.server, "VmHWM") - resident)
        if n_lines < bench.n_pages:
            raise Failed(f"{n_lines} lines of {bench.n_pages}")
        bare.append(floors.export(number))
    what = f"NDJSON export of {bench.n_pages:,} pages"
    return [
        bench.figure(
            "export", what, "s", took, floor=bare, target=6, at_most=True, details=_median(used)
        ),
        bench.figure("export", "… RSS growth", "MB", grown, target=60, at_most=True),
    ]


def _median(rounds: list[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(r[name] for r in rounds) for name in rounds[0]}


Row = Callable[[Bench], list[Figure]]

ROWS: dict[str, Row] = {
    "epoch": epoch,
    "disk": disk,
    "schedule": schedule,
    "export": export,
    "observations": observations,
    "by_url": by_url,
    "single": single,
    "pages": new_pages,
}
"""Rows measured one after the other on the same database."""
