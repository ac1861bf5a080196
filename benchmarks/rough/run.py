"""One run: the service and a crawler as their users start them, on a rough web or a calm one."""

import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from benchmarks.faults.deployment import migrate
from benchmarks.http.processes import Failed, free_port, postgres_database, serving
from benchmarks.rough.server import Site
from benchmarks.rough.world import CRAWL_EVERY_S, DAY_S, made
from recrawl_client import Client

Crawler = Literal["example", "scrapy", "asyncio"]
Store = Literal["sqlite", "postgres"]

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
LOOK_EVERY_S = 1.0
"""Time between two looks at the service, seconds."""
EPOCH_EVERY_S = 3.0
TRACEBACK = 2_000
"""Characters of a crawler's traceback that the report quotes."""
ENDS_WITHIN_S = 60.0
"""Maximum time from the signal to the end of a crawler, which finishes its requests, seconds."""
NO_PROXIES = {"http_proxy", "https_proxy", "all_proxy", "no_proxy"}
REQUESTS = re.compile(r'^recrawl_requests_total\{.*status="(\d+)".*\} (\S+)', re.MULTILINE)
GRANTED = re.compile(r'^recrawl_leases_total\{outcome="granted"\} (\S+)', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Plan:
    """The choices of a run."""

    seconds: float
    store: Store
    crawler: Crawler
    seed: int
    server: str
    """Address of Postgres."""
    folder: Path
    """Folder for databases and logs."""


@dataclass(frozen=True, slots=True)
class Look:
    """The state of the service at an instant."""

    at: float
    blocked_until: dict[str, float]
    """End of the pause of each blocked host, by address; seconds since the start."""
    n_granted: int
    """Number of leases so far."""


@dataclass
class Played:
    """What happened in a run."""

    site: Site
    seconds: float
    looks: list[Look] = field(default_factory=list)
    answers: Counter[str] = field(default_factory=Counter)
    """Answers of the service by status."""
    n_leased: int = 0
    """Leases after the end of the crawler."""
    n_junk: int = 0
    """Addresses that the extractor of links registered."""
    service_log: str = ""
    faults: list[str] = field(default_factory=list)
    """What the crawler should not have done."""


def play(plan: Plan, *, rough: bool) -> Played:
    """Run the crawler for the time of a plan, and return what happened."""
    name = "rough" if rough else "calm"
    folder = plan.folder / name
    folder.mkdir(parents=True)
    site = Site(made(plan.seed, plan.seconds, rough=rough), free_port())
    played = Played(site, plan.seconds)
    settings: dict[str, Any] = {
        "bandwidth": len(site.world) / CRAWL_EVERY_S * DAY_S,
        "epoch_interval_s": EPOCH_EVERY_S,
    }
    with database(plan, folder) as url:
        migrate(url)
        with (
            serving(url, folder, **settings) as service,
            Client(service.base) as client,
            site.serving(),
        ):
            client.register_many(site.urls())
            with crawling(plan.crawler, service.base, folder, played):
                _follow(played, client, extract=plan.crawler != "scrapy")
            _look_back(played, client)
    played.service_log = (folder / "service.log").read_text(errors="replace")
    return played


@contextmanager
def database(plan: Plan, folder: Path) -> Iterator[str]:
    """Return the URL of a new database, which a block may use."""
    if plan.store == "sqlite":
        yield f"sqlite:///{folder / 'recrawl.db'}"
        return
    with postgres_database(plan.server, f"rough_{os.getpid()}_{time.time_ns() // 10**6}") as url:
        yield url


def command(crawler: Crawler, base: str) -> list[str]:
    """Return the command of a shipped crawler, as the documentation has it."""
    if crawler == "scrapy":
        spider = EXAMPLES / "spider.py"
        options = ["-s", f"RECRAWL_URL={base}", "-s", "LOG_LEVEL=WARNING"]
        return ["-m", "scrapy", "runspider", str(spider), *options]
    name = "crawler.py" if crawler == "example" else "async_crawler.py"
    return [str(EXAMPLES / name), base]


@contextmanager
def crawling(crawler: Crawler, base: str, folder: Path, played: Played) -> Iterator[None]:
    """Run a crawler in a process of its own; ask it to end, and write down if it does not."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if name.lower() not in NO_PROXIES and not name.startswith("RECRAWL_")
    }
    with (folder / "crawler.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-u", *command(crawler, base)],
            env=environment | {"PYTHONPATH": str(ROOT)},
            cwd=folder,
            stdout=log,
            stderr=log,
        )
    try:
        played.site.start()
        yield
        if process.poll() is not None:
            played.faults.append(f"the crawler ended early, with status {process.returncode}")
            return
        process.send_signal(signal.SIGINT)
        try:
            if status := process.wait(ENDS_WITHIN_S):
                played.faults.append(f"the crawler ended with status {status}")
        except subprocess.TimeoutExpired:
            played.faults.append(f"the crawler ran on for {ENDS_WITHIN_S:.0f} s after SIGINT")
    finally:
        process.kill()
        process.wait()
        text = (folder / "crawler.log").read_text(errors="replace")
        _, found, rest = text.partition("Traceback")
        if found:
            played.faults.append(f"traceback of the crawler: {found}{rest[:TRACEBACK]}")


def _follow(played: Played, client: Client, *, extract: bool) -> None:
    """Look at the service until the run is over; register the links of traps, if they count.

    A crawler that reads no links has an extractor of links beside it.
    """
    site, known, n_read = played.site, set[str](), 0
    while (now := site.now()) < played.seconds:
        played.looks.append(look(site, client))
        read = site.log[n_read:]
        n_read += len(read)
        if extract:
            links = [
                site.url(site.world.hosts[request.host], link)
                for request in read
                for link in request.links
            ]
            if new := dict.fromkeys(link for link in links if link not in known):
                client.register_many(new)
                known.update(new)
                played.n_junk += len(new)
        time.sleep(max(0.0, min(now + LOOK_EVERY_S, played.seconds) - site.now()))
    played.looks.append(look(site, client))


def look(site: Site, client: Client) -> Look:
    """Return the state of the service now."""
    now, wall = site.now(), datetime.now(UTC)
    blocked = {
        host.host: now + (until - wall).total_seconds()
        for host in client.hosts(blocked=True)
        if (until := host.host_queue.paused_until) is not None
    }
    granted = GRANTED.search(metrics(client))
    return Look(now, blocked, int(float(granted[1])) if granted else 0)


def metrics(client: Client) -> str:
    """Return the metrics of the service in the text format."""
    answer = client.http.get("/metrics")
    answer.raise_for_status()
    return answer.text


def _look_back(played: Played, client: Client) -> None:
    """Count leases and answers after the end of the crawler."""
    hosts = played.site.world.hosts
    played.n_leased = sum(client.host(host.address).n_leased for host in hosts)
    for status, n in REQUESTS.findall(metrics(client)):
        played.answers[status] += int(float(n))
    if not played.answers:
        raise Failed("the service shows no counts of its answers in /metrics")
