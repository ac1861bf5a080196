"""Rights that end while a request runs: streams of crawls, of answers, waits and long bodies."""

import json
import threading
import time
from dataclasses import replace
from datetime import timedelta
from secrets import token_bytes

import httpx
import pytest
from support.access_cases import ADMIN, COMMAND, bearer, new_key
from support.live_server import Live, running, until

from service.access.keys import revoke_key, rotate_key
from service.access.roles import right_of
from service.api.routes import listing
from service.ingest import bulk
from service.model.access import Role
from service.model.errors import Forbidden

URL = "https://a.example/"
BLOCK = 3


@pytest.fixture
def live(database_url):
    with running(database_url, api_keys=(ADMIN,), max_items=BLOCK) as live:
        yield live


@pytest.fixture
def sqlite_live(sqlite_url):
    with running(sqlite_url, api_keys=(ADMIN,), max_items=BLOCK) as live:
        yield live


def revoke(live: Live, key_id: str) -> None:
    """Revoke a key as another server does; this one reads it by its thread."""
    with live.service.store.begin() as tx:
        revoke_key(tx, COMMAND, key_id)
    live.service.gate.ring.refresh()


def expire(live: Live, key_id: str) -> None:
    live.clock.advance(hours=2)


def rotate(live: Live, key_id: str) -> None:
    with live.service.store.begin() as tx:
        rotate_key(tx, COMMAND, key_id, timedelta(0), token_bytes)
    live.service.gate.ring.refresh()


def demote(live: Live, key_id: str) -> None:
    """Take the role of a key away, as an operator may in the database."""
    with live.service.store.begin() as tx:
        key = tx.lock_key(key_id)
    ring = live.service.gate.ring
    entry = ring.entries[f"rcr_{key_id}_"]
    ring.entries[f"rcr_{key_id}_"] = ring._entry(replace(key, role=Role.read))
    assert entry.caller.slots is ring.entries[f"rcr_{key_id}_"].caller.slots


ENDS = {revoke: 401, expire: 401, rotate: 401, demote: 403}


def a_key(live: Live, role: Role) -> tuple[str, str]:
    text, key_id = new_key(live.service.store, role, expires_at=live.clock() + timedelta(hours=1))
    live.service.gate.ring.refresh()
    return text, key_id


def pages(live: Live) -> int:
    return len(live.get("/pages").json()["items"])


@pytest.mark.dear
@pytest.mark.parametrize("end", ENDS)
def test_a_stream_writes_no_block_after_the_end_of_its_right(live: Live, end):
    text, key_id = a_key(live, Role.report)
    at = live.clock().isoformat()

    def lines(numbers):
        items = ({"url": f"{URL}{n}", "observed_at": at, "changed": True} for n in numbers)
        return b"".join(json.dumps(item).encode() + b"\n" for item in items)

    def content():
        yield lines(range(BLOCK + 1))
        until(lambda: pages(live) == BLOCK, "the first block is committed")
        end(live, key_id)
        for start in range(BLOCK + 1, 30, BLOCK):
            yield lines(range(start, start + BLOCK))

    headers = {**bearer(text), "Content-Type": "application/x-ndjson"}
    answer = live.client.post("/observations", content=content(), headers=headers)
    assert (answer.status_code, answer.json()["lines_taken"]) == (ENDS[end], BLOCK)
    assert f"the {BLOCK} lines before were accepted" in answer.json()["detail"]
    assert pages(live) == BLOCK


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("path", ["/pages", "/pings", "/observations", "/leases", "/indexnow"])
def test_a_body_counts_only_if_the_right_lasts_until_its_end(sqlite_live: Live, end, path):
    live = sqlite_live
    text, key_id = a_key(live, Role.crawl)
    item, at = {"url": f"{URL}1"}, live.clock().isoformat()
    crawl = {**item, "observed_at": at, "changed": True}
    bodies = {
        "/pages": [item],
        "/pings": [{**item, "changed_at": at}],
        "/observations": [crawl],
        "/leases": {"report": [crawl]},
        "/indexnow": {"host": "a.example", "key": "0123abcd-4567", "urlList": [item["url"]]},
    }
    body = json.dumps(bodies[path]).encode()

    def content():
        yield body[:5]
        caller = live.service.gate.caller(text)
        until(lambda: caller.slots.free < caller.slots.n_slots, "the head is admitted")
        end(live, key_id)
        yield body[5:]

    answer = live.client.post(path, content=content(), headers=bearer(text))
    assert answer.status_code == ENDS[end]
    assert pages(live) == 0


