"""Pages that fail, are gone or redirect, over HTTP."""

from datetime import timedelta

import pytest
from support.live_server import Live, lease_freely, running

NEWS = "https://a.example/news"
NEW = "https://b.example/new"


@pytest.fixture
def rude(database_url, monkeypatch):
    """A service that has no politeness of its own, and a crawl a day."""
    monkeypatch.setenv("RECRAWL_BANDWIDTH", "1")
    monkeypatch.setenv("RECRAWL_HOST_DELAY_S", "0")
    monkeypatch.setenv("RECRAWL_HOST_CONCURRENCY", "0")
    with running(database_url) as live:
        lease_freely(live)  # the plan has one crawl a day
        yield live


def report(live: Live, *seen, **query):
    """Report crawls of the news page of this moment; what they saw is a part of each."""
    live.clock.advance(seconds=1)
    at = live.clock().isoformat()
    items = [{"url": NEWS, "observed_at": at, **what} for what in seen]
    return live.post("/observations", items, **query)


def lease(live: Live):
    response = live.client.post("/leases", json={"count": 10})
    assert response.status_code == 200, response.text
    return response.json()["items"]


def page(live: Live, url=NEWS):
    return live.get("/pages", url=url).json()


@pytest.mark.dear
def test_a_failing_page_is_leased_again_after_delays_that_double(rude):
    rude.register(NEWS)
    report(rude, {"digest": "1"})
    rude.clock.advance(days=2)
    rude.epoch()
    for n, hours in enumerate((1, 2, 4), start=1):
        (crawl,) = lease(rude)
        answer = report(rude, {"lease": crawl["lease"], "status": 410 + n}).json()
        assert (answer["accepted"], answer["leases_ended"]) == (1, 1)
        assert page(rude)["n_failures"] == n
        rude.clock.advance(hours=hours, seconds=-1)
        rude.epoch()
        assert lease(rude) == []
        rude.clock.advance(seconds=1)
    assert "its last 3 crawls failed with status 413" in page(rude)["why"]["sentence"]
    (crawl,) = lease(rude)
    report(rude, {"lease": crawl["lease"], "digest": "1"})
    assert page(rude)["n_failures"] == 0
    assert "failed" not in page(rude)["why"]["sentence"]


@pytest.mark.dear
def test_a_gone_page_is_checked_ever_more_rarely_then_retired_and_registering_has_it_crawled(rude):
    rude.register(NEWS)
    rude.epoch()
    (crawl,) = lease(rude)
    report(rude, {"lease": crawl["lease"], "status": 410})
    assert (page(rude)["gone"], page(rude)["n_failures"]) == (False, 1)
    rude.clock.advance(hours=1)
    rude.epoch()
    for n, days in enumerate((1, 2, 4, 8, 16), start=2):
        (crawl,) = lease(rude)
        report(rude, {"lease": crawl["lease"], "status": 410})
        shown = page(rude)
        assert (shown["gone"], shown["n_failures"], shown["retired"]) == (True, n, False)
        assert shown["why"]["sentence"].startswith("Nothing to do: it is gone")
        rude.clock.advance(days=days, seconds=-1)
        rude.epoch()
        assert lease(rude) == []
        rude.clock.advance(seconds=1)
    (crawl,) = lease(rude)
    report(rude, {"lease": crawl["lease"], "status": 410})
    shown = page(rude)
    assert (shown["retired"], shown["schedule"]["next_crawl_at"]) == (True, None)
    assert shown["why"]["sentence"].startswith("Nothing to do: it is gone, as its last 7")
    rude.clock.advance(days=400)
    rude.epoch()
    assert lease(rude) == []
    rude.register(NEWS)
    assert page(rude)["retired"] is False
    (crawl,) = lease(rude)
    report(rude, {"lease": crawl["lease"], "status": 200, "digest": "1"})
    shown = page(rude)
    assert (shown["gone"], shown["n_failures"], shown["retired"]) == (False, 0, False)
    assert shown["last_crawls"][0]["changed"] is True


