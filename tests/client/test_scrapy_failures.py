"""Requests of a spider without a response: what the site said counts, what Scrapy thinks does not.

Real Scrapy processes, a live service, a site on this machine.
"""

import gzip
from datetime import UTC, datetime

import pytest
from support.live_server import PATIENCE_S, running
from support.local_site import page, serving
from support.processes import running_python

SPIDER = """
from scrapy import Request, Spider
from scrapy.exceptions import IgnoreRequest

class Chooser:
    def process_request(self, request):
        if "/mine" in request.url:
            raise IgnoreRequest("this crawler does not want it")
        if "/robots-says-no" in request.url:
            raise IgnoreRequest("Forbidden by robots.txt")
        if "/fault" in request.url:
            raise ValueError("a fault of the middleware")

    def process_response(self, request, response):
        if "/filtered" in request.url:
            raise IgnoreRequest("not a language of ours")
        return response

class Plain(Spider):
    name = "plain"
    custom_settings = {
        "SCHEDULER": "recrawl_client.scrapy.Scheduler",
        "DOWNLOADER_MIDDLEWARES": {Chooser: 543},
        "ROBOTSTXT_OBEY": False,
        "DOWNLOAD_MAXSIZE": 50_000,
        "DOWNLOAD_TIMEOUT": 3,
        "RECRAWL_CLOSE_IDLE_S": 2,
        "LOG_LEVEL": "INFO",
    }

    def parse(self, response):
        pass
"""
CATCHING = f"""{SPIDER}
class Catching(Plain):
    name = "catching"

    async def start(self):
        for url in self.pages.split():
            yield Request(url, errback=self.caught if "caught" in url else self.left)

    def caught(self, failure):
        self.logger.info("caught %s of %s", failure.type.__name__, failure.request.url)

    def left(self, failure):
        failure.trap(KeyError)
"""
LONG, ZIPPED = b"x" * 200_000, {"Content-Encoding": "gzip"}
CHUNKED = {"Transfer-Encoding": "chunked", "Content-Length": None}
CHUNKS = b"".join(b"2710\r\n" + b"y" * 10_000 + b"\r\n" for _ in range(20)) + b"0\r\n\r\n"
CUT = {"Content-Length": "5000", "Connection": "close"}
UNREAD = {
    "/long": (200, {}, LONG),
    "/long-without-length": (200, CHUNKED, CHUNKS),
    "/long-once-unpacked": (200, ZIPPED, gzip.compress(LONG)),
    "/broken-gzip": (200, ZIPPED, b"this is no gzip at all"),
    "/half-a-gzip": (200, ZIPPED, gzip.compress(bytes(range(256)) * 90)[:40]),
    "/cut-short": (200, CUT, b"the begin"),
    "/cut-chunks": (200, CHUNKED | {"Connection": "close"}, CHUNKS[:20_000]),
    "/filtered": page("another language"),
    "/long-404": (404, {}, LONG),
    "/broken-403": (403, ZIPPED, b"this is no gzip at all"),
    "/cut-301": (301, CUT | {"Location": "https://elsewhere.example/"}, b"the begin"),
}
"""Answers whose content Scrapy does not pass on."""
READ = {
    "/odd-encoding": (200, {"Content-Encoding": "x-own"}, b"\x00\x01\x02"),
    "/to-ftp": (302, {"Location": "ftp://files.example/"}, b"moved"),
    "/to-an-app": (302, {"Location": "intent://scan/#Intent;end"}, b"moved"),
    "/plain": page("plain"),
}
SLOW = {"/no-end": (200, {"Content-Length": "5000"}, b"the begin")}
UNASKED = ("/mine", "/fault")
ODD_PLACES = ("mailto:a@b.example", "javascript:void(0)", "http://[::1", "http://host:99999/")
"""Addresses that no request can have."""


@pytest.fixture
def crawled(tmp_path, sqlite_url, monkeypatch):
    """A function that has a spider crawl pages of a site; it returns the site and the service."""
    monkeypatch.setenv("RECRAWL_HOST_DELAY_S", "0")
    monkeypatch.setenv("RECRAWL_HOST_CONCURRENCY", "0")
    spider = tmp_path / "plain.py"

    def crawl(live, site, paths, *options, code=SPIDER):
        spider.write_text(code)
        live.register(*map(site.url, () if options else paths))
        command = ("-m", "scrapy", "runspider", spider, "-s", f"RECRAWL_URL={live.url}", *options)
        with running_python(tmp_path, *command) as process:
            assert process.wait(PATIENCE_S) == 0
        return {path: live.get("/pages", url=site.url(path)).json() for path in paths}

    with running(sqlite_url, clock=lambda: datetime.now(UTC)) as live:
        yield live, crawl


@pytest.fixture
def log(tmp_path):
    """The log of the crawler, once it has ended."""
    return (tmp_path / "output.txt").read_text


def host_of(live):
    host = live.get("/hosts/127.0.0.1").json()
    assert host["n_leased"] == 0
    return host["host_queue"]


def status(shown):
    return shown["last_crawls"][0]["status"]