@pytest.mark.dear
@pytest.mark.parametrize("end", [revoke, expire])
def test_a_sitemap_ends_between_two_blocks(live: Live, end, monkeypatch):
    text, key_id = a_key(live, Role.report)
    commit = live.service.registrations.submit

    def submit(job):
        done = commit(job)
        done.result()
        end(live, key_id)
        return done

    monkeypatch.setattr(type(live.service.registrations), "submit", lambda _, job: submit(job))
    entries = "".join(f"<url><loc>{URL}{n}</loc></url>" for n in range(20))
    answer = live.client.post(
        f"/sitemaps?url={URL}s.xml",
        content=f"<urlset>{entries}</urlset>",
        headers={**bearer(text), "Content-Type": "application/xml"},
    )
    assert answer.status_code == 401
    assert f"the {BLOCK} entries before were accepted" in answer.json()["detail"]
    assert pages(live) == BLOCK


def test_a_stream_of_answers_ends_with_the_right(live: Live, monkeypatch):
    monkeypatch.setattr(listing, "BLOCK", 2)
    monkeypatch.setattr(listing, "FIRST_BLOCK", 2)
    for start in range(0, 30, BLOCK):
        live.register(*(f"{URL}{n}" for n in range(start, start + BLOCK)))
    text, key_id = a_key(live, Role.read)
    read, n_read = listing.list_pages, 0

    def list_pages(*args):
        nonlocal n_read
        n_read += 1
        if n_read == 4:
            revoke(live, key_id)
        return read(*args)

    monkeypatch.setattr(listing, "list_pages", list_pages)
    headers = {**bearer(text), "Accept": "application/x-ndjson"}
    taken = []
    with (
        pytest.raises(httpx.RemoteProtocolError),
        live.client.stream("GET", "/pages", headers=headers) as answer,
    ):
        taken += answer.iter_lines()
    assert answer.status_code == 200
    assert n_read < 8


WAITS = {
    "/leases": ("POST", {"wait_s": 30}, "application/json"),
    "/changes?wait_s=30": ("GET", None, "application/json"),
    "/changes?wait_s=30&kind=gone": ("GET", None, "application/x-ndjson"),
    "/schedule?wait_s=30": ("GET", None, "application/json"),
    "/epochs?wait_s=30": ("POST", None, "application/json"),
}


@pytest.mark.dear
@pytest.mark.parametrize("path", WAITS)
def test_a_request_that_waits_ends_soon_after_its_right(sqlite_live: Live, path, monkeypatch):
    live, (method, body, accept) = sqlite_live, WAITS[path]
    text, key_id = a_key(live, Role.admin)
    caller = live.service.gate.caller(text)
    answers = []

    def ask():
        headers = {**bearer(text), "Accept": accept}
        try:
            answer = live.client.request(method, path, json=body, headers=headers)
            answers.append(answer.status_code)
        except httpx.RemoteProtocolError:
            answers.append("broken off")

    asking = threading.Thread(target=ask)
    asking.start()
    watches = live.service.watch, live.service.feed
    until(
        lambda: (
            any(watch.n_waiting for watch in watches)
            or len(live.service.lease_waiters._waiting)
            or caller.slots.free < caller.slots.n_slots
        ),
        "the request waits",
        10,
    )
    revoke(live, key_id)
    began = time.monotonic()
    asking.join(20)
    assert time.monotonic() - began < 15, "it waited on without a right"
    assert answers == ["broken off" if accept.endswith("ndjson") else 401]
    assert caller.slots.free == caller.slots.n_slots


def test_a_bulk_act_ends_between_two_blocks(sqlite_live: Live, monkeypatch):
    live = sqlite_live
    monkeypatch.setattr(bulk, "BLOCK", 2)
    live.register(*(f"{URL}{n}" for n in range(BLOCK)))
    live.register(*(f"{URL}{n}" for n in range(BLOCK, 2 * BLOCK)))
    text, key_id = a_key(live, Role.admin)
    act_on = bulk.act_on

    def act(*args, **options):
        done = act_on(*args, **options)
        revoke(live, key_id)
        return done

    monkeypatch.setattr(bulk, "act_on", act)
    url = "/pages?all_pages=true"
    answer = live.client.request("PATCH", url, json={"importance": 7}, headers=bearer(text))
    assert answer.status_code == 401
    assert [page["importance"] for page in live.get("/pages").json()["items"]].count(7) == 2


def test_the_first_key_ends_the_streams_of_a_service_without_keys(sqlite_url):
    with running(sqlite_url, max_items=BLOCK) as live:
        gate, right = live.service.gate, right_of("post_observations")
        gate.ask_again("", right, "post_observations")
        text, _ = new_key(live.service.store, Role.read)
        gate.ring.refresh()
        with pytest.raises(Forbidden):
            gate.ask_again(text, right, "post_observations")
