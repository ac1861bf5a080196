"""The shipped crawlers obey robots.txt: real processes, a live service, a site on this machine."""

import time
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest
from support.live_server import running, until
from support.local_site import page, serving
from support.processes import running_python

from recrawl_client import Client, NotFound

EXAMPLES = Path(__file__).parents[2] / "examples"
PROGRAMS = {"example": "crawler.py", "asyncio": "async_crawler.py"}
CRAWLERS = pytest.mark.parametrize("crawler", ["example", "asyncio", "scrapy"])
DELAY_S = 2.0


class Watched(dict):
    """Pages that keep the time of each request; `seen` is called with the path."""

    def __init__(self, pages, seen=lambda path: None):
        super().__init__(pages)
        self.seen = seen
        self.requests = []

    def get(self, path, default=None):
        self.requests.append((time.monotonic(), path))
        self.seen(path)
        return super().get(path, default)

    def assert_kept(self, delay_s):
        """Fail unless the pages are requested one delay apart.

        The crawler cannot send page k sooner than k delays after the robots.txt. A busy machine
        shortens single gaps: it may deliver one request late and the next one at once.
        """
        (read_at,) = [at for at, path in self.requests if path == "/robots.txt"]
        times = [at for at, path in self.requests if path != "/robots.txt"]
        for k, at in enumerate(times):
            assert at >= read_at + k * delay_s, self.requests
        assert all(after - before >= delay_s / 2 for before, after in pairwise(times)), times


@pytest.fixture
def live(sqlite_url, monkeypatch):
    """Serve in real time, and lease many pages of a host at once."""
    monkeypatch.setenv("RECRAWL_HOST_DELAY_S", "0")
    monkeypatch.setenv("RECRAWL_HOST_CONCURRENCY", "0")
    with running(sqlite_url, clock=lambda: datetime.now(UTC)) as live:
        yield live


def command_of(crawler, live, spider=EXAMPLES / "spider.py", **settings):
    if crawler in PROGRAMS:
        return EXAMPLES / PROGRAMS[crawler], live.url
    settings = {"RECRAWL_URL": live.url, **settings}
    words = [word for name, value in settings.items() for word in ("-s", f"{name}={value}")]
    return "-m", "scrapy", "runspider", spider, *words


def status_of(client, url):
    """Return the status of the last crawl, "denied" by robots.txt; None before it."""
    try:
        crawls = client.page(url).last_crawls
    except NotFound:
        return None
    if crawls and crawls[0].robots_denied:
        return "denied"
    return crawls[0].status if crawls else None


@pytest.mark.slow
@CRAWLERS
def test_a_crawl_delay_is_kept_from_the_second_page_on(crawler, tmp_path, live):
    rules = f"User-agent: *\nCrawl-delay: {DELAY_S:g}\nDisallow: /no\n".encode()
    paths = [f"/{k}" for k in range(4)]
    delays = []
    with Client(live.url) as client:

        def note(path):
            if path != "/robots.txt":
                delays.append(client.host("127.0.0.1").robots_delay_s)

        pages = {"/robots.txt": (200, {}, rules), **{path: page(path) for path in paths}}
        watched = Watched(pages, note)
        with serving(watched) as site:
            client.register(*map(site.url, [*paths, "/no"]))
            with running_python(tmp_path, *command_of(crawler, live)):
                until(
                    lambda: all(status_of(client, site.url(path)) for path in [*paths, "/no"]),
                    "all are reported",
                )
            assert status_of(client, site.url("/no")) == "denied"
            assert [status_of(client, site.url(path)) for path in paths] == [200] * 4
        assert client.host("127.0.0.1").n_leased == 0
    assert delays == [DELAY_S] * 4
    watched.assert_kept(DELAY_S)
    assert site.hits == {"/robots.txt": 1, **dict.fromkeys(paths, 1)}


@pytest.mark.slow
@CRAWLERS
@pytest.mark.parametrize("status", [429, 503])
def test_a_host_whose_robots_txt_is_unreachable_is_not_crawled(crawler, status, tmp_path, live):
    pages = {"/robots.txt": (status, {"Retry-After": "500"}, b""), "/a": page("a")}
    with serving(pages) as site, Client(live.url) as client:
        client.register(site.url("/a"))
        with running_python(tmp_path, *command_of(crawler, live)):
            until(lambda: status_of(client, site.url("/a")), "it is reported")
        assert status_of(client, site.url("/a")) == status
        until_s = client.host("127.0.0.1").host_queue.paused_until - datetime.now(UTC)
    assert site.hits == {"/robots.txt": 1}
    assert 400 < until_s.total_seconds() <= 500


