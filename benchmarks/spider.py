"""Measure how many pages a second a spider crawls under the scheduler for Scrapy; a table.

    python -m benchmarks.spider [--pages 2000] [--polite-pages 15]

What runs: the service on SQLite, a spider, and a web site on this machine, each a process of its
own. The rate counts from the site's first request to its last. Targets: 1.1 s a crawl where the
host allows one a second, 200 crawls/s where it allows eight at a time without a delay. The floor
is Scrapy's own scheduler with eight requests at a time, without the service.
"""

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks.http.processes import serving
from recrawl_client import Client

SPIDER = Path(__file__).parents[1] / "examples" / "spider.py"
BODY = b"<html><title>a page</title>" + b"<p>words</p>" * 100
HEAD = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {}\r\n\r\n"
LINKS = "/links/"
"""Path of a page that links to as many pages as its last segment says."""
LIMIT_S = 600.0
"""Time after which a spider is ended, seconds."""


class Case(NamedTuple):
    """A host's politeness, and how many pages are crawled under it."""

    delay_s: float
    concurrency: int
    n_pages: int
    target: str


class Rate(NamedTuple):
    """The outcome of one case."""

    n_crawls: int
    seconds: float


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(
        prog="python -m benchmarks.spider", description=__doc__.splitlines()[0]
    )
    options.add_argument("--pages", type=int, default=2_000)
    options.add_argument("--polite-pages", type=int, default=15)
    options.add_argument("--rounds", type=int, default=3)
    arguments = options.parse_args()
    cases = [
        Case(1.0, 1, arguments.polite_pages, "1.1 s a crawl"),
        Case(0.0, 1, arguments.pages // 4, ""),
        Case(0.0, 8, arguments.pages, "200 crawls/s"),
    ]
    table = Table("delay", "concurrency", "pages", "crawls/s", "s a crawl", "target", box=None)
    for case in cases:
        for _ in range(arguments.rounds if not case.delay_s else 1):
            politeness = (f"{case.delay_s:g} s", str(case.concurrency))
            table.add_row(*politeness, *figures(measured(case)), case.target)
    for _ in range(arguments.rounds):
        table.add_row("Scrapy", "8", *figures(floor(arguments.pages)), "floor")
    Console().print(table)


def figures(rate: Rate) -> tuple[str, str, str]:
    """Return the cells of a rate."""
    per_s = (rate.n_crawls - 1) / rate.seconds
    return str(rate.n_crawls), f"{per_s:.1f}", f"{1 / per_s:.3f}"


def measured(case: Case) -> Rate:
    """Crawl each page once and return the rate as the site has seen it."""
    with (
        tempfile.TemporaryDirectory(prefix="recrawl-spider-") as folder,
        site() as (port, connection),
        serving(f"sqlite:///{folder}/bench.db", Path(folder)) as service,
    ):
        urls = [f"http://127.0.0.1:{port}/{i}" for i in range(case.n_pages)]
        with Client(service.base) as client:
            client.set_host("127.0.0.1", min_delay_s=case.delay_s, max_concurrency=case.concurrency)
            client.register(*urls)
        crawl(RECRAWL_URL=service.base, RECRAWL_CLOSE_IDLE_S=3)
        return rate_of(connection)


def floor(n_pages: int) -> Rate:
    """Crawl as many pages with Scrapy's own scheduler."""
    with site() as (port, connection):
        start = f"http://127.0.0.1:{port}{LINKS}{n_pages}"
        own = {"SCHEDULER": "scrapy.core.scheduler.Scheduler", "CONCURRENT_REQUESTS_PER_DOMAIN": 8}
        crawl("-a", f"start={start}", **own)
        return rate_of(connection)


def crawl(*words: str, **settings: Any) -> None:
    """Run the spider of the examples to its end."""
    settings = {"ROBOTSTXT_OBEY": False, "LOG_LEVEL": "WARNING", **settings}
    options = [word for name, value in settings.items() for word in ("-s", f"{name}={value}")]
    command = [sys.executable, "-m", "scrapy", "runspider", str(SPIDER), *words, *options]
    subprocess.run(command, check=True, timeout=LIMIT_S)


def rate_of(connection: Connection) -> Rate:
    """Return the rate that a site has seen."""
    connection.send(None)
    times: list[float] = connection.recv()
    return Rate(len(times), times[-1] - times[0])


@contextmanager
def site() -> Iterator[tuple[int, Connection]]:
    """Run a site in a process; yield its port and a connection that returns times of requests."""
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs,))
    process.start()
    try:
        yield ours.recv(), ours
    finally:
        process.terminate()
        process.join()


def serve(connection: Connection) -> None:
    """Answer requests until their times are requested."""
    times: list[float] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            while (await reader.readline()).strip():
                pass
            times.append(time.monotonic())
            writer.write(answer_to(line.split()[1].decode()))
            await writer.drain()
        writer.close()

    async def run() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        async with server:
            connection.send(server.sockets[0].getsockname()[1])
            await asyncio.to_thread(connection.recv)
        connection.send(times)

    asyncio.run(run())


def answer_to(path: str) -> bytes:
    """Return the answer to a request: the same page, or a page of links."""
    body = BODY
    if path.startswith(LINKS):
        n_links = int(path.removeprefix(LINKS))
        body += "".join(f"<a href='/{i}'>x</a>" for i in range(n_links)).encode()
    return HEAD.format(len(body)).encode() + body


if __name__ == "__main__":
    main()
