"""Leases over HTTP: take, report, extend, give back, wait."""

import json
import threading
import time

import httpx
import pytest
from support.live_server import START, Live, running, until

from service.api.responses.problems import TYPES


@pytest.fixture
def rude(database_url, monkeypatch):
    """A service that has no politeness of its own, and two crawls an hour."""
    monkeypatch.setenv("RECRAWL_BANDWIDTH", "48")
    monkeypatch.setenv("RECRAWL_HOST_DELAY_S", "0")
    monkeypatch.setenv("RECRAWL_HOST_CONCURRENCY", "0")
    with running(database_url) as live:
        yield live


def lease(live: Live, **asked):
    response = live.client.post("/leases", json=asked)
    assert response.status_code == 200, response.text
    return response.json()["items"]


def report(live: Live, *crawls, **seen):
    at = live.clock().isoformat()
    response = live.post(
        "/observations", [{"lease": c["lease"], "observed_at": at, **seen} for c in crawls]
    )
    assert response.status_code == 200, response.text
    return response.json()


def test_a_page_is_leased_reported_and_due_again_by_its_rate(rude):
    (page_id,) = rude.register("https://a.example/news")
    rude.epoch()
    (crawl,) = lease(rude, worker="w1", ttl_s=60)
    assert (crawl["page_id"], crawl["url"]) == (page_id, "https://a.example/news")
    assert (crawl["host"], crawl["reason"], crawl["last_crawl_at"]) == ("a.example", "first", None)
    assert crawl["expires_at"] == "2026-05-01T12:01:00Z"
    assert lease(rude) == []
    answer = report(rude, crawl, digest="1")
    assert (answer["accepted"], answer["leases_ended"]) == (1, 1)
    shown = rude.get(f"/pages/{page_id}").json()
    assert shown["last_crawl_at"] == "2026-05-01T12:00:00Z"
    assert lease(rude) == []
    rude.clock.advance(hours=1.1)
    (again,) = lease(rude)
    assert (again["page_id"], again["reason"]) == (page_id, "due")
    assert again["overdue"] >= 1


def test_a_report_under_a_lease_that_has_ended_is_evidence_like_any_other(rude):
    rude.register("https://a.example/")
    (old,) = lease(rude, ttl_s=60)
    rude.clock.advance(seconds=60)
    assert lease(rude) == []
    rude.clock.advance(hours=1)
    (new,) = lease(rude)
    answer = report(rude, old, status=200, digest="1")
    assert (answer["accepted"], answer["leases_ended"]) == (1, 0)
    assert lease(rude) == []
    rude.clock.advance(seconds=1)
    assert report(rude, new, digest="2")["leases_ended"] == 1


@pytest.mark.dear
def test_a_lease_is_reported_by_itself_by_page_or_by_url(rude):
    ids = rude.register("https://a.example/1", "https://a.example/2", "https://a.example/3")
    crawls = {crawl["page_id"]: crawl for crawl in lease(rude)}
    at = START.isoformat()
    answer = rude.post(
        "/observations",
        [
            {"lease": crawls[ids[0]]["lease"], "observed_at": at, "digest": "1"},
            {"lease": crawls[ids[1]]["lease"], "page_id": ids[1], "observed_at": at, "digest": "1"},
            {
                "lease": crawls[ids[2]]["lease"],
                "url": crawls[ids[2]]["url"],
                "observed_at": at,
                "digest": "1",
            },
        ],
    ).json()
    assert (answer["accepted"], answer["leases_ended"]) == (3, 3)


@pytest.mark.parametrize(
    ("item", "field"),
    [
        ({"lease": "1-zz"}, "lease"),
        ({"lease": "0-1"}, "lease"),
        ({"lease": "1-ffffffffffffffff"}, "lease"),
        ({"lease": "1-a", "page_id": 2}, "lease"),
        ({"lease": "1-a", "url": "https://a.example/", "page_id": 1}, "url"),
        ({"lease": "1-a", "retry_after_s": "1"}, "retry_after_s"),
    ],
)
def test_a_report_that_cannot_be_is_refused_by_its_field(rude, item, field):
    item = {"observed_at": START.isoformat(), "digest": "1", **item}
    response = rude.post("/observations", [item])
    assert response.status_code == 422
    assert response.json()["rejected"][0]["field"] == field


