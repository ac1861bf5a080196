"""Conditional requests of the shipped crawlers, with validators that only the service has.

A real site on this machine, the reference crawler and a spider as processes, a live service.
"""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from support.live_server import running, until
from support.local_site import serving
from support.processes import running_python

from recrawl_client import Client, Page

EXAMPLES = Path(__file__).parents[2] / "examples"
PROGRAMS = {"example": "crawler.py", "asyncio": "async_crawler.py"}
DATE = datetime(2026, 4, 1, 9, 30, tzinfo=UTC)
HTTP_DATE = "Wed, 01 Apr 2026 09:30:00 GMT"
TAG = '"5f3a"'
PAGES = {
    "/both": (200, {"ETag": TAG, "Last-Modified": HTTP_DATE}, b"both"),
    "/tag": (200, {"ETag": TAG}, b"tag"),
    "/date": (200, {"Last-Modified": HTTP_DATE}, b"date"),
    "/new": (200, {"ETag": '"77"'}, b"new"),
    "/none": (200, {}, b"none"),
}
STORED = {
    "/both": {"etag": TAG, "last_modified": DATE},
    "/tag": {"etag": TAG},
    "/date": {"last_modified": DATE},
    "/new": {"etag": TAG},
    "/none": {},
}
"""Validators of an earlier crawl, which another worker reported."""
CONDITIONS = {
    "/both": {"If-None-Match": TAG, "If-Modified-Since": HTTP_DATE},
    "/tag": {"If-None-Match": TAG},
    "/date": {"If-Modified-Since": HTTP_DATE},
    "/new": {"If-None-Match": TAG},
}


@pytest.fixture
def live(sqlite_url, monkeypatch):
    """A service in real time that leaves hosts no rest."""
    monkeypatch.setenv("RECRAWL_HOST_DELAY_S", "0")
    monkeypatch.setenv("RECRAWL_HOST_CONCURRENCY", "0")
    with running(sqlite_url, clock=lambda: datetime.now(UTC)) as live:
        yield live


def command_of(crawler, live, *settings):
    if crawler in PROGRAMS:
        return EXAMPLES / PROGRAMS[crawler], live.url
    options = [f"RECRAWL_URL={live.url}", "ROBOTSTXT_OBEY=False", *settings]
    flags = [word for option in options for word in ("-s", option)]
    return "-m", "scrapy", "runspider", EXAMPLES / "spider.py", *flags, "-O", "items.json"


def crawl(directory, live, site, *command):
    """Report a crawl of each page long ago, run a crawler, and return its reports by path."""
    ago = datetime.now(UTC) - timedelta(days=60)
    with Client(live.url) as client:
        client.register(*(Page(url=site.url(path), observability="complete") for path in PAGES))
        for path, validators in STORED.items():
            client.report(site.url(path), status=200, changed=False, observed_at=ago, **validators)
            assert client.ping(site.url(path)).crawl

        def pages():
            return {path: client.page(site.url(path)) for path in PAGES}

        with running_python(directory, *command):
            until(lambda: all(page.last_crawl_at > ago for page in pages().values()), "crawled")
        return pages()


@pytest.mark.slow
@pytest.mark.parametrize("crawler", ["example", "asyncio", "scrapy"])
def test_crawlers_send_the_validators_of_the_lease_and_report_the_answers(crawler, tmp_path, live):
    with serving(PAGES) as site:
        pages = crawl(tmp_path, live, site, *command_of(crawler, live))
    assert site.conditions == CONDITIONS
    assert {path: page.last_crawls[0].status for path, page in pages.items()} == {
        **dict.fromkeys(["/both", "/tag", "/date"], 304),
        **dict.fromkeys(["/new", "/none"], 200),
    }
    assert {path: page.last_crawls[0].changed for path, page in pages.items()}["/both"] is False
    etags = {path: page.etag for path, page in pages.items()}
    # a 304 that contradicts a ping is doubted, so the next request is plain
    assert etags == {**dict.fromkeys(PAGES), "/new": '"77"'}
    assert pages["/date"].last_modified is None


@pytest.mark.slow
def test_a_spider_parses_only_pages_that_may_have_changed(tmp_path, live):
    with serving(PAGES) as site:
        crawl(tmp_path, live, site, *command_of("scrapy", live))
        items = json.loads((tmp_path / "items.json").read_text())
        assert {item["url"] for item in items} == {site.url("/new"), site.url("/none")}


@pytest.mark.slow
def test_a_spider_that_must_not_be_conditional_parses_all_pages(tmp_path, live):
    with serving(PAGES) as site:
        command = command_of("scrapy", live, "RECRAWL_CONDITIONAL=false")
        pages = crawl(tmp_path, live, site, *command)
        items = json.loads((tmp_path / "items.json").read_text())
        assert {item["url"] for item in items} == set(map(site.url, PAGES))
    assert site.conditions == {}
    assert {page.last_crawls[0].status for page in pages.values()} == {200}