@pytest.mark.dear
def test_a_redirect_registers_its_target_and_queues_it(rude):
    (page_id,) = rude.register(NEWS)
    (crawl,) = lease(rude)
    redirect = {"lease": crawl["lease"], "status": 301, "redirect_url": f"{NEW}#top"}
    assert report(rude, redirect).json()["leases_ended"] == 1
    shown = page(rude)
    target = page(rude, NEW)
    assert shown["redirects_to"] == {"page_id": target["page_id"], "url": NEW}
    assert (shown["gone"], shown["n_failures"]) == (False, 1)
    assert (target["last_crawl_at"], target["redirects_to"]) == (None, None)
    assert [crawl["page_id"] for crawl in lease(rude)] == [target["page_id"]]
    rude.clock.advance(hours=1)
    rude.epoch()
    (crawl,) = (one for one in lease(rude) if one["page_id"] == page_id)
    report(rude, {**redirect, "lease": crawl["lease"]})
    assert (page(rude)["gone"], page(rude)["n_failures"]) == (True, 2)
    rude.epoch()
    assert page(rude)["why"]["sentence"].startswith("Nothing to do: it has moved")
    assert rude.client.delete(f"/pages/{target['page_id']}").status_code == 204
    assert page(rude)["redirects_to"] == {"page_id": target["page_id"], "url": None}
    assert page_id == shown["page_id"]


@pytest.mark.dear
def test_without_registering_a_redirect_is_recorded_without_its_target(api: Live):
    api.register(NEWS)
    for _ in range(2):
        answer = report(api, {"status": 308, "redirect_url": NEW}, register=False)
        assert answer.json()["accepted"] == 1
        api.clock.advance(hours=1)
    assert api.get("/pages", url=NEW).status_code == 404
    assert (page(api)["gone"], page(api)["redirects_to"]) == (True, None)


def test_a_redirect_to_the_page_itself_leads_nowhere(api: Live):
    (page_id,) = api.register(NEWS)
    by_id = {"page_id": page_id, "observed_at": (api.clock() + timedelta(seconds=2)).isoformat()}
    redirect = {"status": 301, "redirect_url": "HTTPS://A.example:443/./news#top"}
    assert report(api, redirect).json()["accepted"] == 1
    api.clock.advance(seconds=10)
    assert api.post("/observations", [{**by_id, **redirect}]).json()["accepted"] == 1
    shown = page(api)
    assert (shown["gone"], shown["n_failures"]) == (False, 2)
    assert shown["redirects_to"]["page_id"] == page_id


@pytest.mark.dear
def test_redirects_of_a_batch_lead_each_to_its_own_target_and_the_last_in_time_counts(api: Live):
    """A hundred items, so that they are looked at as arrays; two of each page, newest first."""
    api.clock.advance(hours=1)
    items = [
        {
            "url": f"https://a.example/{i}",
            "observed_at": (api.clock() - timedelta(minutes=when)).isoformat(),
            "status": 302,
            "redirect_url": f"https://{'bc'[when]}.example/{i}",
        }
        for when in (0, 1)
        for i in range(50)
    ]
    plain = {"url": NEWS, "observed_at": api.clock().isoformat(), "digest": "1"}
    bad = {**items[0], "redirect_url": 7, "status": 302}
    answer = api.post("/observations", [plain, *items, bad]).json()
    assert (answer["accepted"], answer["n_rejected"]) == (101, 1)
    assert [(r["index"], r["field"]) for r in answer["rejected"]] == [(101, "redirect_url")]
    for i in (0, 49):
        shown = page(api, f"https://a.example/{i}")
        assert shown["redirects_to"]["url"] == f"https://b.example/{i}"
        assert (shown["gone"], shown["n_failures"]) == (False, 2)
    assert page(api)["redirects_to"] is None
    assert page(api, "https://c.example/7")["last_crawl_at"] is None


def test_a_target_of_a_wrong_type_is_refused_by_its_field(api: Live):
    answer = report(api, {"status": 301, "redirect_url": 7})
    assert answer.status_code == 422
    (rejected,) = answer.json()["rejected"]
    assert rejected["field"] == "redirect_url"


@pytest.mark.parametrize("outcome", [{"status": 200}, {"status": 206}, {}])
def test_content_that_a_redirect_led_to_is_that_of_another_page(api: Live, outcome):
    """A crawler that follows redirects states the target's answer."""
    report(api, {"digest": "1"})
    api.clock.advance(hours=1)
    for evidence in ({"digest": "2"}, {}):
        assert report(api, {"redirect_url": NEW, **outcome, **evidence}).json()["rejected"] == []
        api.clock.advance(hours=1)
    shown = page(api)
    assert (shown["n_failures"], shown["redirects_to"]["url"]) == (2, NEW)
    assert [item["kind"] for item in api.get("/changes").json()["items"]] == ["new"]