@pytest.mark.parametrize("n_others", [0, 40])
def test_a_report_of_another_page_s_url_ends_its_lease_and_nothing_else(rude, n_others):
    rude.register("https://b.example/", *(f"https://b.example/{i}" for i in range(n_others)))
    others = lease(rude, count=n_others + 1)
    (page_id,) = rude.register("https://a.example/")
    (crawl,) = lease(rude)
    at = START.isoformat()
    wrong = [
        {"url": "https://b.example/", "status": 503, "retry_after_s": 600},
        {"url": "https://new.example/", "digest": "1"},
        {"url": "https://new.example/", "status": 302, "redirect_url": "https://far.example/"},
    ]
    good = [{"lease": other["lease"], "observed_at": at, "digest": "1"} for other in others]
    items = [{"lease": crawl["lease"], "observed_at": at, **item} for item in wrong]
    answer = rude.post("/observations", items + good).json()
    assert (answer["accepted"], answer["leases_ended"]) == (len(good), len(good) + 1)
    assert [(r["index"], r["code"], r["field"]) for r in answer["rejected"]] == [
        (i, "lease_mismatch", "lease") for i in range(3)
    ]
    alone = rude.post("/observations", items[:1])
    assert (alone.status_code, alone.json()["rejected"][0]["code"]) == (422, "lease_mismatch")
    assert alone.json()["leases_ended"] == 0  # its lease has ended already
    for url in ("https://new.example/", "https://far.example/"):
        assert rude.client.get("/pages", params={"url": url}).status_code == 404
    assert rude.get("/hosts/b.example").json()["host_queue"]["paused_until"] is None
    page = rude.get(f"/pages/{page_id}").json()
    assert (page["last_crawl_at"], page["unfinished"]["ending"]) == (None, "refused")
    assert report(rude, crawl, digest="1")["leases_ended"] == 0


@pytest.mark.parametrize("ndjson", [False, True])
def test_reports_that_are_all_refused_state_how_many_leases_they_ended(rude, ndjson):
    rude.register(*(f"https://a.example/{i}" for i in range(3)))
    at = START.isoformat()
    items = [
        {"lease": crawl["lease"], "observed_at": at, "page_id": 999}
        for crawl in lease(rude, count=3)
    ]
    again = items[:1]
    kind = "application/x-ndjson" if ndjson else "application/json"
    lines = b"\n".join(json.dumps(item).encode() for item in items)
    body = lines if ndjson else json.dumps(items).encode()
    told = rude.client.post("/observations", content=body, headers={"Content-Type": kind})
    answer = told.json()
    assert (told.status_code, answer["n_rejected"], answer["leases_ended"]) == (422, 3, 3)
    assert rude.post("/observations", again).json()["leases_ended"] == 0
    assert "leases_ended" not in rude.post("/pages", [{"url": "none"}]).json()


def test_many_reports_are_judged_as_few_are(rude):
    rude.register(*(f"https://a.example/{i}" for i in range(40)))
    crawls = lease(rude, count=40)
    at = START.isoformat()
    items = [{"lease": c["lease"], "observed_at": at, "digest": "1"} for c in crawls]
    items[3]["page_id"] = 999
    answer = rude.post("/observations", items).json()
    assert (answer["accepted"], answer["leases_ended"], answer["n_rejected"]) == (39, 40, 1)
    assert answer["rejected"][0]["index"] == 3


