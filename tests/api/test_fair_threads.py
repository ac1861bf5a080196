"""Threads that one caller leaves for others, and entries that are paid before the work."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.access_cases import ADMIN, bearer, new_key
from support.live_server import Live, running, until

from service.api.assembly import MAX_THREADS
from service.api.routes import changes, sitemaps
from service.api.threads import share
from service.model.access import Role
from service.storage.stores.sqlite import SqliteStore

URL = "https://a.example/"
SHARE = share(MAX_THREADS)
XML = {"Content-Type": "application/xml"}


def sitemap(n: int, name: str = "s") -> str:
    return f"<urlset>{''.join(f'<url><loc>{URL}{name}{i}</loc></url>' for i in range(n))}</urlset>"


class Gate:
    """A gate before every registration of one name, with the number that stands before it."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.lock = threading.Lock()
        self.n_inside = self.most_inside = 0

    def pass_through(self) -> None:
        with self.lock:
            self.n_inside += 1
            self.most_inside = max(self.most_inside, self.n_inside)
        self.opened.wait(60)
        with self.lock:
            self.n_inside -= 1


@pytest.fixture
def gate(monkeypatch):
    """Hold every sitemap in its thread until the gate opens."""
    gate, read = Gate(), sitemaps.Reader.read

    def held(self, document):
        gate.pass_through()
        return read(self, document)

    monkeypatch.setattr(sitemaps.Reader, "read", held)
    yield gate
    gate.opened.set()


def send(live: Live, headers) -> int:
    path = f"/sitemaps?url={URL}s.xml"
    return live.client.post(path, content=sitemap(3), headers={**headers, **XML}).status_code


def test_a_key_holds_at_most_a_third_of_the_threads(sqlite_url, gate):
    with running(sqlite_url, api_keys=(ADMIN,)) as live, ThreadPoolExecutor(16) as pool:
        text, _ = new_key(live.service.store, Role.report)
        live.service.gate.ring.refresh()
        sent = [pool.submit(send, live, bearer(text)) for _ in range(16)]
        until(lambda: gate.n_inside == SHARE, "the share is used")
        for path in ("/pages", "/epochs", "/changes", "/schedule", "/hosts", "/leases"):
            assert live.get(path).status_code == 200
        assert live.register(f"{URL}1") == [1]
        gate.opened.set()
        assert {each.result() for each in sent} == {200}
    assert gate.most_inside == SHARE


def test_a_caller_without_a_key_counts_by_its_address(sqlite_url, gate):
    """Health is answered while a stranger holds its share."""
    with running(sqlite_url, open=True) as live, ThreadPoolExecutor(16) as pool:
        sent = [pool.submit(send, live, {}) for _ in range(16)]
        until(lambda: gate.n_inside == SHARE, "the share is used")
        assert live.alive()
        gate.opened.set()
        assert {each.result() for each in sent} == {200}
    assert gate.most_inside == SHARE


def test_readers_that_wait_for_their_turn_hold_no_place_of_others(sqlite_url, monkeypatch):
    with running(sqlite_url, api_keys=(ADMIN,)) as live, ThreadPoolExecutor(16) as pool:
        assert isinstance(live.service.store, SqliteStore)
        text, _ = new_key(live.service.store, Role.read)
        live.service.gate.ring.refresh()
        gate, start = Gate(), changes.start

        def held(service, cursor, since):
            if since is not None:
                gate.pass_through()
            return start(service, cursor, since)

        monkeypatch.setattr(changes, "start", held)
        path = "/changes?since=2026-05-01T00:00:00Z"
        sent = [pool.submit(live.client.get, path, headers=bearer(text)) for _ in range(16)]
        until(lambda: gate.n_inside == SHARE, "the share is used")
        assert live.get("/changes").status_code == live.get("/schedule").status_code == 200
        gate.opened.set()
        assert {each.result().status_code for each in sent} == {200}


@pytest.mark.dear
def test_the_sitemaps_of_a_slow_key_are_paid_before_the_work(database_url):
    """Sixteen sitemaps at once: one is taken, the others wait for the debt of it."""
    with running(database_url, api_keys=(ADMIN,), max_items=10) as live:
        text, _ = new_key(live.service.store, Role.report, items_per_s=5.0)
        live.service.gate.ring.refresh()

        def post(i):
            return live.client.post(
                f"/sitemaps?url={URL}s.xml",
                content=sitemap(200, f"{i}-"),
                headers={**bearer(text), **XML},
            )

        with ThreadPoolExecutor(16) as pool:
            answers = list(pool.map(post, range(16)))
        codes = sorted(answer.status_code for answer in answers)
        assert codes[0] == 200
        assert codes.count(429) >= 8
        for answer in answers:
            if answer.status_code == 429:
                assert int(answer.headers["Retry-After"]) >= 1
                assert "5 items a second" in answer.json()["detail"]
        created = sum(a.json().get("created", 0) for a in answers)
        assert created == 200 * codes.count(200)


def test_a_sitemap_costs_its_entries(sqlite_url):
    with running(sqlite_url, api_keys=(ADMIN,), max_items=4) as live:
        text, _ = new_key(live.service.store, Role.report, items_per_s=10.0)
        live.service.gate.ring.refresh()
        bucket = live.service.gate.caller(text).bucket
        path = f"/sitemaps?url={URL}s.xml"
        for name, n in (("a", 9), ("b", 150)):
            before = bucket.left
            headers = {**bearer(text), **XML}
            answer = live.client.post(path, content=sitemap(n, name), headers=headers)
            assert answer.json()["created"] == n
            paid = before - bucket.left
            assert n - 10 < paid <= n + 1
        assert live.client.post(path, content=sitemap(1), headers=headers).status_code == 429
