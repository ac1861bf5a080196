"""Kill workers and servers at random, then check pages, host delays and crawl rates.

Pages have known rates in three classes, and each host has equally many of each class. The servers
are real: two on Postgres, where one is killed twice. The workers are real too: one is killed at
short random intervals and another started. A worker logs the instant of a fetch before it reports
the crawl. The checks count logged fetches, because hosts receive them with or without a report.
"""

import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import groupby, pairwise
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

import numpy as np
import psycopg
from numpy.typing import NDArray

from benchmarks.http.processes import free_port, serving
from benchmarks.leases.data import Fleet, fill, migrate
from support import mortal_worker
from support.mortal_worker import TTL_S, Acknowledged, Crawl, read

CLASSES = np.array([1.0, 2.0, 4.0])
"""Crawl periods of the three classes of pages, multiples of `PERIOD_S`."""
N_WORKERS, N_HOSTS, PAGES_PER_HOST = 4, 20, 6
PERIOD_S = 4.0
"""Shortest time between crawls of a page; other classes have twice or four times that."""
DELAY_S = 0.1
SETTINGS = {"host_delay_s": DELAY_S, "host_concurrency": 1}
"""Settings of one lease at a time: a host's next crawl follows a delay after the last report."""
FILLED_WITHIN_S = 4.0
SETTLES_S = 2.0 * TTL_S


@dataclass
class Workers:
    """Processes that are killed one after the other and replaced."""

    ports: list[int]
    log: Path
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    n_killed: int = 0

    def start(self, n: int) -> None:
        for _ in range(n):
            name = f"w{self.n_killed + len(self.processes)}"
            command = [sys.executable, mortal_worker.__file__, name, str(self.log)]
            self.processes.append(subprocess.Popen([*command, *map(str, self.ports)]))

    def kill(self, position: int) -> None:
        process = self.processes.pop(position)
        process.kill()
        process.wait()
        self.n_killed += 1

    def kill_all(self) -> None:
        while self.processes:
            self.kill(0)


