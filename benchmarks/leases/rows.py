"""Measurements of each row of the table, on a database of its own."""

import statistics
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.http import clients as http
from benchmarks.http.processes import Serving, Usage, postgres_database, serving
from benchmarks.http.rows import Figure
from benchmarks.leases import floor
from benchmarks.leases.clients import Crawling, Polling, Together
from benchmarks.leases.data import WIDTH, Fleet, fill, tidy
from service.storage import open_store

RUDE = {"host_delay_s": 0, "host_concurrency": 0}


@dataclass
class Bench:
    """A database filled with pages, and its service."""

    store: str
    url: str
    service: Serving
    options: Namespace

    def measured(self, work: http.Work, n_clients: int) -> tuple[list[http.Load], dict[str, float]]:
        """Run the rounds; return their loads and the cores they used."""
        rounds, used = [], []
        for _ in range(self.options.rounds):
            with http.started(self.service.port, work, n_clients, self.options.seconds) as group:
                begun = group.go()
                before = Usage.now(self.service, self.url)
                load = http.gathered(begun, group)
            after = Usage.now(self.service, self.url)
            rounds.append(load)
            used.append(after.since(before) | {"clients": load.cpu})
        return rounds, {name: statistics.median(u[name] for u in used) for name in used[0]}

    def floor(self, n_clients: int) -> float:
        """Return the rates of the floor of one crawl at a time; SQLite has no floor."""
        if self.store != "postgres":
            return 0.0
        return floor.singles(self.url, n_clients, self.options.seconds)

    def target(self, postgres: float | None, sqlite: float | None) -> float | None:
        return postgres if self.store == "postgres" else sqlite

    def figure(self, row: str, what: str, unit: str, rounds: list[float], **more: Any) -> Figure:
        return Figure(self.store, row, what, unit, rounds, **more)


@contextmanager
def prepared(
    store: str,
    fleet: Fleet,
    options: Namespace,
    folder: Path,
    say: Callable[[str], None],
    prepare: Callable[[str], None] | None = None,
    **settings: Any,
) -> Iterator[Bench]:
    """Fill a database with the pages and serve it."""
    begun = time.monotonic()
    with database(store, options, folder) as url:
        fill(url, fleet, datetime.now(UTC))
        if prepare:
            prepare(url)
        tidy(url)
        say(f"{store}: {len(fleet.crawl_rate):,} pages in {time.monotonic() - begun:.0f} s")
        with serving(url, folder, **settings) as service:
            yield Bench(store, url, service, options)


@contextmanager
def database(store: str, options: Namespace, folder: Path) -> Iterator[str]:
    """Create a database and yield its URL."""
    if store == "postgres":
        with postgres_database(options.postgres, f"recrawl_bench_leases_{options.pid}") as url:
            yield url
    else:
        path = folder / "leases.db"
        yield f"sqlite:///{path}"
        for file in folder.glob("leases.db*"):
            file.unlink()


def crawling(bench: Bench, wait_s: float = 0.0) -> list[Figure]:
    """Measure leases and reports in batches of 100."""
    n = bench.options.clients
    rounds, used = bench.measured(Crawling(100, wait_s), n)
    p99 = statistics.median(load.quantile_ms(0.99) for load in rounds)
    return [
        bench.figure(
            "batches",
            f"lease + report, 100 each, {n} workers",
            "crawls/s",
            [load.rate() for load in rounds],
            target=bench.target(10_000, 5_000),
            details=used,
            note=f"p99 of a request {p99:.0f} ms",
        )
    ]


def singles(bench: Bench) -> list[Figure]:
    """Measure single leases and reports: of one worker, which waits for each commit, and of all.

    The target applies to all workers together.
    """
    figures = []
    for n in (1, bench.options.clients):
        rounds, used = bench.measured(Crawling(1), n)
        floors = [bench.floor(n) for _ in range(bench.options.rounds)]
        p50 = statistics.median(load.quantile_ms(0.5) for load in rounds)
        figures.append(
            bench.figure(
                "single",
                f"lease + report, one each, {n} workers",
                "crawls/s",
                [load.rate() for load in rounds],
                floor=floors if all(floors) else [],
                target=bench.target(400, None) if n > 1 else None,
                details=used,
                note=f"p50 of a request {p50:.1f} ms",
            )
        )
    return figures


def together(bench: Bench) -> list[Figure]:
    """Measure leases that report the last crawl in the same request, one crawl at a time."""
    figures = []
    for n, target in ((1, 350), (bench.options.clients, 1_500)):
        for keyed in (False, True):
            rounds, used = bench.measured(Together(1, keyed=keyed), n)
            p50 = statistics.median(load.quantile_ms(0.5) for load in rounds)
            figures.append(
                bench.figure(
                    "together",
                    f"lease and report in one call, {n} workers{', with keys' if keyed else ''}",
                    "crawls/s",
                    [load.rate() for load in rounds],
                    target=bench.target(target, None),
                    details=used,
                    note=f"p50 of a request {p50:.1f} ms",
                )
            )
    return figures


def polling(bench: Bench) -> list[Figure]:
    """Measure requests while every host waits."""
    n = bench.options.clients
    rounds, used = bench.measured(Polling(), n)
    p99 = [load.quantile_ms(0.99) for load in rounds]
    rate = statistics.median(load.rate() for load in rounds)
    what = f"empty poll, {bench.options.waiting_hosts:,} hosts wait, {n} workers, p99"
    return [
        bench.figure(
            "empty",
            what,
            "ms",
            p99,
            at_most=True,
            target=20,
            details=used,
            note=f"{rate:,.0f} polls/s",
        )
    ]


def wait_an_hour(url: str) -> None:
    """Make every host wait an hour for its delay."""
    in_an_hour = "now() + interval '1 hour'"
    if not url.startswith("postgresql"):
        in_an_hour = "(unixepoch() + 3600) * 1000000"
    store = open_store(url, WIDTH)
    with store.begin() as tx:
        tx.run(  # type: ignore[attr-defined]
            f"UPDATE host_queues SET ready_at = {in_an_hour}, next_at = {in_an_hour}"
        )
    store.close()


RUDELY: dict[str, Callable[[Bench], list[Figure]]] = {
    "batches": crawling,
    "single": singles,
    "together": together,
}
"""Rows without politeness."""


def measure(
    store: str, options: Namespace, folder: Path, say: Callable[[str], None]
) -> Iterator[Callable[[], list[Figure]]]:
    """Yield a function for each requested row, to be called while its database exists."""
    rude = [name for name in RUDELY if name in options.rows]
    fleet = Fleet.half_due(options.pages, options.hosts)
    if rude:
        with prepared(store, fleet, options, folder, say, **RUDE) as bench:
            for name in rude:
                yield lambda name=name: RUDELY[name](bench)  # type: ignore[misc]
    if "polite" in options.rows:
        with prepared(store, fleet, options, folder, say) as bench:
            yield lambda: politely(bench)
    if "empty" in options.rows:
        waiting = Fleet.half_due(options.waiting_hosts, options.waiting_hosts)
        with prepared(store, waiting, options, folder, say, wait_an_hour) as bench:
            yield lambda: polling(bench)


def politely(bench: Bench) -> list[Figure]:
    """Measure leases and reports with a second between the crawls of a host."""
    (figure,) = crawling(bench, wait_s=2.0)
    figure.row, figure.target = "polite", None
    figure.what = f"… with a delay of 1 s, {bench.options.hosts:,} hosts"
    return [figure]