@pytest.mark.parametrize("status", [304, 404, 503, 0, 101])
def test_a_target_beside_a_status_that_leads_nowhere_is_dropped(api: Live, status):
    report(api, {"digest": "1"})
    api.clock.advance(hours=1)
    answer = report(api, {"status": status, "redirect_url": NEW}).json()
    assert (answer["accepted"], answer["rejected"]) == (1, [])
    assert page(api)["redirects_to"] is None
    assert api.get("/pages", url=NEW).status_code == 404


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "value",
    [
        {"status": 999},
        {"status": 42},
        {"status": 600},
        {"status": 2**31 - 1},
        {"status": 150},
        {"status": 302, "redirect_url": "mailto:me@a.example"},
        {"status": 301, "redirect_url": "/new"},
        {"status": 301, "redirect_url": ""},
        {"status": 307, "redirect_url": "ftp://a.example/"},
        {"status": 200, "digest": "1", "etag": '"ü"'},
        {"status": 200, "digest": "1", "last_modified": "9999-01-01T00:00:00Z"},
        {"status": 200, "digest": "1", "last_modified": "Wed, 21 Oct 2015 07:28:00 GMT"},
        {"status": 200, "digest": "1", "last_modified": "yesterday"},
        {"status": 200, "digest": "1", "last_modified": "2026-05-01T12:00:00"},
        {"status": 200, "digest": "1", "last_modified": ""},
        {"status": 200, "digest": ""},
        {"status": 304, "digest": "", "redirect_url": NEW},
        {"status": 404, "redirect_url": NEW},
        {"status": -1},
        {"status": 2**31},
        {"status": 200},
        {"status": 503, "retry_after_s": -1},
        {"status": 200, "digest": "1", "retry_after_s": -0.5},
        {"status": 503, "retry_after_s": 1e9},
        {"status": 403, "retry_after_s": 1e300},
        {"note": 1},
    ],
)
def test_a_value_that_a_site_chose_refuses_no_report_of_a_lease(rude, value):
    rude.register(NEWS)
    (crawl,) = lease(rude)
    answer = report(rude, {"lease": crawl["lease"], **value}).json()
    assert (answer["accepted"], answer["leases_ended"], answer["rejected"]) == (1, 1, [])
    shown = page(rude)
    assert shown["last_crawl_at"] is not None
    assert (shown["gone"], shown["redirects_to"]) == (False, None)
    assert lease(rude) == []


@pytest.mark.parametrize("seconds", [360, 10**9, -(10**10)])
def test_a_wrong_clock_ends_its_lease_and_a_repeated_report_changes_nothing(rude, seconds):
    rude.register(NEWS)
    (crawl,) = lease(rude)
    at = (rude.clock() + timedelta(seconds=min(seconds, 10**9))) if seconds > 0 else None
    item = {"lease": crawl["lease"], "status": 200, "digest": "1"}
    item["observed_at"] = at.isoformat() if at else "1901-01-01T00:00:00Z"
    answer = rude.post("/observations", [item]).json()
    assert (answer["accepted"], answer["leases_ended"]) == (1, 1)
    before = page(rude)
    rude.clock.advance(seconds=30)
    answer = rude.post("/observations", [item]).json()
    assert (answer["accepted"], answer["duplicate"], answer["leases_ended"]) == (0, 1, 0)
    assert page(rude)["last_crawl_at"] == before["last_crawl_at"]


def test_a_ping_soon_after_a_crawl_is_dropped_where_that_is_set(database_url, monkeypatch):
    monkeypatch.setenv("RECRAWL_PING_DELAY_S", "60")
    with running(database_url) as live:
        live.post("/pages", [{"url": NEWS, "observability": "complete"}])
        report(live, {"digest": "1"})
        for seconds, crawl, reason in ((30, False, "crawled_since"), (31, True, "unscheduled")):
            live.clock.advance(seconds=seconds)
            at = live.clock().isoformat()
            answer = live.post("/pings", [{"url": NEWS, "changed_at": at}]).json()
            (decision,) = answer["decisions"]
            assert (answer["accepted"], decision["crawl"], decision["reason"]) == (1, crawl, reason)
        assert page(live)["estimate"]["n_pings"] == 1
