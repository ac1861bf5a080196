"""Redirects: the shipped crawlers report the first one and crawl its target as a page of its own.

A real site on this machine, the reference crawler and a spider as processes, a live service.
"""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from support.live_server import running, until
from support.local_site import page, redirect, serving
from support.processes import running_python

from recrawl_client import Client, NotFound, redirect_url

EXAMPLES = Path(__file__).parents[2] / "examples"
PROGRAMS = {"example": "crawler.py", "asyncio": "async_crawler.py"}
PAGES = {
    "/moved": redirect(301, "/new"),
    "/for-now": redirect(302, "/now"),
    "/other": redirect(303, "/seen"),
    "/kept": redirect(307, "/keeps"),
    "/for-good": redirect(308, "better?x=1#part"),
    "/loop-1": redirect(302, "/loop-2"),
    "/loop-2": redirect(301, "/loop-1"),
    "/itself": redirect(302, "/itself"),
    "/mail": redirect(301, "mailto:me@example.com"),
    "/nowhere": (301, {}, b"no Location"),
    **{path: page(path) for path in ("/new", "/now", "/seen", "/keeps", "/better?x=1")},
}
TARGETS = {
    "/moved": (301, "/new"),
    "/for-now": (302, "/now"),
    "/other": (303, "/seen"),
    "/kept": (307, "/keeps"),
    "/for-good": (308, "/better?x=1"),
    "/loop-1": (302, "/loop-2"),
    "/loop-2": (301, "/loop-1"),
}
"""Pages that have moved for good, to another page."""


@pytest.fixture
def live(sqlite_url, monkeypatch):
    """A service in real time that leaves hosts no rest."""
    monkeypatch.setenv("RECRAWL_HOST_DELAY_S", "0")
    monkeypatch.setenv("RECRAWL_HOST_CONCURRENCY", "0")
    with running(sqlite_url, clock=lambda: datetime.now(UTC)) as live:
        yield live


def command_of(crawler, live, spider=EXAMPLES / "spider.py"):
    if crawler in PROGRAMS:
        return EXAMPLES / PROGRAMS[crawler], live.url
    options = ("-s", f"RECRAWL_URL={live.url}", "-s", "ROBOTSTXT_OBEY=False")
    return "-m", "scrapy", "runspider", spider, *options


def crawled(client, url):
    try:
        return client.page(url).last_crawl_at is not None
    except NotFound:
        return False


def last_status(client, url):
    crawls = [crawl for crawl in client.page(url).last_crawls if crawl.kind == "crawl"]
    return "denied" if crawls[0].robots_denied else crawls[0].status


@pytest.mark.slow
@pytest.mark.parametrize("crawler", ["example", "asyncio", "scrapy"])
def test_the_first_redirect_is_reported_and_its_target_is_a_page_of_its_own(
    crawler, tmp_path, live
):
    with serving(PAGES) as site, Client(live.url) as client:
        client.register_many(site.url(path) for path in (*TARGETS, "/itself", "/mail", "/nowhere"))
        with running_python(tmp_path, *command_of(crawler, live)):
            urls = [site.url(path) for path in PAGES]
            until(lambda: all(crawled(client, url) for url in urls), "all pages are crawled")
        sources = {path: client.page(site.url(path)) for path in TARGETS}
        for path, (status, target) in TARGETS.items():
            assert last_status(client, site.url(path)) == status
            assert sources[path].redirects_to.url == site.url(target), path
        # a move counts as such after a second look, at least an hour later
        assert not any(source.gone for source in sources.values())
        targets = {target for _, target in TARGETS.values() if not target.startswith("/loop")}
        assert {last_status(client, site.url(path)) for path in targets} == {200}
        assert not any(client.page(site.url(path)).gone for path in targets)
        for path, status in (("/itself", 302), ("/mail", 301), ("/nowhere", 301)):
            source = client.page(site.url(path))
            assert (last_status(client, source.url), source.redirects_to) == (status, None), path
            assert not source.gone
    hits = {path: n for path, n in site.hits.items() if path != "/robots.txt"}
    assert hits == dict.fromkeys(PAGES, 1), "a loop costs one request a page"
    assert site.hits["/robots.txt"] <= 1


@pytest.mark.slow
def test_the_reference_crawler_reads_robots_txt_once_and_obeys(tmp_path, live):
    rules = b"User-agent: recrawl-example\nDisallow: /private\n"
    pages = {"/robots.txt": (200, {}, rules), "/open": page("o"), "/private": page("p")}
    with serving(pages) as site, Client(live.url) as client:
        urls = [site.url("/open"), site.url("/private")]
        client.register(*urls)
        with running_python(tmp_path, *command_of("example", live)):
            until(lambda: all(crawled(client, url) for url in urls), "both are reported")
        assert [last_status(client, url) for url in urls] == [200, "denied"]
    assert site.hits == {"/robots.txt": 1, "/open": 1}


