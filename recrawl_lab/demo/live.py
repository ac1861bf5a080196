"""The live demo: the reference crawler, a real service and a web site that changes.

Everything runs in real time at a higher rate: a day of the site lasts seconds, and the service
plans several crawls a second.
"""

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import httpx
import numpy as np
from rich.console import Console
from rich.live import Live
from rich.table import Table

from recrawl_client import Client, Page, SitemapRead
from recrawl_lab.policies import plain
from recrawl_lab.replay.staleness import Crawls, staleness
from recrawl_lab.worlds.site import NEWS, SHARES, SHOP, SLOW, STRICT, Site, part, serving, site_of
from recrawl_lab.worlds.world import synthetic_world
from service.model.errors import UnexpectedAnswer

CRAWLER = Path(__file__).with_name("crawler.py")
"""Path of the reference crawler; in a source tree a link to examples/crawler.py."""

N_PAGES = 240
DAY_S = 4.0
"""Length of a day of the site, seconds."""
CRAWLS_A_SECOND = 40.0
SECONDS_A_DAY = 86_400.0
SETTINGS = {
    "bandwidth": CRAWLS_A_SECOND * SECONDS_A_DAY,
    "epoch_interval_s": 2,
    "host_delay_s": 0,
    "host_concurrency": 32,
    "lease_ttl_s": 30,
}
TICK_S, SITEMAP_EVERY_S, RECENT_S = 0.25, 3.0, 3.0
NO_PROXIES = {"http_proxy", "https_proxy", "all_proxy", "no_proxy"}


@dataclass
class Feed:
    """Counts of the sitemap notices that were passed to the service."""

    n_fetched: int = 0
    n_notices: int = 0
    n_crawl_now: int = 0

    def add(self, read: SitemapRead) -> None:
        """Add the counts of one fetch."""
        self.n_fetched += 1
        self.n_notices += read.accepted
        self.n_crawl_now += read.n_crawl_now


@dataclass(frozen=True)
class LiveOutcome:
    """Measurements against the true changes of the site."""

    site: Site
    feed: Feed
    fresh: float
    """Probability of a fresh copy for a visitor of the hosts that cooperate."""
    fresh_uniform: float
    """The same probability, had as many crawls visited all pages in turn."""
    statuses: dict[str, Counter[int]]
    """Number of crawls by host and status."""
    silence_s: float
    """Longest time between two requests to strict.example, seconds."""


def run(client: Client, console: Console, seconds: float, rng: np.random.Generator) -> LiveOutcome:
    """Run the crawler on the site for some seconds, and show the freshness of its copies."""
    world = synthetic_world(N_PAGES, seconds / DAY_S, rng=rng, complete_share=0.0)
    site, feed = site_of(world, DAY_S), Feed()
    client.set_host(SLOW, max_concurrency=1)
    client.set_host(STRICT, max_concurrency=2)
    weights = zip(site.world.url, world.importance.tolist(), strict=True)
    client.register_many(Page(url=url, importance=weight) for url, weight in weights)
    with (
        serving(site) as proxy,
        crawling(str(client.http.base_url), proxy) as crawler,
        Live(console=console, auto_refresh=False) as shown,
    ):
        while (at_s := site.day() * DAY_S) < seconds:
            if crawler.poll() is not None:
                raise UnexpectedAnswer(f"the crawler ended with status {crawler.returncode}")
            if at_s > SITEMAP_EVERY_S * (feed.n_fetched + 1):
                pass_on(client, proxy, feed)
            shown.update(picture(client, site, feed, seconds), refresh=True)
            time.sleep(TICK_S)
    return outcome(site, feed)