def test_a_lease_is_extended_and_given_back(rude):
    rude.register("https://a.example/")
    (crawl,) = lease(rude, ttl_s=60)
    path = f"/leases/{crawl['lease']}"
    extended = rude.client.patch(path, json={"ttl_s": 600})
    assert extended.json()["expires_at"] == "2026-05-01T12:10:00Z"
    rude.clock.advance(seconds=300)
    assert lease(rude) == []
    assert rude.client.delete(path).status_code == 204
    for gone in (rude.client.delete(path), rude.client.patch(path, json={"ttl_s": 1})):
        assert gone.status_code == 404
        assert gone.json()["type"] == f"{TYPES}lease-not-held"
    assert len(lease(rude)) == 1


def test_a_lease_that_has_expired_cannot_be_given_back(rude):
    rude.register("https://a.example/")
    (crawl,) = lease(rude, ttl_s=60)
    rude.clock.advance(seconds=60)
    assert rude.client.delete(f"/leases/{crawl['lease']}").status_code == 404
    rude.clock.advance(hours=1)
    assert len(lease(rude)) == 1


def test_an_empty_answer_says_when_to_come_back(api):
    api.register("https://a.example/1", "https://a.example/2")
    (crawl,) = lease(api)
    empty = api.client.post("/leases", json={"ttl_s": 60})
    assert empty.json() == {"items": [], "retry_after_s": 301.0}
    assert empty.headers["Retry-After"] == "301"
    report(api, crawl, digest="1")
    empty = api.client.post("/leases", json={})
    assert empty.json()["retry_after_s"] == 1
    api.clock.advance(seconds=1)
    assert len(lease(api)) == 1


def test_a_service_without_pages_says_to_come_back_in_a_minute(api):
    empty = api.client.post("/leases", json={})
    assert (empty.json()["retry_after_s"], empty.headers["Retry-After"]) == (60, "60")


@pytest.mark.dear
def test_who_waits_is_served_as_soon_as_something_is_due(rude):
    found = []
    waiting = threading.Thread(target=lambda: found.extend(lease(rude, wait_s=30)))
    waiting.start()
    time.sleep(0.1)
    rude.register("https://a.example/")
    waiting.join(20)
    assert [crawl["url"] for crawl in found] == ["https://a.example/"]


@pytest.mark.dear
def test_who_hangs_up_while_waiting_is_leased_nothing(rude):
    with pytest.raises(httpx.ReadTimeout):
        rude.client.post("/leases", json={"wait_s": 30}, timeout=httpx.Timeout(30, read=0.3))
    gone = 'recrawl_requests_total{method="POST",route="/leases",status="400"} 1.0'
    until(lambda: gone in rude.get("/metrics").text, "the service has noticed")
    rude.register("https://a.example/")
    assert len(lease(rude)) == 1


def test_a_ping_makes_a_page_due_at_once(rude):
    (page_id,) = rude.register("https://a.example/", observability="complete")
    rude.epoch()
    report(rude, *lease(rude), digest="1")
    rude.epoch()
    assert lease(rude) == []
    at = rude.clock.advance(minutes=1).isoformat()
    (decision,) = rude.post("/pings", [{"page_id": page_id, "changed_at": at}]).json()["decisions"]
    taken = lease(rude)
    assert decision["crawl"] == bool(taken)
    assert [crawl["reason"] for crawl in taken] == ["ping"] * len(taken)
    assert taken


def test_a_lease_tells_the_request_of_an_operator_from_a_ping(rude):
    (page_id,) = rude.register("https://a.example/")
    rude.epoch()
    report(rude, *lease(rude), digest="1")
    rude.epoch()
    at = rude.clock.advance(minutes=1).isoformat()
    rude.post("/pings", [{"page_id": page_id, "changed_at": at}])
    assert rude.post("/pages/recrawl", {"page_ids": [page_id]}).json()["changed"] == 1
    (crawl,) = lease(rude)
    assert crawl["reason"] == "request"
    report(rude, crawl, digest="2")
    rude.clock.advance(days=30)
    rude.epoch()
    (later,) = lease(rude)
    assert later["reason"] == "due", "the crawl has answered the request"


