"""Pages that an incident has made gone are crawled again as soon as it ends."""

from datetime import timedelta

import pytest
from support.live_server import Live, lease_freely

from service.model.errors import StoreUnavailable
from service.storage.queue.incidents import IncidentsSql

pytestmark = pytest.mark.dear

N = 12
HOST = "broken.example"
URLS = [f"https://{HOST}/{i}" for i in range(N)]
LONG_GONE, FAST, OTHERS = URLS[0], URLS[1:4], URLS[4:]
DAY = 24 * 60
"""A day, minutes."""


def report(api: Live, minutes_ago: float, urls=URLS, **shown):
    at = (api.clock() - timedelta(minutes=minutes_ago)).isoformat()
    items = [
        {"url": url, "observed_at": at, **(shown or {"status": 200, "digest": url})} for url in urls
    ]
    assert api.post("/observations", items).json()["accepted"] == len(urls)


def outage(api: Live, **shown):
    """Let a page be gone for long, and three be gone before five pages show the incident."""
    api.register(*URLS)
    api.clock.advance(days=6)
    report(api, 5 * DAY)
    for minutes in (240, 170):
        report(api, minutes, [LONG_GONE], status=404)
    report(api, 2 * 60, OTHERS)
    for minutes in (70, 5):
        report(api, minutes, FAST, **shown)
    report(api, 4, OTHERS, **shown)
    assert gone(api) == sorted([*FAST, LONG_GONE])
    assert api.get(f"/hosts/{HOST}").json()["incident"] is not None


def gone(api: Live) -> list[str]:
    return sorted(page["url"] for page in api.get("/pages", state="gone").json()["items"])


def crawl_due(api: Live) -> list[str]:
    """Crawl all pages that are due, with their content; return their URLs."""
    crawled = list[str]()
    lease_freely(api)
    while crawls := api.post("/leases", {"count": N}).json()["items"]:
        items = [
            {"lease": crawl["lease"], "status": 200, "digest": crawl["url"]} for crawl in crawls
        ]
        assert api.post("/observations", items).json()["accepted"] == len(items)
        crawled += [crawl["url"] for crawl in crawls]
        api.clock.advance(seconds=5)
    return sorted(crawled)


SIGNS = [{"status": 404}, {"status": 301, "redirect_url": f"https://{HOST}/new"}]


@pytest.mark.parametrize("shown", SIGNS, ids=["absent", "moved"])
def test_pages_are_back_soon_after_the_first_content(api: Live, shown):
    outage(api, **shown)
    report(api, 1, OTHERS[:1])
    assert crawl_due(api) == FAST
    assert gone(api) == [LONG_GONE]
    back = api.get("/changes", kind="back").json()["items"]
    assert sorted(change["url"] for change in back) == sorted(FAST)


def test_pages_are_back_soon_after_an_operator_has_ended_the_incident(api: Live):
    outage(api, status=404)
    api.client.delete(f"/hosts/{HOST}/incident")
    assert crawl_due(api) == FAST
    assert gone(api) == [LONG_GONE]


def test_pages_stay_gone_while_the_incident_lasts(sqlite_api: Live):
    outage(sqlite_api, status=404)
    assert crawl_due(sqlite_api) == []


def test_pages_are_back_within_a_day_if_the_database_failed_at_the_end(api: Live, monkeypatch):
    outage(api, status=404)
    with monkeypatch.context() as patch:
        patch.setattr(IncidentsSql, "gone_since", failing)
        report(api, 1, OTHERS[:1])
    assert crawl_due(api) == []
    api.clock.advance(days=1)
    assert set(FAST) < set(crawl_due(api))


def failing(*_):
    raise StoreUnavailable
