"""Spiders crawl what Recrawl says: real Scrapy processes, a live server, a site on this machine."""

import json
import signal
import subprocess
import sys
import threading
from collections import Counter
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from support.live_server import PATIENCE_S, running, until
from support.processes import environment, free_port

from recrawl_client import Problem, Refused, Unavailable, Undelivered
from recrawl_client.scrapy import _ended

EXAMPLE = Path(__file__).parents[2] / "examples" / "spider.py"
GATE_WAITS_S = 180


class Site:
    """A few pages with links; those under /gated wait until the gate is opened."""

    def __init__(self):
        self.hits = Counter()
        self.gate = threading.Event()
        self.port = 0
        self.dead_port = free_port()

    def page(self, path):
        """Give status, headers and body."""
        links = ["/1", "/2", "/gone", "/moved", "/broken", "/private", "mailto:me@example.com"]
        links += [f"http://localhost:{self.port}/busy", f"http://localhost:{self.dead_port}/"]
        listed = {"/": links, "/gated": [f"/gated/{i}" for i in range(20)]}
        anchors = "".join(f"<a href='{link}'>x</a>" for link in listed.get(path, []))
        text = f"<title>{path}</title>{anchors}".encode()
        if path.startswith("/gated/"):
            self.gate.wait(GATE_WAITS_S)
        special = {
            "/robots.txt": (200, {}, b"User-agent: *\nDisallow: /private"),
            "/gone": (404, {}, text),
            "/moved": (302, {"Location": "/1"}, b""),
            "/broken": (302, {"Location": "http://[::1/x"}, b""),
            "/busy": (429, {"Retry-After": "77"}, b""),
            "/2": (203, {}, text),
        }
        return special.get(path, (200, {}, text))


@pytest.fixture
def site():
    made = Site()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            made.hits[self.path] += 1
            status, headers, body = made.page(self.path)
            self.send_response(status)
            given = {"Content-Type": "text/html", "Content-Length": str(len(body)), **headers}
            for name, value in given.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

    with Server(("127.0.0.1", 0), Handler) as server:
        made.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield made
        made.gate.set()
        server.shutdown()
        thread.join()


@pytest.fixture
def live(sqlite_url, monkeypatch):
    """A service in real time that leaves hosts no rest."""
    monkeypatch.setenv("RECRAWL_HOST_DELAY_S", "0")
    monkeypatch.setenv("RECRAWL_HOST_CONCURRENCY", "0")
    with running(sqlite_url, clock=lambda: datetime.now(UTC)) as live:
        yield live


@contextmanager
def scrapy(directory, live, start, spider=EXAMPLE, **settings):
    """Run a spider in a process of its own."""
    settings = {"RECRAWL_URL": live.url, "LOG_LEVEL": "INFO", **settings}
    command = [sys.executable, "-m", "scrapy", "runspider", str(spider), "-a", f"start={start}"]
    command += [word for name, value in settings.items() for word in ("-s", f"{name}={value}")]
    with (directory / "scrapy.log").open("wb") as log:
        popen = subprocess.Popen(
            [*command, "-O", "items.json"], cwd=directory, stdout=log, stderr=log, env=environment()
        )
    try:
        yield popen
    finally:
        popen.kill()
        popen.wait()


def status(live, url):
    """Give the status that was reported last of a page, "denied" by robots.txt."""
    last = live.get("/pages", url=url).json()["last_crawls"][0]
    return "denied" if last["robots_denied"] else last["status"]