ON_SITE = """
from scrapy import Spider

class OnSite(Spider):
    name = "on-site"
    allowed_domains = ["127.0.0.1"]
    custom_settings = {"SCHEDULER": "recrawl_client.scrapy.Scheduler"}

    def parse(self, response):
        pass
"""


@pytest.mark.slow
def test_a_spider_registers_no_target_outside_of_its_domains(tmp_path, live):
    spider = tmp_path / "on_site.py"
    spider.write_text(ON_SITE)
    pages = {"/in": redirect(301, "/in-too"), "/in-too": page("in"), "/elsewhere": page("out")}
    with serving(pages) as site, Client(live.url) as client:
        outside = site.url("/elsewhere", host="localhost")
        site.pages = {**pages, "/out": redirect(308, outside)}
        client.register(site.url("/in"), site.url("/out"))
        with running_python(tmp_path, *command_of("scrapy", live, spider)):
            urls = [site.url(path) for path in ("/in", "/out")]
            until(lambda: all(crawled(client, url) for url in urls), "both are crawled")
            until(lambda: crawled(client, site.url("/in-too")), "the target is crawled")
        assert last_status(client, site.url("/out")) == 308
        assert live.get("/pages", url=outside).status_code == 404
    assert site.hits["/elsewhere"] == 0


META_REFRESH = b"<html><head><meta http-equiv=refresh content='0; url=/fresh'></head></html>"


@pytest.mark.slow
def test_the_target_of_a_meta_refresh_is_a_page_of_its_own(tmp_path, live):
    pages = {"/refresh": (200, {}, META_REFRESH), "/fresh": page("fresh")}
    with serving(pages) as site, Client(live.url) as client:
        client.register(site.url("/refresh"))
        with running_python(tmp_path, *command_of("scrapy", live)):
            until(lambda: site.hits["/fresh"], "the target is fetched")
            until(lambda: crawled(client, site.url("/fresh")), "the target is crawled")
        assert last_status(client, site.url("/refresh")) == 200
    assert site.hits == {"/refresh": 1, "/fresh": 1}


@pytest.mark.parametrize(
    ("status", "location", "target"),
    [
        (301, "/new", "https://a.example/new"),
        (302, "https://b.example/x", "https://b.example/x"),
        (303, "?page=2", "https://a.example/dir/old?page=2"),
        (307, "//b.example/", "https://b.example/"),
        (308, "../up", "https://a.example/up"),
        (301, None, None),
        (301, "", None),
        (300, "/new", None),
        (304, "/new", None),
        (200, "/new", None),
        (301, "mailto:me@a.example", None),
        (301, "javascript:void(0)", None),
        (301, "http://[", None),
        (301, "http:///", None),
        (301, "http://me:secret@a.example/", None),
        (301, "/" + "a" * 2_048, None),
        (301, "http://a.example:99999/", None),
        (301, "https://xn--i-7iq.ws/", "https://xn--i-7iq.ws/"),
        (301, "http://[::1]/x", "http://[::1]/x"),
        (301, "http://192.0.2.1/x", "http://192.0.2.1/x"),
        (301, "http://a.0x/", None),
        (301, "http://v1.09/", None),
        (301, "https://../", None),
        (301, "http://a|b.example/", None),
    ],
)
def test_the_target_is_absolute_and_one_that_recrawl_takes(status, location, target):
    request = httpx.Request("GET", "https://a.example/dir/old")
    headers = {} if location is None else {"Location": location}
    assert redirect_url(httpx.Response(status, headers=headers, request=request)) == target


def test_without_registering_a_target_stays_unknown_and_the_page_has_moved(live):
    with Client(live.url) as client:
        client.register("https://a.example/old")
        (crawl,) = client.lease().items
        target = "https://b.example/new"
        first = {"status": 301, "redirect_url": target, "register": False}
        earlier = datetime.now(UTC) - timedelta(hours=2)
        client.report("https://a.example/old", observed_at=earlier, **first)
        assert not client.page("https://a.example/old").gone
        with client.reporter(register=False) as reporter:
            reporter.report(crawl, status=301, redirect_url=target)
        assert client.page("https://a.example/old").gone
        assert live.get("/pages", url=target).status_code == 404
        client.report("https://a.example/old", status=302, redirect_url=target, register=False)
        assert live.get("/pages", url=target).status_code == 404
        client.report("https://a.example/old", status=301, redirect_url=target)
        assert client.page("https://a.example/old").redirects_to.url == target