def test_a_host_that_says_429_is_left_alone_as_long_as_it_asked(rude):
    rude.register("https://a.example/1", "https://a.example/2")
    (crawl,) = lease(rude, count=1)
    report(rude, crawl, status=429, retry_after_s=500)
    assert lease(rude) == []
    rude.clock.advance(seconds=499)
    assert lease(rude) == []
    rude.clock.advance(seconds=1)
    assert len(lease(rude)) >= 1


@pytest.mark.dear
def test_leases_outlive_the_server(database_url, monkeypatch):
    monkeypatch.setenv("RECRAWL_HOST_DELAY_S", "0")
    monkeypatch.setenv("RECRAWL_HOST_CONCURRENCY", "0")
    with running(database_url) as first:
        first.register("https://a.example/1", "https://a.example/2")
        (crawl,) = lease(first, count=1)
    with running(database_url) as second:
        (other,) = lease(second)
        assert other["page_id"] != crawl["page_id"]
        assert report(second, crawl, digest="1")["leases_ended"] == 1


def test_bad_requests_are_refused_by_their_field(rude):
    for body, field in (
        ({"count": 0}, "count"),
        ({"count": 1001}, "count"),
        ({"hosts": ["not a host"]}, "hosts"),
        ({"hosts": [""]}, "hosts"),
        ({"hosts": ["http://a.example"]}, "hosts"),
        ({"hosts": ["a.example/news"]}, "hosts"),
        ({"hosts": ["a.example:8443"]}, "hosts"),
        ({"wait_s": 31}, "wait_s"),
        ({"ttl_s": 0}, "ttl_s"),
        ({"slice": 2, "slices": 2}, "slice"),
        ({"n": 1}, "n"),
    ):
        response = rude.client.post("/leases", json=body)
        assert (response.status_code, response.json()["field"]) == (422, field), body


@pytest.mark.parametrize("name", ["", "w" * 101, "a\0b", "a\nb", "a\n", "\ud800"])
def test_a_worker_has_a_name_that_can_be_kept(rude, name):
    rude.register("https://a.example/")
    response = rude.client.post("/leases", content=json.dumps({"worker": name}))
    assert (response.status_code, response.json()["field"]) == (422, "worker")
    assert "1 to 100 characters" in response.json()["detail"]
    assert len(lease(rude, worker="w\u00e4rter-1 \U0001f577")) == 1


@pytest.mark.dear
def test_a_requested_page_has_waited_since_the_request(rude):
    ids = rude.register("https://a.example/", "https://b.example/")
    rude.clock.advance(days=1)
    for crawl in lease(rude, count=2):
        assert report(rude, crawl, digest="1")
    rude.clock.advance(hours=1)
    assert rude.client.post("/pages/recrawl", json={"page_ids": ids}).is_success
    rude.clock.advance(seconds=30)
    assert "recrawl_ready_seconds 30.0" in rude.get("/metrics").text


def test_a_request_for_a_host_without_a_lease_has_waited_since_the_request(rude):
    (page_id,) = rude.register("https://a.example/")
    rude.clock.advance(minutes=2)
    assert rude.client.post("/pages/recrawl", json={"page_ids": [page_id]}).is_success
    rude.clock.advance(seconds=45)
    assert "recrawl_ready_seconds 45.0" in rude.get("/metrics").text


def test_metrics_count_what_became_of_leases(rude):
    rude.register(*(f"https://a.example/{i}" for i in range(4)))
    old = lease(rude, count=2, ttl_s=60)
    rude.clock.advance(seconds=90)
    assert "recrawl_ready_seconds 90.0" in rude.get("/metrics").text
    rude.clock.advance(hours=1)
    new = lease(rude, count=4)
    rude.clock.advance(seconds=1)
    report(rude, old[0], digest="1")
    rude.clock.advance(seconds=1)
    report(rude, *new[:3], digest="1")
    assert rude.client.delete(f"/leases/{new[3]['lease']}").status_code == 204
    told = rude.get("/metrics").text
    for outcome, n in (("granted", 6), ("ended", 3), ("late", 1), ("returned", 1)):
        assert f'recrawl_leases_total{{outcome="{outcome}"}} {n}.0' in told