@pytest.mark.slow
def test_a_site_is_found_crawled_once_and_reported(tmp_path, live, site):
    home = f"http://127.0.0.1:{site.port}"
    with scrapy(tmp_path, live, f"{home}/", RECRAWL_CLOSE_IDLE_S=2) as spider:
        ended = spider.wait(PATIENCE_S)
    log = (tmp_path / "scrapy.log").read_text()
    assert ended == 0, log
    assert "spider_exceptions" not in log, log
    assert "Error caught on signal handler" not in log, log
    items = json.loads((tmp_path / "items.json").read_text())
    assert Counter(item["title"] for item in items) == {"/": 1, "/1": 1, "/2": 1}
    del site.hits["/robots.txt"]
    expected = {"/": 200, "/2": 203, "/gone": 404, "/moved": 302, "/broken": 302}
    assert site.hits == dict.fromkeys((*expected, "/1", "/busy"), 1)
    assert {path: status(live, home + path) for path in expected} == expected
    assert status(live, f"{home}/private") == "denied"
    assert live.get("/pages", url=f"{home}/moved").json()["redirects_to"]["url"] == f"{home}/1"
    assert status(live, f"http://localhost:{site.port}/busy") == 429
    assert status(live, f"http://localhost:{site.dead_port}/") == 0
    busy = live.get("/hosts/localhost").json()
    left = datetime.fromisoformat(busy["host_queue"]["paused_until"]) - datetime.now(UTC)
    assert left.total_seconds() > 20
    assert busy["n_leased"] == live.get("/hosts/127.0.0.1").json()["n_leased"] == 0


@pytest.mark.slow
def test_a_spider_that_is_stopped_reports_what_it_did_and_gives_back_the_rest(tmp_path, live, site):
    home = f"http://127.0.0.1:{site.port}"
    with scrapy(tmp_path, live, f"{home}/gated", CONCURRENT_REQUESTS_PER_DOMAIN=4) as spider:
        until(lambda: sum(site.hits.values()) >= 6, "pages are being fetched")
        until(lambda: live.get("/hosts/127.0.0.1").json()["n_leased"] == 20, "all are leased")
        spider.send_signal(signal.SIGTERM)
        until(lambda: "Closing spider" in (tmp_path / "scrapy.log").read_text(), "it closes")
        site.gate.set()
        assert spider.wait(PATIENCE_S) == 0
    fetched = [path for path in site.hits if path.startswith("/gated/")]
    host = live.get("/hosts/127.0.0.1").json()
    assert (host["n_leased"], host["n_pages"]) == (0, 21)
    crawled = [live.get("/pages", url=f"{home}/gated/{i}").json() for i in range(20)]
    assert sum(page["last_crawl_at"] is not None for page in crawled) == len(fetched) < 20


SPIDER = """
from datetime import UTC, datetime
from scrapy import FormRequest, Request, Spider

class Own(Spider):
    name = "own"
    custom_settings = {"SCHEDULER": "recrawl_client.scrapy.Scheduler"}

    def recrawl_digest(self, response):
        return "always the same"

    def __init__(self, start, **given):
        super().__init__(**given)
        self.site = start

    async def start(self):
        yield Request(self.site + "now", meta={"recrawl_now": True}, callback=self.told)

    def told(self, response):
        changed_at = datetime.now(UTC)
        yield Request(self.site + "1", meta={"recrawl_changed_at": changed_at})
        yield Request(self.site + "2")

    def parse(self, response):
        yield {"title": response.url}
"""


@pytest.mark.slow
def test_a_spider_may_announce_changes_judge_content_and_crawl_by_itself(tmp_path, live, site):
    home = f"http://127.0.0.1:{site.port}/"
    path = tmp_path / "own.py"
    path.write_text(SPIDER)
    asked = {"RECRAWL_REGISTER": False, "RECRAWL_CLOSE_IDLE_S": 2}
    with scrapy(tmp_path, live, home, path, **asked) as spider:
        assert spider.wait(PATIENCE_S) == 0, (tmp_path / "scrapy.log").read_text()
    del site.hits["/robots.txt"]
    assert site.hits == {"/now": 1, "/1": 1}
    shown = live.get("/pages", url=home + "1").json()
    assert [entry["kind"] for entry in shown["last_crawls"]] == ["crawl", "ping"]
    assert live.get("/pages", url=home + "2").status_code == 404