@dataclass
class Server:
    """A server that restarts on its port after a kill."""

    url: str
    folder: Path
    port: int
    pid: int = 0
    running: ExitStack = field(default_factory=ExitStack)

    def start(self) -> None:
        migrated = serving(self.url, self.folder, new=True, port=self.port, **SETTINGS)
        self.pid = self.running.enter_context(migrated).server

    def restart(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        self.running.close()
        self.start()


def fleet(n_hosts: int, period_s: float) -> Fleet:
    """Return pages that fall due for the first time evenly over their first period."""
    rng = np.random.default_rng(1)
    of_class = n_hosts * PAGES_PER_HOST // len(CLASSES)
    period = np.repeat(CLASSES, of_class) * period_s / 86_400
    waits = np.concatenate([rng.permutation(of_class) for _ in CLASSES]) / of_class
    return Fleet(n_hosts, 1 / period, (1 - waits) * period)


class Outcome(NamedTuple):
    """Counts of what must not happen, and of crawls made and scheduled."""

    wrong: dict[str, int]
    n_crawls: int
    scheduled: float


def killed(url: str, folder: Path, n_servers: int, *, seconds: float, late_s: float) -> Outcome:
    """Kill processes for some seconds, wait until all pages are crawled, and return the counts."""
    pages, log, draw = fleet(N_HOSTS, PERIOD_S), folder / "crawls.log", random.Random(1)
    migrate(url, datetime.now(UTC))
    ports = [free_port() for _ in range(n_servers)]
    servers, workers = [Server(url, folder, port) for port in ports], Workers(ports, log)
    with ExitStack() as stack:
        for server in servers:
            server.start()
            stack.callback(server.running.close)
        stack.callback(workers.kill_all)
        begins = datetime.now(UTC) + timedelta(seconds=FILLED_WITHIN_S)
        fill(url, pages, begins)
        workers.start(N_WORKERS)
        harass(workers, servers, begins.timestamp(), seconds, draw)
        time.sleep(SETTLES_S)
        workers.kill_all()
        ended = time.time()
    logged, last_crawl, waits = recorded(url)
    crawls, acknowledged = read(log)
    ends = begins.timestamp() + seconds
    period_s = 86_400 / pages.crawl_rate
    wrong = {
        "hosts crawled within their delay": pressed(crawls),
        "pages leased twice at a time": leased_twice(crawls, acknowledged),
        "acknowledged reports that are lost": lost(crawls, acknowledged, logged),
        "pages unaccounted for": int(
            ((last_crawl + 1.05 * period_s + late_s < ended) & ~waits).sum()
        ),
    }
    n_crawls = sum(begins.timestamp() < crawl.at <= ends for crawl in crawls)
    return Outcome(wrong, n_crawls, float((seconds / period_s).sum()))


def harass(
    workers: Workers, servers: list[Server], begins: float, seconds: float, draw: random.Random
) -> None:
    """Kill workers often, and each of two servers once."""
    time.sleep(max(0.0, begins - time.time()))
    n_workers, restarts = len(workers.processes), list[threading.Thread]()
    while (passed := time.time() - begins) < seconds:
        n = len(restarts)
        if len(servers) > 1 and n < 2 and passed > seconds * (n + 1) / 3:
            restarts.append(threading.Thread(target=servers[n].restart))
            restarts[n].start()
        workers.kill(draw.randrange(n_workers))
        workers.start(1)
        time.sleep(draw.uniform(0.2, 1.0))
    for restart in restarts:
        restart.join()


def pressed(crawls: list[Crawl]) -> int:
    """Return the number of crawls too soon after another crawl of their host."""
    by_host = groupby(sorted(crawls, key=attrgetter("host", "at")), attrgetter("host"))
    gaps = (b.at - a.at for _, of_host in by_host for a, b in pairwise(of_host))
    return sum(gap < DELAY_S for gap in gaps)


def leased_twice(crawls: list[Crawl], acknowledged: list[Acknowledged]) -> int:
    """Return the number of crawls of a page under one lease while another was in force."""
    reported = {entry.lease for entry in acknowledged}
    by_page = groupby(sorted(crawls, key=attrgetter("page_id", "at")), attrgetter("page_id"))
    return sum(
        b.lease == a.lease or (b.at < a.expires_at and a.lease not in reported)
        for _, of_page in by_page
        for a, b in pairwise(of_page)
    )


def lost(
    crawls: list[Crawl], acknowledged: list[Acknowledged], logged: set[tuple[int, int]]
) -> int:
    """Return the number of acknowledged reports that are missing in the log."""
    page_of = {crawl.lease: crawl.page_id for crawl in crawls}
    return sum(
        (page_of[entry.lease], round(entry.at * 1e6)) not in logged for entry in acknowledged
    )


def recorded(url: str) -> tuple[set[tuple[int, int]], NDArray[np.float64], NDArray[np.bool_]]:
    """Return page and µs of all crawls in the log, the last crawl of each page, and which wait.

    A page whose lease a killed worker has lost waits as long as after a crawl without an answer.
    """
    crawls, last, waits = (
        "SELECT page_id, {at} FROM observations WHERE kind = 0",
        "SELECT {at} FROM page_states ORDER BY page_id",
        """SELECT n_unfinished FROM page_states LEFT JOIN due_pages
        ON due_pages.page_id = page_states.page_id ORDER BY page_states.page_id""",
    )
    if url.startswith("postgresql"):
        micro = "(extract(epoch FROM {}) * 1000000)::bigint"
        with psycopg.connect(url) as connection:
            rows = connection.execute(crawls.format(at=micro.format("observed_at"))).fetchall()
            states = connection.execute(last.format(at=micro.format("last_crawl_at"))).fetchall()
            counts = connection.execute(waits).fetchall()
    else:
        file = sqlite3.connect(url.removeprefix("sqlite:///"))
        rows = file.execute(crawls.format(at="observed_at")).fetchall()
        states = file.execute(last.format(at="last_crawl_at")).fetchall()
        counts = file.execute(waits).fetchall()
        file.close()
    waiting = np.array([n is not None for (n,) in counts], np.bool_)
    return {(page, at) for page, at in rows}, np.array([at for (at,) in states]) / 1e6, waiting
