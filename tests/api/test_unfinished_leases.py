"""Leases that end without a report, over HTTP: refused reports, gone workers, what is shown."""

from json import dumps as as_json  # with escapes, which also stand for lone surrogates

import pytest
from support.live_server import Live, running

from recrawl_client import Client

ADMIN = "an-administrator-of-the-tests"
JSON = {"Content-Type": "application/json"}
A, B = "https://a.example/", "https://b.example/"


@pytest.fixture
def rude(database_url):
    """A service without politeness of its own."""
    with running(database_url, host_delay_s=0, host_concurrency=0) as live:
        yield live


@pytest.fixture
def guarded(database_url):
    """A service with keys, and without politeness of its own."""
    options = {"host_delay_s": 0, "host_concurrency": 0, "api_keys": (ADMIN,)}
    with running(database_url, **options) as live:
        yield live


def lease(live: Live, headers=None, **asked):
    response = live.client.post("/leases", json=asked, headers=headers)
    assert response.status_code == 200, response.text
    return response.json()["items"]


def unfinished(live: Live, url=A):
    return live.get("/pages", url=url).json()["unfinished"]


def n_leased(live: Live) -> int:
    return live.get("/hosts/a.example").json()["n_leased"]


def limited(live: Live, *hosts: str):
    """Headers of a key that may crawl some hosts."""
    wish = {"name": "limited", "role": "crawl", "hosts": hosts}
    return {"Authorization": f"Bearer {live.post('/keys', wish).json()['key']}"}


# -- refused reports