@pytest.mark.slow
def test_an_answer_that_is_not_read_is_reported_by_its_status_and_pauses_no_host(crawled, log):
    live, crawl = crawled
    pages = UNREAD | READ
    with serving(pages) as site:
        shown = crawl(live, site, pages)
        assert {path: site.hits[path] for path in pages} == dict.fromkeys(pages, 1)
    assert {path: status(each) for path, each in shown.items()} == {
        path: answer[0] for path, answer in pages.items()
    }
    without = {path for path, each in shown.items() if each["n_failures"]}
    assert without == {*UNREAD, "/to-ftp", "/to-an-app"}
    assert not any(each["unfinished"] for each in shown.values())
    queue = host_of(live)
    assert (queue["paused_until"], queue["n_failures"]) == (None, 0)
    assert "Traceback" not in log()
    reason = "BodyTooLong: the body has more than 50000 bytes (DOWNLOAD_MAXSIZE)"
    assert f"Error downloading <GET {site.url('/long')}>: {reason}\n" in log()
    assert f"Error downloading <GET {site.url('/broken-gzip')}>: BadGzipFile: " in log()
    assert f"Error downloading <GET {site.url('/cut-short')}>: ResponseDataLossError\n" in log()
    assert f"Error downloading <GET {site.url('/long-once-unpacked')}>" not in log(), "Scrapy warns"


@pytest.mark.slow
def test_a_page_that_this_crawler_refuses_is_returned_and_says_nothing_of_its_site(crawled):
    live, crawl = crawled
    paths = [*(f"{path}/{i}" for path in UNASKED for i in range(4)), "/robots-says-no"]
    with serving({}) as site:
        shown = crawl(live, site, paths)
        assert not site.hits
    denied = shown.pop("/robots-says-no")
    assert denied["last_crawls"][0]["robots_denied"] is True
    for each in shown.values():
        assert (each["last_crawls"], each["n_failures"]) == ([], 0)
        assert (each["unfinished"]["ending"], each["unfinished"]["n"]) == ("returned", 2)
    queue = host_of(live)
    assert (queue["paused_until"], queue["n_failures"]) == (None, 0)


@pytest.mark.slow
def test_an_answer_without_an_end_is_no_answer(crawled, log):
    live, crawl = crawled
    with serving(SLOW) as site:
        shown = crawl(live, site, SLOW)
    assert [status(each) for each in shown.values()] == [0]
    assert host_of(live)["n_failures"] == 1
    assert "DownloadTimeoutError: Getting" in log()
    assert "Traceback" not in log()


@pytest.mark.slow
def test_an_errback_has_the_failure_of_a_site_and_one_that_leaves_it_leaves_a_line(crawled, log):
    live, crawl = crawled
    pages = {f"{path}{kind}": UNREAD[path] for path in UNREAD for kind in ("/caught", "/left")}
    pages = {path: pages[path] for path in pages if path.startswith(("/long/", "/cut-short/"))}
    with serving(pages) as site:
        urls = " ".join(map(site.url, pages))
        shown = crawl(live, site, pages, "-a", f"pages={urls}", code=CATCHING)
    assert {status(each) for each in shown.values()} == {200}
    assert all(each["n_failures"] == 1 for each in shown.values())
    for path, error in (("/long", "BodyTooLong"), ("/cut-short", "ResponseDataLossError")):
        assert f"caught {error} of {site.url(path)}/caught" in log()
        assert f"Error downloading <GET {site.url(path)}/left>: {error}" in log()
        assert f"Error downloading <GET {site.url(path)}/caught>" not in log()
    assert "Traceback" not in log()


@pytest.mark.slow
def test_a_fault_of_a_middleware_is_logged_with_its_traceback(crawled, log):
    live, crawl = crawled
    with serving({}) as site:
        crawl(live, site, ["/fault"])
    assert "ValueError: a fault of the middleware" in log()
    assert "Traceback" in log()


@pytest.mark.slow
def test_a_document_that_leads_to_no_page_is_content_without_more(crawled, log):
    live, crawl = crawled
    text = '<html><head><meta http-equiv="refresh" content="0; url={}"></head></html>'
    pages = {f"/{k}": page(text.format(place)) for k, place in enumerate(ODD_PLACES)}
    with serving(pages) as site:
        shown = crawl(live, site, pages)
    assert [status(each) for each in shown.values()] == [200] * len(ODD_PLACES)
    assert "Traceback" not in log()


REACTORS = [
    f"twisted.internet.{name}"
    for name in ("selectreactor.SelectReactor", "asyncioreactor.AsyncioSelectorReactor")
]


@pytest.mark.slow
@pytest.mark.parametrize("reactor", REACTORS)
def test_a_spider_that_closes_returns_the_pages_that_wait_for_a_delay(reactor, crawled, log):
    live, crawl = crawled
    delay = {
        "/robots.txt": (200, {"Content-Type": "text/plain"}, b"User-agent: *\nCrawl-delay: 25")
    }
    pages = {f"/{k}": page(str(k)) for k in range(3)}
    code = SPIDER.replace('"ROBOTSTXT_OBEY": False', '"ROBOTSTXT_OBEY": True')
    code = code.replace('"RECRAWL_CLOSE_IDLE_S": 2', '"CLOSESPIDER_PAGECOUNT": 2')
    with serving(delay | pages) as site:
        live.register(*map(site.url, pages))
        shown = crawl(live, site, pages, "-s", f"TWISTED_REACTOR={reactor}", code=code)
        assert sum(site.hits[path] for path in pages) == 1
    # a page without a request is no page without an answer
    assert sorted(len(each["last_crawls"]) for each in shown.values()) == [0, 0, 1]
    assert host_of(live)["n_failures"] == 0
    assert "Traceback" not in log()
