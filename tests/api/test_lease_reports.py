"""Reports in lease requests, and requests that are sent again with their key."""

import json
import threading
from datetime import timedelta

import httpx
import pytest
from support.live_server import PATIENCE_S, START, running, until

from service.storage.postgres.statements import Statements
from service.storage.queue.answers import ANSWERS_KEPT

URLS = [f"https://a.example/{i}" for i in range(6)]


@pytest.fixture
def rude(database_url, monkeypatch):
    """A service without politeness of its own."""
    monkeypatch.setenv("RECRAWL_HOST_DELAY_S", "0")
    monkeypatch.setenv("RECRAWL_HOST_CONCURRENCY", "0")
    with running(database_url) as live:
        live.register(*URLS)
        yield live


@pytest.fixture
def replica(rude, database_url):
    """A second server of the same database; with SQLite, the same server again."""
    if database_url.startswith("sqlite"):
        yield rude
    else:
        with running(database_url, clock=rude.clock) as live:
            yield live


def ask(live, key=None, **body):
    headers = {"Idempotency-Key": key} if key else {}
    return live.client.post("/leases", json=body, headers=headers)


def crawled(live, crawl, **result):
    return {"lease": crawl["lease"], "observed_at": live.clock().isoformat(), **result}


@pytest.mark.dear
def test_a_report_ends_its_lease_and_the_next_page_is_leased(rude):
    (first,) = ask(rude, count=1).json()["items"]
    answer = ask(rude, count=1, report=[crawled(rude, first, status=200, digest="1")]).json()
    (second,) = answer["items"]
    assert second["page_id"] != first["page_id"]
    reported = answer["reported"]
    assert (reported["accepted"], reported["leases_ended"], reported["rejected"]) == (1, 1, [])
    assert rude.get(f"/pages/{first['page_id']}").json()["last_crawl_at"] == "2026-05-01T12:00:00Z"


def test_a_reported_crawl_that_finds_a_change_stands_in_the_feed(rude):
    (first,) = ask(rude, count=1).json()["items"]
    (second,) = ask(rude, count=1, report=[crawled(rude, first, digest="1")]).json()["items"]
    once = {"page_id": second["page_id"], "observed_at": rude.clock().isoformat(), "status": 404}
    rude.post("/observations", [once])
    rude.clock.advance(hours=1)
    answer = ask(rude, "k", count=1, report=[crawled(rude, second, status=404)])
    again = ask(rude, "k", count=1, report=[crawled(rude, second, status=404)])
    assert again.json() == answer.json()
    items = rude.get("/changes").json()["items"]
    assert [(item["page_id"], item["kind"]) for item in items] == [
        (first["page_id"], "new"),
        (second["page_id"], "gone"),
    ]


def test_a_report_and_a_lease_take_four_messages_to_postgres(postgres_url, monkeypatch):
    """Locks, writes with the search for due pages, the page's values, and the lease with COMMIT."""
    monkeypatch.setenv("RECRAWL_HOST_DELAY_S", "0")
    monkeypatch.setenv("RECRAWL_HOST_CONCURRENCY", "0")
    messages, send = [], Statements.send

    def counted(statements):
        if statements.put_off and threading.current_thread().name == "leases-0":
            messages.append(len(statements.put_off))
        send(statements)

    with running(postgres_url) as live:
        live.register(*URLS)
        (crawl,) = ask(live, count=1).json()["items"]
        (crawl,) = ask(live, count=1, report=[crawled(live, crawl, digest="1")]).json()["items"]
        monkeypatch.setattr(Statements, "send", counted)
        answer = ask(live, count=1, report=[crawled(live, crawl, digest="1")]).json()
    assert (len(answer["items"]), answer["reported"]["leases_ended"]) == (1, 1)
    assert len(messages) == 4


def test_an_answer_without_a_report_counts_none(rude):
    assert "reported" not in ask(rude, count=1).json()


def test_each_reported_crawl_succeeds_or_fails_alone(rude):
    first, second = ask(rude, count=2).json()["items"]
    report = [
        crawled(rude, first, status=200, digest="1"),
        crawled(rude, second, status=200, digset="1"),
        {"url": "ftp://a.example/", "observed_at": START.isoformat(), "digest": "1"},
        crawled(rude, second, status=404),
    ]
    answer = ask(rude, count=1, report=report).json()
    assert len(answer["items"]) == 1
    assert answer["reported"]["accepted"] == 2
    rejected = answer["reported"]["rejected"]
    assert [(each["index"], each["field"]) for each in rejected] == [(1, "digset"), (2, "url")]


def test_a_report_without_a_good_crawl_does_not_prevent_leases(rude):
    answer = ask(rude, count=1, report=[{"observed_at": START.isoformat(), "digest": "1"}])
    assert answer.status_code == 200
    assert (len(answer.json()["items"]), answer.json()["reported"]["n_rejected"]) == (1, 1)


@pytest.mark.dear
@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"report": {"lease": "7-1"}}, "report"),
        ({"report": [], "count": 0}, "count"),
        ({"reports": []}, "reports"),
    ],
)
def test_a_wrong_field_is_named_and_nothing_is_recorded(rude, body, field):
    (crawl,) = ask(rude, count=1).json()["items"]
    if body.get("report") == []:
        body = {**body, "report": [crawled(rude, crawl, status=200, digest="1")]}
    refused = ask(rude, **body)
    assert (refused.status_code, refused.json()["field"]) == (422, field)
    assert rude.get(f"/pages/{crawl['page_id']}").json()["last_crawl_at"] is None


