"""A crawler of Crawlee over leases, installed and started by the commands of its page."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from support.image import finish
from support.live_server import PATIENCE_S, Clock, Live, lease_freely, running, until
from support.local_site import page, serving
from support.pages import DOCS, block
from support.processes import ROOT, environment
from support.watched_site import N_PAGES, WatchedSite, linked

pytestmark = [pytest.mark.slow, pytest.mark.external]

PAGE = (DOCS / "how-to" / "crawl-with-crawlee.md").read_text()
PATHS = {f"/{k}" for k in range(N_PAGES)}


@pytest.fixture(scope="module")
def bin_folder(tmp_path_factory) -> Path:
    """Return the programs of an environment in which the command of the page has run."""
    folder = tmp_path_factory.mktemp("crawlee")
    finish([sys.executable, "-m", "venv", f"{folder}/.venv"])
    path = f"{folder}/.venv/bin{os.pathsep}{os.environ['PATH']}"
    ended = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block(PAGE, "install").text],
        cwd=ROOT,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout[-3_000:] + ended.stderr[-3_000:]
    return folder / ".venv" / "bin"


LATE = """
from datetime import UTC, datetime
from recrawl_client import sending

sending.PRECISION_S = 60.0
crawl = c.Answers.__bases__[0].crawl

async def late(self, request, **options):
    print("asked", datetime.now(UTC).isoformat(), flush=True)
    return await crawl(self, request, **options)

c.Answers.__bases__[0].crawl = late
"""
"""Program that prints the time between the example and Crawlee's client."""


@contextmanager
def crawling(
    bin_folder: Path, live: Live, start: str, log: Path, idle_s: float, more: str = ""
) -> Iterator:
    """Run the example as the page runs it; a shorter wait for due pages ends it sooner."""
    command = block(PAGE, "crawl").text.split()
    assert command[:2] == ["python", "examples/crawlee_crawler.py"]
    run = (
        "import asyncio, sys; sys.path.insert(0, 'examples'); import crawlee_crawler as c\n"
        f"{more}\nc.IDLE_S = {idle_s}; asyncio.run(c.main(*sys.argv[1:]))"
    )
    with log.open("wb") as out:
        crawler = subprocess.Popen(
            [bin_folder / "python", "-u", "-c", run, live.url, start],
            cwd=ROOT,
            env=environment(),
            stdout=out,
            stderr=out,
        )
    try:
        yield crawler
    finally:
        crawler.kill()
        crawler.wait()


class MovedClock(Clock):
    """The real time, moved ahead."""

    ahead = timedelta(0)

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.ahead

    def advance(self, **span: float) -> datetime:
        self.ahead += timedelta(**span)
        return self()


@pytest.fixture
def live(sqlite_url) -> Iterator[Live]:
    options = {"host_delay_s": 0, "host_concurrency": 3, "lease_ttl_s": 60}
    with running(sqlite_url, clock=MovedClock(), **options) as live:
        lease_freely(live)
        yield live


def statuses(live: Live) -> dict[str, list[int | None]]:
    """Return the statuses of the crawls of each page by its path."""
    pages = live.get("/pages", limit=100).json()["items"]
    shown = [live.get(f"/pages/{each['page_id']}").json() for each in pages]
    return {
        re.sub(r"^https?://[^/]+", "", each["url"]): [c["status"] for c in each["last_crawls"]]
        for each in shown
    }


def test_a_site_is_finished_by_its_links_with_every_answer_reported(bin_folder, live, tmp_path):
    log = tmp_path / "log"
    with serving(linked(), WatchedSite) as site:
        live.register(site.url("/private"))  # Crawlee itself leaves out links that are forbidden
        with crawling(bin_folder, live, site.url("/0"), log, idle_s=3) as crawler:
            assert crawler.wait(PATIENCE_S) == 0, log.read_text()[-3_000:]
        expected = {path: [200] for path in PATHS}
        assert statuses(live) == expected | {"/old": [301], "/gone": [404], "/private": [None]}
        assert site.twice == []
        assert {site.hits[path] for path in PATHS} == {1}
        assert site.hits["/private"] == 0
        denied = live.get("/pages", url=site.url("/private")).json()
        assert denied["last_crawls"][0]["robots_denied"] is True
    assert live.get("/leases").json()["items"] == []
    assert "unknown state" not in log.read_text()


def test_a_crawler_that_is_killed_loses_nothing_and_nothing_is_fetched_twice_at_once(
    bin_folder, live, tmp_path
):
    first, second = tmp_path / "first", tmp_path / "second"
    with serving(linked(), WatchedSite) as site:
        site.pause_s = 0.3
        with crawling(bin_folder, live, site.url("/0"), first, idle_s=60) as crawler:
            until(lambda: sum(site.hits.values()) > N_PAGES / 2, "it is within the site")
            until(lambda: sum(n for p, n in site.at_once.items() if p in PATHS) > 0, "it fetches")
            crawler.send_signal(signal.SIGKILL)
            crawler.wait()
        left = live.get("/leases").json()["items"]
        assert left, "the kill came between two crawls"
        live.clock.advance(hours=2)  # the leases run out, and their pages wait for an hour at most
        with crawling(bin_folder, live, site.url("/0"), second, idle_s=3) as crawler:
            assert crawler.wait(PATIENCE_S) == 0, second.read_text()[-3_000:]
        crawled = statuses(live)
        assert {path: crawled[path] for path in PATHS} == {path: [200] for path in PATHS}
        assert site.twice == []
        again = {path for path in PATHS if site.hits[path] > 1}
        assert again <= {re.sub(r"^https?://[^/]+", "", lease["url"]) for lease in left}
    assert live.get("/leases").json()["items"] == []


def test_a_crawl_is_dated_as_its_request_leaves(bin_folder, live, tmp_path):
    with serving({"/robots.txt": page(""), "/0": page("0")}, WatchedSite) as site:
        log = tmp_path / "log"
        with crawling(bin_folder, live, site.url("/0"), log, idle_s=3, more=LATE) as crawler:
            assert crawler.wait(PATIENCE_S) == 0, log.read_text()[-3_000:]
        (asked,) = re.findall("^asked (.+)$", log.read_text(), re.MULTILINE)
        (crawl,) = live.get("/pages", url=site.url("/0")).json()["last_crawls"]
        assert datetime.fromisoformat(crawl["observed_at"]) > datetime.fromisoformat(asked)


def test_two_crawlers_share_a_site(bin_folder, live, tmp_path):
    with serving(linked(), WatchedSite) as site:
        with (
            crawling(bin_folder, live, site.url("/0"), tmp_path / "a", idle_s=3) as one,
            crawling(bin_folder, live, site.url("/0"), tmp_path / "b", idle_s=3) as other,
        ):
            assert [each.wait(PATIENCE_S) for each in (one, other)] == [0, 0]
        assert site.twice == []
        assert {site.hits[path] for path in PATHS} == {1}
