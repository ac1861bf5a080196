"""A row that another session of Postgres holds: who waits, who goes on, and what is refused."""

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import psycopg
import pytest
from support.live_server import running, until

from service.api.responses.problems import TYPES
from service.storage.pages import postgres_states

URLS = [f"https://{host}.example/" for host in "abcdef"]
LOCK = "SELECT FROM page_states WHERE page_id = %s FOR UPDATE"


@pytest.fixture
def live(postgres_url, monkeypatch):
    """Serve with a wait of half a second for a locked page."""
    monkeypatch.setattr(postgres_states, "HURRY_S", 0.02)
    options = {"host_delay_s": 0, "host_concurrency": 0, "database_timeout_s": 1}
    with running(postgres_url, **options) as live:
        live.register(*URLS)
        yield live


@pytest.fixture
def operator(postgres_url):
    with closing(psycopg.connect(postgres_url)) as operator:
        yield operator
        operator.rollback()


def crawl(live, page_id, **fields):
    return {"page_id": page_id, "observed_at": live.clock().isoformat(), "status": 304, **fields}


def pinged(live, page_id):
    return {"page_id": page_id, "changed_at": live.clock().isoformat()}


def page_ids(live):
    return [item["page_id"] for item in live.get("/pages").json()["items"]]


def test_one_locked_page_of_a_request_is_refused_and_the_others_count(live, operator):
    first, *others = page_ids(live)
    operator.execute(LOCK, [first])
    items = [crawl(live, page) for page in (*others, first)]
    lines = "\n".join(json.dumps({**item, "status": 200, "digest": "1"}) for item in items)
    ndjson = {"content": lines, "headers": {"Content-Type": "application/x-ndjson"}}
    for response in (
        live.post("/observations", items),
        live.client.post("/observations", **ndjson),
        live.post(
            "/pings",
            [{"page_id": i, "changed_at": live.clock().isoformat()} for i in page_ids(live)],
        ),
    ):
        counts = response.json()
        assert (response.status_code, counts["n_rejected"]) == (200, 1)
        assert counts["rejected"][0]["code"] == "page_locked"
        assert counts["accepted"] + counts["duplicate"] == len(others)


@pytest.mark.parametrize("path", ["/observations", "/pings"])
def test_a_request_for_a_locked_page_alone_is_unavailable(live, operator, path):
    (page, *_) = page_ids(live)
    operator.execute(LOCK, [page])
    item = crawl(live, page) if path == "/observations" else pinged(live, page)
    response = live.post(path, [item])
    assert response.status_code == 503
    assert response.json()["type"] == f"{TYPES}row-locked"
    assert response.headers["Retry-After"]
    operator.rollback()
    assert live.post("/observations", [crawl(live, page)]).json()["accepted"] == 1


@pytest.mark.parametrize("key", [None, "k"])
def test_a_report_of_a_locked_page_does_not_hold_up_other_lease_requests(live, operator, key):
    (leased,) = live.post("/leases", {"count": 1}).json()["items"]
    operator.execute(LOCK, [leased["page_id"]])
    report = [{"lease": leased["lease"], "observed_at": live.clock().isoformat(), "digest": "1"}]
    headers = {"Idempotency-Key": key} if key else {}
    with ThreadPoolExecutor() as pool:
        body = {"count": 1, "report": report}
        waiting = pool.submit(live.client.post, "/leases", json=body, headers=headers)
        recorder = live.service.small_posts.flush.__self__.recorder
        until(lambda: recorder.crawls.waiting, "the report waits")
        assert len(live.post("/leases", {"count": 1}).json()["items"]) == 1
        operator.rollback()
        reported = waiting.result().json()["reported"]
    assert (reported["accepted"], reported["leases_ended"]) == (1, 1)
    again = live.client.post("/leases", json=body, headers=headers).json()
    assert again["reported"]["duplicate"] == 1
    assert again["items"]
