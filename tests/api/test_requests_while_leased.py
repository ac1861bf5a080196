"""Requests that arrive while their page is being crawled, over HTTP, with all their sources."""

from datetime import timedelta

import pytest
from support.live_server import Live, running
from support.store_cases import publish, schedule_columns

NEWS = "https://a.example/news"
SITEMAP = """<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">
<url><loc>{}</loc><lastmod>{}</lastmod></url></urlset>"""


@pytest.fixture
def rude(database_url, monkeypatch):
    """A service without politeness of its own, and a `complete` page with content."""
    monkeypatch.setenv("RECRAWL_HOST_DELAY_S", "0")
    monkeypatch.setenv("RECRAWL_HOST_CONCURRENCY", "0")
    with running(database_url) as live:
        page_id = live.register(NEWS, observability="complete")
        (crawl,) = lease(live)
        report(live, crawl, live.clock(), digest="old")
        by_pings = schedule_columns(page_id, crawl_rate=0.0, crawl_probability=1.0)
        publish(live.service.store, by_pings, live.clock())
        live.clock.advance(hours=1)
        yield live


def lease(live: Live):
    return live.client.post("/leases", json={}).json()["items"]


def report(live: Live, crawl, observed_at=None, **seen):
    at = {} if observed_at is None else {"observed_at": observed_at.isoformat()}
    answer = live.post("/observations", [{"lease": crawl["lease"], **at, **seen}]).json()
    assert (answer["accepted"], answer["leases_ended"]) == (1, 1), answer
    return answer


def by_ping(live: Live) -> bool:
    ping = {"url": NEWS, "changed_at": live.clock().isoformat()}
    return live.post("/pings", [ping]).json()["decisions"][0]["crawl"]


def by_late_ping(live: Live) -> bool:
    """The publisher's clock is a minute slow."""
    at = live.clock() - timedelta(minutes=1)
    ping = {"url": NEWS, "changed_at": at.isoformat()}
    return live.post("/pings", [ping]).json()["decisions"][0]["crawl"]


def by_recrawl(live: Live) -> bool:
    return live.post("/pages/recrawl", {"urls": [NEWS]}).json()["changed"] == 1


def by_sitemap(live: Live) -> bool:
    document = SITEMAP.format(NEWS, live.clock().isoformat())
    url = "https://a.example/sitemap.xml"
    sent = live.client.post("/sitemaps", params={"url": url}, content=document)
    return sent.json()["n_crawl_now"] == 1


def by_indexnow(live: Live) -> bool:
    sent = live.get("/indexnow", url=NEWS, key="0123abcd-4567-ef89")
    return sent.json()["n_taken"] == 1


WAYS = [by_ping, by_late_ping, by_recrawl, by_sitemap, by_indexnow]


@pytest.mark.parametrize("request_by", WAYS)
@pytest.mark.parametrize("states_start", [True, False])
def test_a_request_during_a_crawl_leads_to_another_one(rude, request_by, states_start):
    assert by_recrawl(rude)
    rude.clock.advance(minutes=2)
    (crawl,) = lease(rude)
    started = rude.clock() if states_start else None
    asked_at = rude.clock.advance(seconds=30)
    assert request_by(rude)
    rude.clock.advance(seconds=30)
    report(rude, crawl, started, digest="old")
    (again,) = lease(rude)
    assert again["due_at"] == asked_at.isoformat().replace("+00:00", "Z")
    assert again["reason"] == ("request" if request_by is by_recrawl else "ping")
    started = rude.clock()
    rude.clock.advance(seconds=30)
    report(rude, again, started, digest="new")
    assert lease(rude) == []


@pytest.mark.parametrize("request_by", WAYS)
def test_a_request_before_the_crawl_started_is_answered_by_it(rude, request_by):
    assert by_recrawl(rude)
    rude.clock.advance(minutes=2)
    (crawl,) = lease(rude)
    rude.clock.advance(seconds=1)
    assert request_by(rude)
    started = rude.clock.advance(seconds=1)
    rude.clock.advance(seconds=30)
    report(rude, crawl, started, digest="new")
    assert lease(rude) == []


def test_a_crawler_that_states_the_time_of_its_report_loses_no_request(rude):
    assert by_recrawl(rude)
    (crawl,) = lease(rude)
    rude.clock.advance(seconds=30)
    assert by_ping(rude)
    rude.clock.advance(seconds=30)
    report(rude, crawl, rude.clock() - timedelta(seconds=0.5), digest="old")
    assert len(lease(rude)) == 1


@pytest.mark.parametrize("minutes", [-30, -3, 3, 30])
def test_a_wrong_clock_of_a_crawler_loses_no_request(rude, minutes):
    assert by_recrawl(rude)
    (crawl,) = lease(rude)
    wrong = rude.clock() + timedelta(minutes=minutes)
    rude.clock.advance(seconds=30)
    assert by_ping(rude)
    rude.clock.advance(seconds=30)
    report(rude, crawl, wrong, digest="old")
    item = {"lease": crawl["lease"], "observed_at": wrong.isoformat(), "digest": "old"}
    for _ in range(3):
        repeated = rude.post("/observations", [item]).json()
        assert (repeated["accepted"], repeated["leases_ended"]) == (0, 0)
        rude.clock.advance(minutes=1)
    (again,) = lease(rude)
    report(rude, again, rude.clock(), digest="new")
    assert lease(rude) == []


def test_a_request_during_the_first_crawl_leads_to_another_one(rude):
    new = "https://a.example/new"
    (page_id,) = rude.register(new)
    (crawl,) = lease(rude)
    assert crawl["page_id"] == page_id
    started = rude.clock()
    rude.clock.advance(seconds=10)
    assert rude.post("/pages/recrawl", {"urls": [new]}).json()["changed"] == 1
    report(rude, crawl, started, digest="1")
    assert [again["url"] for again in lease(rude)] == [new]


def test_a_request_while_a_lease_is_returned_stays(rude):
    assert by_recrawl(rude)
    (crawl,) = lease(rude)
    rude.clock.advance(seconds=10)
    assert by_recrawl(rude)
    assert rude.client.delete(f"/leases/{crawl['lease']}").status_code == 204
    assert len(lease(rude)) == 1


@pytest.mark.dear
def test_only_a_report_without_a_lease_needs_its_time(rude):
    response = rude.post("/observations", [{"url": NEWS, "digest": "1"}])
    (rejected,) = response.json()["rejected"]
    assert (response.status_code, rejected["field"]) == (422, "observed_at")
    assert by_recrawl(rude)
    (crawl,) = lease(rude)
    leased_at = rude.clock().isoformat().replace("+00:00", "Z")
    rude.clock.advance(minutes=1)
    report(rude, crawl, digest="1")
    assert rude.get("/pages", url=NEWS).json()["last_crawl_at"] == leased_at
    again = rude.post("/observations", [{"lease": crawl["lease"], "digest": "1"}]).json()
    assert (again["duplicate"], again["leases_ended"]) == (1, 0)