@pytest.mark.slow
@CRAWLERS
@pytest.mark.parametrize("hops", [1, 5])
def test_a_robots_txt_of_half_a_million_bytes_behind_redirects_is_obeyed(
    crawler, hops, tmp_path, live
):
    rules = b"User-agent: *\nDisallow: /no\n" + b"# more\n" * 200_000
    chain = ["/robots.txt", *(f"/r{k}" for k in range(hops))]
    pages = {path: (301, {"Location": to}, b"") for path, to in pairwise(chain)}
    pages |= {chain[-1]: (200, {"Content-Type": "text/html"}, rules), "/yes": page("yes")}
    with serving(pages) as site, Client(live.url) as client:
        urls = [site.url("/no"), site.url("/yes")]
        client.register(*urls)
        with running_python(tmp_path, *command_of(crawler, live)):
            until(lambda: all(status_of(client, url) for url in urls), "both are reported")
        assert [status_of(client, url) for url in urls] == ["denied", 200]
    assert site.hits == dict.fromkeys([*chain, "/yes"], 1)


COPIES = """
from scrapy import Request, Spider

class Copies(Spider):
    name = "copies"
    custom_settings = {"SCHEDULER": "recrawl_client.scrapy.Scheduler", "ROBOTSTXT_OBEY": True}

    def parse(self, response):
        if response.url.endswith("/yes"):
            url = response.urljoin("/no")
            yield Request(url, meta={**response.meta, "recrawl": None, "recrawl_now": True})
"""


@pytest.mark.slow
def test_meta_that_a_spider_copies_does_not_evade_robots_txt(tmp_path, live):
    spider = tmp_path / "copies.py"
    spider.write_text(COPIES.replace('"recrawl": None, ', ""))
    pages = {"/robots.txt": (200, {}, b"User-agent: *\nDisallow: /no"), "/yes": page("yes")}
    with serving(pages) as site, Client(live.url) as client:
        client.register(site.url("/yes"))
        with running_python(tmp_path, *command_of("scrapy", live, spider)):
            until(lambda: status_of(client, site.url("/yes")), "it is reported")
    assert site.hits["/no"] == 0


SLOW = """
import time
from scrapy import Spider

class Slow(Spider):
    name = "slow"
    custom_settings = {"SCHEDULER": "recrawl_client.scrapy.Scheduler", "CONCURRENT_REQUESTS": 2}

    def parse(self, response):
        pass
"""


@pytest.mark.slow
def test_a_spider_keeps_the_leases_of_pages_that_wait(tmp_path, live):
    spider = tmp_path / "slow.py"
    spider.write_text(SLOW)
    paths = [f"/{k}" for k in range(12)]
    watched = Watched({path: page(path) for path in paths}, lambda path: time.sleep(0.5))
    with serving(watched) as site, Client(live.url) as client:
        client.register(*map(site.url, paths))
        settings = {"RECRAWL_LEASES": 12, "RECRAWL_LEASE_TTL_S": 2}
        with running_python(tmp_path, *command_of("scrapy", live, spider, **settings)):
            until(
                lambda: all(status_of(client, site.url(path)) for path in paths),
                "all are reported",
            )
    assert site.hits == dict.fromkeys(paths, 1)


REACTORS = {
    "asyncio": {},
    "select": {"TWISTED_REACTOR": "twisted.internet.selectreactor.SelectReactor"},
    "none": {"TWISTED_REACTOR_ENABLED": "False"},
}


@pytest.mark.slow
@pytest.mark.parametrize("reactor", REACTORS)
def test_a_spider_obeys_robots_txt_with_or_without_a_reactor(reactor, tmp_path, live):
    rules = b"User-agent: *\nDisallow: /no\nCrawl-delay: 1\n" + b"# more\n" * 100_000
    paths = ["/1", "/2"]
    watched = Watched({"/robots.txt": (200, {}, rules), **{path: page(path) for path in paths}})
    with serving(watched) as site, Client(live.url) as client:
        urls = list(map(site.url, [*paths, "/no"]))
        client.register(*urls)
        with running_python(tmp_path, *command_of("scrapy", live, **REACTORS[reactor])):
            until(lambda: all(status_of(client, url) for url in urls), "all are reported")
        log = (tmp_path / "output.txt").read_text()
        assert [status_of(client, url) for url in urls] == [200, 200, "denied"], log
    watched.assert_kept(1)
    assert site.hits == dict.fromkeys(["/robots.txt", *paths], 1)
    assert "Traceback" not in log, log


@pytest.mark.slow
def test_a_spider_that_closes_returns_the_leases_that_wait_for_the_delay(tmp_path, live):
    rules = b"User-agent: *\nCrawl-delay: 20\n"
    pages = {"/robots.txt": (200, {}, rules), "/1": page("1"), "/2": page("2")}
    with serving(pages) as site, Client(live.url) as client:
        client.register(site.url("/1"), site.url("/2"))
        with running_python(tmp_path, *command_of("scrapy", live)):
            until(lambda: any(status_of(client, site.url(path)) for path in ("/1", "/2")), "one")
        log = (tmp_path / "output.txt").read_text()
        assert client.host("127.0.0.1").n_leased == 0
    assert site.hits["/1"] + site.hits["/2"] == 1
    for sign in ("Traceback", "destroyed", "never awaited"):
        assert sign not in log, log
