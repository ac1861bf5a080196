"""The pages on changes and webhooks run as they stand: an index in step, and a message to Slack."""

import json
import re
import sqlite3
import threading
from collections import Counter
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer

import pytest
from support.live_server import Live, running, until
from support.local_site import page, serving
from support.pages import DOCS, blocks
from support.processes import free_port, running_python
from support.receiver import SECRET

SERVICE = "http://127.0.0.1:8000"


def code(name: str, language: str = "python") -> str:
    (block,) = blocks((DOCS / "how-to" / f"{name}.md").read_text(), language)
    return block.text


@pytest.fixture
def live(sqlite_url):
    with running(sqlite_url, clock=lambda: datetime.now(UTC), webhooks_private=True) as live:
        yield live


def report(live: Live, url: str, hours_ago: float = 0, **fields) -> None:
    at = datetime.now(UTC) - timedelta(hours=hours_ago)
    item = {"url": url, "observed_at": at.isoformat(), **fields}
    assert live.post("/observations", [item]).json()["accepted"] == 1


@pytest.mark.slow
def test_only_what_changed_is_embedded_again_and_a_restart_repeats_nothing(live, tmp_path):
    site_pages = {"/docs/a": page("apples"), "/docs/b": page("bears"), "/news": page("news")}
    with serving(site_pages) as site:
        script = code("re-embed").replace(SERVICE, live.url)
        script = script.replace("https://example.com", site.url(""))
        for path in site_pages:
            report(live, site.url(path), hours_ago=4, digest="one")
        with running_python(tmp_path, "-c", script):
            until(lambda: len(vectors(tmp_path)) == 2, "both pages of the prefix are embedded")
        report(live, site.url("/docs/a"), digest="two")
        for hours_ago in (2, 0):  # a second look confirms the first
            report(live, site.url("/docs/b"), hours_ago, status=404)
        with running_python(tmp_path, "-c", script):
            until(lambda: len(vectors(tmp_path)) == 1, "the page that is gone is deleted")
            until(lambda: site.hits["/docs/a"] == 2, "the page that changed is embedded again")
    assert site.hits == {"/docs/a": 2, "/docs/b": 1}
    assert [url for url, *_ in vectors(tmp_path)] == [site.url("/docs/a")]


