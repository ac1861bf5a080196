"""The pages on changes and webhooks run as they stand: an index in step, and a message to Slack."""

import json
import re
import sqlite3
import threading
from collections import Counter
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer

import httpx
import pytest
from support.live_server import Live, running, until
from support.local_site import page, serving
from support.pages import DOCS, blocks
from support.processes import free_port, running_python
from support.receiver import SECRET

from service.api.cursors import FeedCursor, encode_cursor

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


@pytest.mark.slow
def test_pages_that_are_deleted_leave_the_index_at_once(live, tmp_path):
    site_pages = {f"/docs/{name}": page(name) for name in ("kept", "old", "older")}
    with serving(site_pages) as site:
        script = code("re-embed").replace(SERVICE, live.url)
        script = script.replace("https://example.com", site.url(""))
        for path in site_pages:
            report(live, site.url(path), hours_ago=4, digest="one")
        with running_python(tmp_path, "-c", script):
            until(lambda: urls(tmp_path, site) == {"kept", "old", "older"}, "all are embedded")
        delete(live, site.url("/docs/old"))
        with running_python(tmp_path, "-c", script):
            until(lambda: urls(tmp_path, site) == {"kept", "older"}, "the start drops one")
            delete(live, site.url("/docs/older"))
            until(lambda: urls(tmp_path, site) == {"kept"}, "the feed drops the other")
    assert set(site.hits.values()) == {1}


def delete(live: Live, url: str) -> None:
    page_id = live.client.get("/pages", params={"url": url}).json()["page_id"]
    assert live.client.delete(f"/pages/{page_id}").status_code == 204