WRONG = {
    "unknown field": {"digest": "x", "bites": 1},
    "wrong type": {"digest": 123},
    "long note": {"digest": "x", "note": "n" * 2_000},
    "url of another page": {"digest": "x", "url": B},
    "id of another page": {"digest": "x", "page_id": 999},
    "lone surrogate": {"digest": "\ud800"},
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
@pytest.mark.parametrize("way", ["small", "block", "lines", "lease"])
def test_a_refused_report_ends_its_lease(rude: Live, wrong, way):
    rude.register(A)
    (crawl,) = lease(rude, worker="w7")
    at = rude.clock().isoformat()
    item = {"lease": crawl["lease"], "observed_at": at, **wrong}
    rude.register(B)
    fill = [{"url": B, "observed_at": at, "digest": "y" * 200}] * (40 if way == "block" else 1)
    if way == "lease":
        content = as_json({"report": [*fill, item]}).encode()
        answer = rude.client.post("/leases", content=content, headers=JSON).json()["reported"]
    elif way == "lines":
        lines = "\n".join(map(as_json, [*fill, item])).encode()
        kind = {"Content-Type": "application/x-ndjson"}
        answer = rude.client.post("/observations", content=lines, headers=kind).json()
    else:
        content = as_json([*fill, item]).encode()
        answer = rude.client.post("/observations", content=content, headers=JSON).json()
    assert (answer["n_rejected"], answer["leases_ended"]) == (1, 1), answer
    assert (answer["accepted"], answer["rejected"][0]["index"]) == (1, len(fill))
    shown = unfinished(rude)
    assert (shown["n"], shown["ending"], shown["worker"]) == (1, "refused", "w7")
    assert shown["next_crawl_at"] == "2026-05-01T13:00:00Z"
    assert A not in [each["url"] for each in lease(rude)]
    rude.clock.advance(hours=1)
    assert A in [each["url"] for each in lease(rude)]


def test_a_report_that_is_refused_and_sent_again_right_counts_as_a_report(rude: Live):
    rude.register(A)
    (crawl,) = lease(rude)
    item = {"lease": crawl["lease"], "observed_at": rude.clock().isoformat(), "digest": "1"}
    assert rude.post("/observations", [item | {"bites": 1}]).status_code == 422
    assert unfinished(rude)["ending"] == "refused"
    assert rude.post("/observations", [item]).json()["accepted"] == 1
    assert unfinished(rude) is None


@pytest.mark.parametrize("turn", [1, -1])
def test_of_two_reports_in_one_batch_the_right_one_counts(rude: Live, turn):
    rude.register(A)
    (crawl,) = lease(rude)
    item = {"lease": crawl["lease"], "observed_at": rude.clock().isoformat(), "digest": "1"}
    answer = rude.post("/observations", [item, item | {"bites": 1}][::turn]).json()
    assert (answer["accepted"], answer["n_rejected"], answer["leases_ended"]) == (1, 1, 1)
    assert unfinished(rude) is None


def test_a_refusal_of_an_old_token_ends_no_newer_lease(rude: Live):
    rude.register(A)
    (old,) = lease(rude, ttl_s=60)
    rude.clock.advance(hours=2)
    (new,) = lease(rude)
    item = {"lease": old["lease"], "observed_at": rude.clock().isoformat(), "bites": 1}
    answer = rude.post("/observations", [item])
    assert answer.status_code == 422
    assert n_leased(rude) == 1
    again = {"lease": new["lease"], "observed_at": rude.clock().isoformat(), "digest": "1"}
    assert rude.post("/observations", [again]).json()["leases_ended"] == 1


def test_a_refusal_for_lack_of_right_ends_no_lease(guarded: Live):
    guarded.register(A)
    (crawl,) = lease(guarded)
    ours, theirs = limited(guarded, "a.example"), limited(guarded, "b.example")
    item = {"lease": crawl["lease"], "observed_at": guarded.clock().isoformat()}
    for wrong in ({"digest": "1"}, {"bites": 1}, {"digest": "1", "url": B}):
        answer = guarded.client.post("/observations", json=[item | wrong], headers=theirs)
        assert answer.status_code == 422, answer.text
        assert n_leased(guarded) == 1, wrong
    assert unfinished(guarded) is None
    answer = guarded.client.post("/observations", json=[item | {"bites": 1}], headers=ours)
    assert answer.status_code == 422
    assert n_leased(guarded) == 0


# -- workers that are gone


def test_the_leases_of_a_gone_worker_are_returned(rude: Live):
    rude.register(*(f"{A}{i}" for i in range(5)))
    lease(rude, worker="gone", count=3)
    lease(rude, worker="here", count=1)
    query = {"worker": "gone"}
    tried = rude.client.delete("/leases", params=query | {"dry_run": True}).json()
    assert tried == {"worker": "gone", "dry_run": True, "ended": 3}
    assert rude.client.delete("/leases", params=query).json()["ended"] == 3
    assert rude.client.delete("/leases", params=query).json()["ended"] == 0
    assert 'recrawl_leases_total{outcome="returned"} 3.0' in rude.get("/metrics").text
    assert [item["worker"] for item in rude.get("/leases").json()["items"]] == ["here"]
    assert len(lease(rude)) == 4
    for wrong in ({}, {"worker": ""}, {"worker": "a\x00b"}, {"worker": "x" * 101}):
        assert rude.client.delete("/leases", params=wrong).status_code == 422


def test_a_limited_key_ends_leases_of_its_own_pages_only(guarded: Live):
    guarded.register(f"{A}1", f"{A}2", f"{B}1")
    lease(guarded, worker="gone")
    ours = limited(guarded, "a.example")
    assert guarded.client.delete("/leases?worker=gone", headers=ours).json()["ended"] == 2
    (left,) = guarded.get("/leases").json()["items"]
    assert left["host"] == "b.example"
    acts = [entry["act"] for entry in guarded.get("/audit").json()["items"]]
    assert acts.count("leases.return") == 1
    reader = guarded.post("/keys", {"name": "reader", "role": "report"}).json()["key"]
    headers = {"Authorization": f"Bearer {reader}"}
    assert guarded.client.delete("/leases?worker=gone", headers=headers).status_code == 403


def test_workers_are_listed_with_what_they_lost(rude: Live):
    rude.register(*(f"{A}{i}" for i in range(4)))
    lease(rude, worker="dying", count=3, ttl_s=60)
    (crawl,) = lease(rude, worker="well")
    rude.clock.advance(seconds=60)
    with Client(rude.url) as client:
        dying, well = client.workers()
        assert (dying.worker, dying.lost, dying.expired, dying.running) == ("dying", 3, 3, 0)
        assert (well.worker, well.lost, well.running) == ("well", 0, 1)
        assert client.return_leases("well", dry_run=True) == 1
        assert client.return_leases("well") == 1
    assert unfinished(rude, crawl["url"])["ending"] == "returned"
    assert "dying" in rude.get("/console/leases").text


# -- what is shown


def test_the_reason_begins_with_what_to_do(rude: Live):
    rude.register(A)
    for n in (1, 2, 3):
        (crawl,) = lease(rude, worker="crawler-7", ttl_s=60)
        assert unfinished(rude) is None or unfinished(rude)["next_crawl_at"] is None
        rude.clock.advance(seconds=60)
        page = rude.get("/pages", url=A).json()
        assert (page["unfinished"]["n"], page["unfinished"]["set_aside"]) == (n, n == 3)
        assert page["schedule"] is None
        sentence = page["why"]["sentence"]
        assert sentence.startswith("See whether the worker crawler-7 still runs")
        assert ("set aside and tried once a day" in sentence) == (n == 3)
        rude.clock.advance(hours=2)
    rude.epoch()
    page = rude.get("/pages", url=A).json()
    assert page["schedule"]["next_crawl_at"] == page["unfinished"]["next_crawl_at"]
    assert page["why"]["sentence"].startswith("See whether the worker crawler-7 still runs")
    (listed,) = rude.get("/pages", state="set_aside").json()["items"]
    assert (listed["n_unfinished"], listed["next_crawl_at"]) == (
        3,
        page["unfinished"]["next_crawl_at"],
    )
    (listed,) = rude.get("/pages", state="unfinished", count="exact").json()["items"]
    assert listed["url"] == A
    assert rude.post("/pages/recrawl", {"urls": [A]}).json()["changed"] == 1
    assert [each["url"] for each in lease(rude)] == [crawl["url"]]


def test_pages_set_aside_are_counted_by_their_ends(rude: Live):
    rude.register(A)
    for _ in range(3):
        (crawl,) = lease(rude)
        rude.client.delete(f"/leases/{crawl['lease']}")
        rude.clock.advance(hours=3)
    rude.service.telemetry.sums.next_at = 0
    rude.service.telemetry.sums.count()
    text = rude.get("/metrics").text
    assert 'recrawl_set_aside_pages{ending="returned"} 1.0' in text
    assert 'recrawl_set_aside_pages{ending="expired"} 0.0' in text
    assert "recrawl_unfinished_pages 1.0" in text


def test_a_page_that_is_registered_again_waits_as_before(rude: Live):
    rude.register(A)
    lease(rude, ttl_s=60)
    rude.clock.advance(seconds=60)
    assert lease(rude) == []
    rude.register(A)
    assert lease(rude) == []
    assert unfinished(rude)["n"] == 1
