"""A row that another session of Postgres holds: who waits, who goes on, and what is refused."""

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import psycopg
import pytest
from support.live_server import running, until

from service.api.responses.problems import TYPES
from service.storage.pages import postgres_states

pytestmark = pytest.mark.dear

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


@pytest.mark.dear
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


LOCK_QUEUE = """
SELECT FROM host_queues JOIN hosts ON queue_id = host_id WHERE host = %s FOR UPDATE OF host_queues
"""


def registered(live, *urls, **fields):
    return live.post("/pages", [{"url": url, **fields} for url in urls])


def test_new_pages_of_a_locked_host_queue_are_registered_at_once(live, operator):
    operator.execute(LOCK_QUEUE, ["a.example"])
    answer = registered(live, "https://a.example/new", "https://new.example/")
    assert answer.status_code == 200, answer.text
    assert answer.json()["created"] == 2
    assert {c["url"] for c in leases(live)} >= {"https://new.example/"}, "others are queued"
    operator.rollback()


def test_pages_of_a_locked_host_queue_are_leased_after_the_next_fill(live, operator):
    operator.execute(LOCK_QUEUE, ["a.example"])
    registered(live, "https://a.example/new")
    operator.rollback()
    live.epoch()
    assert "https://a.example/new" in {c["url"] for c in leases(live)}


def leases(live):
    return live.post("/leases", {"count": 100}).json()["items"]


@pytest.mark.parametrize("fields", [{"importance": 7.0}, {"tags": ["x"]}, {"max_crawl_rate": 2.0}])
def test_one_locked_page_of_a_registration_is_refused_and_the_others_count(live, operator, fields):
    operator.execute("SELECT FROM pages WHERE url = %s FOR UPDATE", [URLS[0]])
    answer = registered(live, *URLS, "https://new.example/", **fields).json()
    assert (answer["n_rejected"], answer["created"]) == (1, 1)
    (refused,) = answer["rejected"]
    assert (refused["index"], refused["code"]) == (0, "page_locked")
    assert answer["page_ids"][0] is None
    assert all(answer["page_ids"][1:])
    operator.rollback()
    assert registered(live, URLS[0], **fields).json()["n_rejected"] == 0


@pytest.mark.dear
def test_a_registration_of_a_locked_page_waits_and_others_go_on(live, operator):
    operator.execute("SELECT FROM pages WHERE url = %s FOR UPDATE", [URLS[0]])
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(registered, live, URLS[0], importance=7.0)
        registrar = live.service.registrations.flush.__self__
        until(lambda: registrar.waiting.waiting, "the registration waits")
        assert registered(live, "https://new.example/").json()["created"] == 1
        operator.rollback()
        assert waiting.result().json()["accepted"] == 1
    (page,) = live.get("/pages", host="a.example").json()["items"]
    assert page["importance"] == 7.0


def test_a_registration_of_a_locked_page_alone_is_unavailable(live, operator):
    operator.execute("SELECT FROM pages WHERE url = %s FOR UPDATE", [URLS[0]])
    answer = registered(live, URLS[0], importance=7.0)
    assert (answer.status_code, answer.json()["type"]) == (503, f"{TYPES}row-locked")


@pytest.mark.dear
def test_a_locked_host_row_holds_up_no_registration(live, operator):
    operator.execute("SELECT FROM hosts WHERE host = 'a.example' FOR UPDATE")
    assert registered(live, "https://a.example/new").json()["created"] == 1


def test_registrations_wait_for_a_short_lock_of_a_whole_table(live, operator):
    operator.execute("LOCK TABLE pages IN SHARE ROW EXCLUSIVE MODE")
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(registered, live, "https://new.example/")
        waits = "SELECT FROM pg_locks WHERE NOT granted AND relation = 'pages'::regclass"
        with closing(psycopg.connect(operator.info.dsn, password=None)) as watch:
            until(lambda: watch.execute(waits).fetchall(), "the registration waits")
        operator.rollback()
        assert waiting.result().json()["created"] == 1