BROKEN_DIGEST = """
from scrapy import Spider

class Broken(Spider):
    name = "broken"
    custom_settings = {"SCHEDULER": "recrawl_client.scrapy.Scheduler"}

    def __init__(self, start, **given):
        super().__init__(start_urls=[start], **given)

    def recrawl_digest(self, response):
        raise ValueError("no main in it")

    def parse(self, response):
        pass
"""


@pytest.mark.slow
def test_a_digest_that_fails_is_told_and_holds_no_lease(tmp_path, live, site):
    home = f"http://127.0.0.1:{site.port}/"
    path = tmp_path / "broken.py"
    path.write_text(BROKEN_DIGEST)
    with scrapy(tmp_path, live, home, path, RECRAWL_CLOSE_IDLE_S=2) as spider:
        assert spider.wait(PATIENCE_S) == 0
    assert "no main in it" in (tmp_path / "scrapy.log").read_text()
    assert status(live, home) == 200
    assert live.get("/hosts/127.0.0.1").json()["n_leased"] == 0


NO_CONTENT = """
from scrapy import Spider

class Empty(Spider):
    name = "empty"
    custom_settings = {"SCHEDULER": "recrawl_client.scrapy.Scheduler"}

    def __init__(self, start, **given):
        super().__init__(start_urls=[start], **given)

    def recrawl_digest(self, response):
        found = {"none": None, "empty": "", "number": 7, "long": "x" * 300}
        return found[self.settings["FOUND"]]

    def parse(self, response):
        pass
"""


@pytest.mark.slow
@pytest.mark.parametrize("found", ["none", "empty", "number", "long"])
def test_any_digest_is_a_report_that_the_service_takes(tmp_path, live, site, found):
    home = f"http://127.0.0.1:{site.port}/"
    path = tmp_path / "empty.py"
    path.write_text(NO_CONTENT)
    with scrapy(tmp_path, live, home, path, RECRAWL_CLOSE_IDLE_S=2, FOUND=found) as spider:
        assert spider.wait(PATIENCE_S) == 0
    page = live.get("/pages", url=home).json()
    assert (status(live, home), page["unfinished"]) == (200, None)
    assert page["n_failures"] == (found in ("none", "empty"))
    assert live.get("/hosts/127.0.0.1").json()["n_leased"] == 0


@pytest.mark.parametrize(
    ("why", "was_there"),
    [
        (Unavailable("no answer"), False),
        (Refused(422, Problem(type="", title="Unprocessable", status=422, detail="")), True),
    ],
)
def test_leases_are_given_back_unless_the_service_is_away(why, was_there, caplog):
    def last():
        raise Undelivered([1, 2], why) from why

    assert _ended(last) == was_there
    (record,) = caplog.records
    assert record.getMessage() == f"2 items were not delivered: {why}"
    assert record.exc_info is None


@pytest.mark.slow
def test_a_spider_with_an_address_without_scheme_closes_with_one_sentence(tmp_path, live, site):
    address = live.url.removeprefix("http://")
    with scrapy(tmp_path, live, f"http://127.0.0.1:{site.port}/", RECRAWL_URL=address) as spider:
        assert spider.wait(PATIENCE_S) == 0
    log = (tmp_path / "scrapy.log").read_text()
    assert f"RECRAWL_URL: '{address}' is no http:// or https:// address; use one like" in log
    assert "Traceback" not in log
    assert "(recrawl_refused)" in log


@pytest.mark.slow
def test_a_spider_without_a_valid_key_closes_and_says_why(tmp_path, sqlite_url, site):
    with (
        running(sqlite_url, api_keys=("k1",)) as live,
        scrapy(tmp_path, live, f"http://127.0.0.1:{site.port}/", RECRAWL_API_KEY="k2") as spider,
    ):
        assert spider.wait(PATIENCE_S) == 0
    log = (tmp_path / "scrapy.log").read_text()
    assert "the service refused: 401 Unauthorized" in log
    assert "Set RECRAWL_API_KEY in the settings of Scrapy to a key of role crawl." in log
    assert "1 item was not delivered: 401" in log
    assert "Traceback" not in log