def test_a_report_has_as_many_crawls_as_a_batch(database_url):
    with running(database_url, max_items=2) as live:
        items = [{"url": url, "observed_at": START.isoformat(), "digest": "1"} for url in URLS]
        assert ask(live, report=items).status_code == 413


@pytest.mark.dear
def test_the_report_is_committed_before_a_wait(rude):
    crawls = ask(rude, count=len(URLS)).json()["items"]
    report = [crawled(rude, crawl, status=200, digest="1") for crawl in crawls]
    answer = ask(rude, wait_s=0.2, report=report).json()
    assert (answer["items"], answer["reported"]["leases_ended"]) == ([], len(URLS))
    assert answer["retry_after_s"] >= 1


@pytest.mark.dear
def test_unknown_pages_are_registered_unless_the_request_forbids_it(rude):
    item = {"url": "https://new.example/", "observed_at": START.isoformat(), "digest": "1"}
    body = {"report": [item], "count": 1}
    refused = rude.client.post("/leases", json=body, params={"register": False}).json()
    assert refused["reported"]["rejected"][0]["code"] == "page_not_found"
    assert rude.client.post("/leases", json=body).json()["reported"]["accepted"] == 1


def test_a_repeated_key_receives_the_same_answer_from_every_replica(rude, replica):
    (old,) = ask(rude, count=1).json()["items"]
    report = [crawled(rude, old, status=200, digest="1")]
    first = ask(rude, "k1", count=2, report=report)
    again = [ask(live, "k1", count=2, report=report) for live in (replica, rude)]
    assert {answer.content for answer in again} == {first.content}
    assert len(first.json()["items"]) == 2
    others = ask(rude, count=100).json()["items"]
    assert len(others) == len(URLS) - 3
    assert rude.get(f"/pages/{old['page_id']}").json()["estimate"]["n_observations"] == 0


@pytest.mark.dear
def test_an_answer_that_was_lost_costs_no_page(rude, monkeypatch):
    """The connection breaks after the commit; the client's next attempt has the leases."""
    with httpx.Client(base_url=rude.url, timeout=httpx.Timeout(PATIENCE_S, read=0.3)) as hasty:
        flush = rude.service.lease_calls.flush

        def slow(calls):
            replies = flush(calls)
            lost.append(replies)
            until(lambda: gone, "the client has given up")
            return replies

        lost, gone = [], []
        monkeypatch.setattr(rude.service.lease_calls, "flush", slow)
        with pytest.raises(httpx.ReadTimeout):
            hasty.post("/leases", json={"count": 6}, headers={"Idempotency-Key": "k1"})
        gone.append(True)
    assert len(ask(rude, "k1", count=6).json()["items"]) == 6
    assert lost[0][0].answer == lost[-1][0].answer


@pytest.mark.dear
def test_a_repeated_key_with_another_body_is_refused_and_has_no_effect(rude):
    (crawl,) = ask(rude, "k1", count=1).json()["items"]
    refused = ask(rude, "k1", count=1, report=[crawled(rude, crawl, status=200, digest="1")])
    assert refused.status_code == 422
    assert refused.json()["title"] == "Key reused"
    assert rude.get(f"/pages/{crawl['page_id']}").json()["last_crawl_at"] is None
    assert len(ask(rude, count=100).json()["items"]) == len(URLS) - 1


@pytest.mark.dear
@pytest.mark.parametrize("key", ["", "k" * 256])
def test_a_key_of_a_wrong_length_is_refused(rude, key):
    refused = rude.client.post("/leases", json={}, headers={"Idempotency-Key": key})
    assert refused.status_code == 422
    assert "idempotency" in json.dumps(refused.json()).lower()


@pytest.mark.dear
def test_an_answer_is_kept_for_two_minutes_and_dropped_after(rude):
    first = ask(rude, "k1", count=1)
    rude.clock.advance(seconds=ANSWERS_KEPT.total_seconds() - 1)
    ask(rude, "k2", count=1)
    assert ask(rude, "k1", count=1).content == first.content
    rude.clock.advance(seconds=2)
    ask(rude, "k3", count=1)
    (later,) = ask(rude, "k1", count=1).json()["items"]
    assert later["page_id"] != first.json()["items"][0]["page_id"]


@pytest.mark.dear
def test_a_repeated_key_without_leases_in_its_first_answer_receives_those_that_came_since(rude):
    taken = ask(rude, count=100).json()["items"]
    report = [crawled(rude, taken[0], status=200, digest="1")]
    first = ask(rude, "k1", count=2, report=report).json()
    assert (first["items"], first["reported"]["accepted"]) == ([], 1)
    rude.register("https://a.example/new")
    again = ask(rude, "k1", count=2, report=report).json()
    assert (len(again["items"]), again["reported"]["duplicate"]) == (1, 1)


@pytest.mark.dear
def test_expired_answers_of_another_replica_are_dropped_too(rude, replica):
    ask(rude, "k1", count=1)
    rude.clock.advance(seconds=(ANSWERS_KEPT + timedelta(seconds=2)).total_seconds())
    ask(replica, "k2", count=1)
    with rude.service.store.begin(write=False) as tx:
        ((n,),) = tx.run("SELECT count(*) FROM lease_answers")
    assert n == 1