class OddSite(ThreadingHTTPServer):
    """A site with pages that are slow, gone, forbidden, moved, or fail at first."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), OddHandler)
        self.hits: Counter[str] = Counter()
        self.held = threading.Event()
        """Set while a request for /docs/held waits."""
        self.release = threading.Event()

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server_port}{path}"


class OddHandler(BaseHTTPRequestHandler):
    server: OddSite

    def do_GET(self) -> None:
        path = self.path
        self.server.hits[path] += 1
        if path == "/docs/held" and not self.server.release.is_set():
            self.server.held.set()
            self.server.release.wait(60)
        first = self.server.hits[path] == 1
        gone = {"/docs/gone": 404, "/docs/forbidden": 403, "/docs/moved": 301}
        status = 503 if path == "/docs/failing" and first else gone.get(path, 200)
        self.send_response(status)
        if status == 301:
            self.send_header("Location", self.server.url("/docs/plain"))
        self.end_headers()
        with suppress(OSError):
            if path == "/docs/slow" and first:
                while True:  # a byte now and then, without an end
                    self.wfile.write(b" ")
                    self.wfile.flush()
                    self.server.release.wait(0.05)
            self.wfile.write(f"the page {path}".encode())

    def log_message(self, *_) -> None:
        """Write nothing."""


@contextmanager
def odd_site():
    with OddSite() as site:
        thread = threading.Thread(target=site.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield site
        finally:
            site.release.set()
            site.shutdown()
            thread.join()


@pytest.mark.slow
def test_odd_pages_stop_nothing_and_a_kill_loses_and_repeats_nothing(live, tmp_path):
    kinds = "plain", "slow", "gone", "forbidden", "moved", "failing", "held", "last"
    with odd_site() as site:
        script = code("re-embed").replace(SERVICE, live.url)
        script = script.replace("https://example.com", site.url(""))
        for old, new in (
            ("PAGE_S = 20.0", "PAGE_S = 5.0"),
            ("RETRY_S, TRIES = 60.0", "RETRY_S, TRIES = 0.1"),
        ):
            assert old in script
            script = script.replace(old, new)
        for hours_ago, digest in ((5, "one"), (4, "two"), (3, "three")):
            for kind in kinds:
                report(live, site.url(f"/docs/{kind}"), hours_ago, digest=digest)
        with running_python(tmp_path, "-c", script) as run:
            assert site.held.wait(60)
            before = urls(tmp_path, site)
            run.kill()
            run.wait()
        assert urls(tmp_path, site) == before
        assert "last" not in before
        site.release.set()
        embedded = {"plain", "slow", "failing", "held", "last"}
        with running_python(tmp_path, "-c", script):
            until(lambda: urls(tmp_path, site) == embedded, "all pages with content are embedded")
            for hours_ago in (2, 0):
                moved = {"status": 301, "redirect_url": site.url("/docs/last")}
                report(live, site.url("/docs/plain"), hours_ago, **moved)
            report(live, site.url("/docs/last"), digest="three")
            until(lambda: "plain" not in urls(tmp_path, site), "a page that moved is deleted")
    hits = {path.removeprefix("/docs/"): n for path, n in site.hits.items()}
    twice = {"slow", "failing", "held"}
    assert hits == {kind: 2 if kind in twice else 1 for kind in kinds}


def urls(directory, site) -> set[str]:
    return {url.removeprefix(site.url("/docs/")) for url, *_ in vectors(directory)}


def vectors(directory) -> list:
    if not (directory / "index.db").exists():
        return []
    with sqlite3.connect(directory / "index.db") as index:
        try:
            return index.execute("SELECT * FROM vectors").fetchall()
        except sqlite3.OperationalError:
            return []


@contextmanager
def slack():
    """Run a server in place of Slack; yield its address and the messages."""
    messages = []

    class Channel(BaseHTTPRequestHandler):
        def do_POST(self):
            messages.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            """Write nothing."""

    server = HTTPServer(("127.0.0.1", 0), Channel)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/", messages
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.slow
def test_the_receiver_of_the_page_tells_slack_what_is_signed(live, tmp_path):
    script, port = code("webhooks"), free_port()
    written = [line for line in script.splitlines() if line.strip()]
    assert len(written) <= 22
    with slack() as (address, messages):
        names = {"SLACK_URL": address, "WEBHOOK_SECRET": SECRET, "PORT": str(port)}
        prologue = f"import os; os.environ.update({names!r})\n"
        with running_python(tmp_path, "-c", prologue + script):
            (request,) = re.findall(r"-d '(.*)'", code("webhooks", "sh"), re.DOTALL)
            body = json.loads(request.replace("'\"$WEBHOOK_SECRET\"'", SECRET))
            assert body["secret"] == SECRET
            body["url"] = f"http://127.0.0.1:{port}/"
            created = live.client.post("/webhooks", json=body).json()
            tested = f"/webhooks/{created['id']}/test"
            until(lambda: live.client.post(tested).json()["status"] == 204, "the receiver runs")
            report(live, "https://example.com/news", digest="one")
            report(live, "https://example.com/news", digest="two")
            live.service.courier.run_once()
            strange = live.client.patch(
                f"/webhooks/{created['id']}", json={"secret": f"whsec_{'A' * 43}="}
            )
            assert strange.status_code == 200
    assert messages[-1] == {"text": "changed: https://example.com/news"}
    assert messages[0] == {"text": "changed: https://example.com/"}


def test_ids_of_the_page_on_changes_are_those_of_the_service():
    """Every kind that the page explains exists, and the other way round."""
    page = (DOCS / "concepts" / "changes.md").read_text()
    kinds = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    assert sorted(kinds) == ["back", "changed", "gone", "moved", "new"]