class OddSite(ThreadingHTTPServer):
    """A site with pages that are slow, gone, forbidden, moved, or fail at first."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), OddHandler)
        self.hits: Counter[str] = Counter()
        self.held = threading.Event()
        """Set while a request for /docs/held waits."""
        self.release = threading.Event()
        self.statuses: dict[str, int] = {}
        """Statuses of some paths; the test changes them."""

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
        status = self.server.statuses.get(path, status)
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
            ("RETRY_S, DOUBLINGS = 60.0", "RETRY_S, DOUBLINGS = 0.1"),
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
    assert {kind: hits[kind] for kind in embedded} == {
        kind: 2 if kind in twice else 1 for kind in embedded
    }
    assert {url for url, *_ in rows(tmp_path, "todo")} == {
        site.url(f"/docs/{kind}") for kind in {*kinds} - embedded
    }


@pytest.mark.slow
def test_a_page_that_refuses_for_a_moment_keeps_its_vector_and_is_tried_again(live, tmp_path):
    statuses = {f"/docs/{status}": status for status in (301, 302, 403, 404, 410)}
    with odd_site() as site:
        script = code("re-embed").replace(SERVICE, live.url)
        script = script.replace("https://example.com", site.url(""))
        for path in statuses:
            report(live, site.url(path), 2, digest="one")
        with running_python(tmp_path, "-c", script):
            until(lambda: len(vectors(tmp_path)) == len(statuses), "all pages are embedded")
            before = vectors(tmp_path)
            site.statuses = statuses
            for path in statuses:
                report(live, site.url(path), digest=f"two {path}")  # alike would be in doubt
            until(lambda: tries(tmp_path) == [1] * len(statuses), "all pages are put off")
            assert vectors(tmp_path) == before
            site.statuses = {}
            with sqlite3.connect(tmp_path / "index.db") as index:
                index.execute("UPDATE todo SET at = 0")
            until(lambda: not rows(tmp_path, "todo"), "all pages are embedded again")
    assert len(vectors(tmp_path)) == len(statuses)
    assert not {*before} & {*vectors(tmp_path)}


@pytest.mark.slow
def test_an_index_with_an_expired_cursor_is_filled_with_the_pages_that_have_content(live, tmp_path):
    with odd_site() as site:
        script = code("re-embed").replace(SERVICE, live.url)
        script = script.replace("https://example.com", site.url(""))
        for kind in ("plain", "lost", "refused", "down", "deleted"):
            report(live, site.url(f"/docs/{kind}"), 5, digest="one")
        live.register(site.url("/docs/fresh"))
        with running_python(tmp_path, "-c", script):
            until(lambda: len(vectors(tmp_path)) == 5, "all crawled pages are embedded")
        delete(live, site.url("/docs/deleted"))
        for hours_ago in (2, 1):
            report(live, site.url("/docs/lost"), hours_ago, status=404)
        report(live, site.url("/docs/refused"), 1, status=403)
        report(live, site.url("/docs/down"), 1, status=503)
        with sqlite3.connect(tmp_path / "index.db") as index:
            index.execute(
                "UPDATE place SET cursor = ?",
                [encode_cursor(FeedCursor(feed="x", seq=1, offset=0))],
            )
        before = Counter(site.hits)
        with running_python(tmp_path, "-c", script):
            until(lambda: site.hits["/docs/down"] == 2, "the index is filled again")
            until(lambda: site.hits["/docs/plain"] == 2, "the index is filled again")
            until(lambda: not rows(tmp_path, "todo"), "all pages are embedded")
    assert site.hits - before == {"/docs/plain": 1, "/docs/down": 1}
    assert urls(tmp_path, site) == {"plain", "refused", "down"}


@pytest.mark.slow
def test_a_login_to_which_a_section_redirects_is_not_embedded(live, tmp_path):
    section = [f"/docs/{n}" for n in range(6)]
    with odd_site() as site:
        script = code("re-embed").replace(SERVICE, live.url)
        script = script.replace("https://example.com", site.url(""))
        login = site.url("/docs/login")
        for path in section:
            report(live, site.url(path), 5, digest="one")
        with running_python(tmp_path, "-c", script):
            until(lambda: len(vectors(tmp_path)) == len(section), "the section is embedded")
            site.statuses = dict.fromkeys(section, 302)
            for path in section:
                report(live, site.url(path), 4, status=302, redirect_url=login)
            page_id = live.get("/pages", url=login).json()["page_id"]
            for hours_ago in (3, 1):
                at = (datetime.now(UTC) - timedelta(hours=hours_ago)).isoformat()
                crawl = {"page_id": page_id, "observed_at": at, "status": 200, "digest": "login"}
                assert live.post("/observations", [crawl]).json()["accepted"] == 1
                report(live, site.url(f"/docs/after{hours_ago}"), digest="after")
                until(lambda n=hours_ago: f"after{n}" in urls(tmp_path, site), "the feed is read")
                assert "login" not in urls(tmp_path, site)
                (tmp_path / str(hours_ago)).mkdir()
                with running_python(tmp_path / str(hours_ago), "-c", script):  # an index anew
                    until(
                        lambda n=hours_ago: f"after{n}" in urls(tmp_path / str(n), site),
                        "the index is filled",
                    )
                    tried = tmp_path / str(hours_ago)
                    until(lambda at=tried: len(rows(at, "todo")) == len(section), "the rest waits")
    assert site.hits["/docs/login"] == 0
    assert {f"{n}" for n in range(6)} <= urls(tmp_path, site), "old vectors stay"


@contextmanager
def relay(port: int, target: str):
    """Answer at a port as the service at another address does."""

    class Relay(BaseHTTPRequestHandler):
        def do_GET(self):
            headers = {name: self.headers[name] for name in ("Authorization", "Accept")}
            answer = httpx.get(target + self.path, headers=headers, timeout=60)
            self.send_response(answer.status_code)
            self.send_header("Content-Type", answer.headers["Content-Type"])
            self.end_headers()
            self.wfile.write(answer.content)

        def log_message(self, *_):
            """Write nothing."""

    with ThreadingHTTPServer(("127.0.0.1", port), Relay) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.slow
def test_the_script_waits_for_a_service_that_is_away_and_shows_it_a_key(sqlite_url, tmp_path):
    key, port = "k" * 32, free_port()
    away = f"http://127.0.0.1:{port}"
    with (
        running(sqlite_url, clock=lambda: datetime.now(UTC), api_keys=(key,)) as live,
        odd_site() as site,
    ):
        report(live, site.url("/docs/plain"), 1, digest="one")
        script = code("re-embed").replace("https://example.com", site.url(""))
        for old, new in (
            (f'Client("{SERVICE}"', f'Client("{away}", patience_s=0.1'),
            ("PAUSE_S = 10.0", "PAUSE_S = 0.1"),
        ):
            assert old in script
            script = script.replace(old, new)
        prologue = f"import os; os.environ['RECRAWL_API_KEY'] = {key!r}\n"
        output = tmp_path / "output.txt"
        with running_python(tmp_path, "-c", prologue + script):
            until(lambda: output.read_text().count("is it running?") > 1, "the script has waited")
            with relay(port, live.url):
                until(lambda: vectors(tmp_path), "the page is embedded")
    assert urls(tmp_path, site) == {"plain"}


def urls(directory, site) -> set[str]:
    return {url.removeprefix(site.url("/docs/")) for url, *_ in vectors(directory)}


def vectors(directory) -> list:
    return rows(directory, "vectors")


def tries(directory) -> list[int]:
    return [n_tries for _, _, n_tries, _ in rows(directory, "todo")]


def rows(directory, table: str) -> list:
    if not (directory / "index.db").exists():
        return []
    with sqlite3.connect(directory / "index.db") as index:
        try:
            return index.execute(f"SELECT * FROM {table}").fetchall()
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
            again = f"/webhooks/{created['id']}/redeliver"
            assert live.client.post(again, json={"cursor": created["cursor"]}).is_success
            live.service.courier.run_once()
            sent = live.get(f"/webhooks/{created['id']}/deliveries").json()["items"]
            assert [each["status"] for each in sent][:2] == [204, 204]
            strange = live.client.patch(
                f"/webhooks/{created['id']}", json={"secret": f"whsec_{'A' * 43}="}
            )
            assert strange.status_code == 200
    # neither the test nor the repeated event is a message
    assert messages == [{"text": "changed: https://example.com/news"}]


def test_ids_of_the_page_on_changes_are_those_of_the_service():
    """Every kind that the page explains exists, and the other way round."""
    page = (DOCS / "concepts" / "changes.md").read_text()
    kinds = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    assert sorted(kinds) == ["back", "changed", "deleted", "gone", "moved", "new"]