@contextmanager
def crawling(recrawl_url: str, proxy: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run the reference crawler, which reaches the site through the proxy."""
    inherited = {
        name: value for name, value in os.environ.items() if name.lower() not in NO_PROXIES
    }
    environment = inherited | {"HTTP_PROXY": proxy, "NO_PROXY": "127.0.0.1"}
    crawler = subprocess.Popen(  # noqa: S603
        [sys.executable, CRAWLER, recrawl_url], env=environment, stdout=subprocess.DEVNULL
    )
    try:
        yield crawler
        crawler.terminate()
        crawler.wait(30)
    finally:
        crawler.kill()
        crawler.wait()


def pass_on(client: Client, proxy: str, feed: Feed) -> None:
    """Fetch the sitemap of news.example, where a third of the dates are false, and pass it on."""
    url = f"http://{NEWS}/sitemap.xml"
    with httpx.Client(proxy=proxy) as web:
        feed.add(client.sitemap(url, web.get(url).content))


def outcome(site: Site, feed: Feed) -> LiveOutcome:
    """Compare hosts that cooperate with crawls of all their pages in turn."""
    open_pages = np.flatnonzero(np.isin(site.host, [NEWS, SHOP]))
    world, crawls = part(site.world, open_pages), site.crawls()
    inside = np.isin(crawls.page, open_pages)
    ours = Crawls(np.searchsorted(open_pages, crawls.page[inside]), crawls.at[inside])
    uniform = plain.matched(plain.uniform, world, len(ours.at))
    statuses: dict[str, Counter[int]] = {host: Counter() for host in SHARES}
    for host, status, _ in site.answers:
        statuses.setdefault(host, Counter())[status] += 1
    fresh, fresh_uniform = (1.0 - staleness(world, c).binary for c in (ours, uniform))
    asked_at = [at for host, _, at in site.answers if host == STRICT]
    silence_s = float(np.diff([*asked_at, site.clock()]).max(initial=0.0))
    return LiveOutcome(site, feed, fresh, fresh_uniform, statuses, silence_s)


# -- output


def picture(client: Client, site: Site, feed: Feed, seconds: float) -> Table:
    """Return a table of the current state."""
    now, fresh, hosts = site.clock(), site.fresh(), np.array(site.host)
    recent = [(host, status) for host, status, at in list(site.answers) if at > now - RECENT_S]
    span_s = min(RECENT_S, max(now - site.start, TICK_S))
    n_changes = int(site.versions(site.day()).sum())
    table = Table(
        title=f"{min(now - site.start, seconds):.0f} of {seconds:.0f} s: {fresh.mean():.0%} of "
        f"{len(fresh)} copies are fresh, {len(recent) / span_s:.0f} crawls/s\n"
        f"{n_changes:,} changes so far, {site.n_seen:,} crawls found some",
        caption=f"sitemap of {NEWS}: {feed.n_notices:,} notices (a third are lies), "
        f"{feed.n_crawl_now:,} led to a crawl at once",
    )
    table.add_column("host")
    for name in ("pages", "fresh", "crawls/s"):
        table.add_column(name, justify="right")
    table.add_column("state")
    for host in SHARES:
        rate = sum(1 for name, _ in recent if name == host) / span_s
        mine = hosts == host
        table.add_row(
            host, f"{mine.sum()}", f"{fresh[mine].mean():.0%}", f"{rate:.1f}", state(client, host)
        )
    return table


def state(client: Client, host: str) -> str:
    """Return the service's current treatment of a host."""
    until = client.host(host).host_queue.paused_until
    left_s = (until - datetime.now(UTC)).total_seconds() if until else 0
    if left_s > 0:
        return f"answered 429: no crawls for {left_s:.0f} s"
    if host == SLOW:
        return "slow: one request at a time"
    return "answers 429 to fast crawlers" if host == STRICT else "crawled"


def show(outcome: LiveOutcome, console: Console) -> None:
    """Print a summary."""
    site, strict = outcome.site, outcome.statuses[STRICT]
    n_crawls, n_same = len(site.crawled), sum(c[304] for c in outcome.statuses.values())
    console.print(
        f"\n{n_crawls:,} crawls, {n_same:,} of them answered 304; {site.n_seen:,} found a change.\n"
        f"{STRICT} answered 429 {strict[429]} times and was then not crawled for "
        f"{outcome.silence_s:.0f} s.\n"
        f"{NEWS} and {SHOP}: a visitor, who chooses pages by importance, got a fresh copy "
        f"{outcome.fresh:.1%} of the time; as many crawls of all pages in turn would have reached "
        f"{outcome.fresh_uniform:.1%}.",
        highlight=False,
    )
