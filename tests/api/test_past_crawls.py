"""Crawls of another crawler that are imported: they teach, and nothing else happens."""

from datetime import timedelta

import pytest
from support.live_server import START, Live

N, DAYS = 50, 58
HOST = "old.example"
URLS = [f"https://{HOST}/{i}" for i in range(N)]
HOUR = timedelta(hours=1)
pytestmark = pytest.mark.dear

BUDGET = {"budget": "60 crawls"}


def observe(api: Live, items) -> None:
    answer = api.post("/observations", items)
    assert answer.status_code == 200, answer.text
    assert answer.json()["accepted"] == len(items), answer.text


def crawl(url, at, **shown):
    return {"url": url, "observed_at": at.isoformat(), "status": 200, **shown}


def history(until=2, *, with_failures=True):
    """Return 58 daily crawls of each page; every fifth page is absent in the last 20 days."""
    items = []
    for ago in reversed(range(until, until + DAYS)):
        for i, url in enumerate(URLS):
            at = START - timedelta(days=ago, minutes=1 + i)
            if i % 5 == 0 and ago < until + 20:
                items += [crawl(url, at, status=404)] if with_failures else []
            else:
                items.append(crawl(url, at, digest=f"{i} {ago // (3 + i % 7)}"))
    return items


def changes(api: Live, **query):
    items = api.get("/changes", **query).json()["items"]
    return [(item["kind"], item["url"]) for item in items]


def reported(api: Live, **query):
    api.service.store.counter.write()
    rows = api.get("/history", **query).json()["items"]
    return {row["at"]: row["n_reported"] for row in rows if row["n_reported"]}


def test_an_epoch_after_an_import_plans_the_whole_budget(api: Live):
    observe(api, history())
    assert api.client.put("/budget", json=BUDGET).status_code == 200
    epoch = api.epoch()
    assert (epoch["overhead"], epoch["planned"]) == (0.0, pytest.approx(60.0))


@pytest.mark.parametrize("budget_first", [True, False])
def test_only_crawls_of_today_are_spent(api: Live, budget_first):
    def steps():
        yield lambda: api.client.put("/budget", json=BUDGET).raise_for_status()
        yield lambda: observe(api, history(until=0))

    for step in list(steps())[:: 1 if budget_first else -1]:
        step()
    # of each page the last crawl, this morning
    assert api.get("/budget").json()["spent_today"] == N
    api.service.store.counter.write()
    status = api.get("/status").json()
    assert status["today"]["n_reported"] == N
    assert status["budget"]["spent_until"] is None
    begin = (START - timedelta(days=90)).isoformat()
    days = reported(api, since=begin, step_s=86_400)
    assert days == {"2026-05-01T00:00:00Z": N}


def test_imported_crawls_are_in_no_count(api: Live):
    observe(api, history())
    assert reported(api, since=(START - timedelta(days=90)).isoformat(), step_s=86_400) == {}
    status = api.get("/status").json()
    assert (status["today"]["n_reported"], status["today"]["n_failed"]) == (0, 0)


def test_imported_changes_are_not_in_the_feed_and_teach(api: Live):
    observe(api, history())
    assert changes(api) == []
    page = api.get("/pages", url=URLS[1]).json()
    assert page["estimate"]["n_observations"] == DAYS - 1
    assert page["estimate"]["n_changes"] > 10
    assert api.get("/pages", url=URLS[0]).json()["gone"]
    observe(api, [crawl(URLS[1], START, digest="other"), crawl(URLS[2], START, digest="2 0")])
    (change,) = api.get("/changes").json()["items"]
    assert (change["kind"], change["url"]) == ("changed", URLS[1])
    assert change["changed_after"].startswith("2026-04-29")
    observe(api, [crawl(URLS[0], START, digest="back")])
    assert changes(api)[1:] == [("back", URLS[0])]


def test_a_page_that_its_own_report_registers_is_new(api: Live):
    at = START - timedelta(hours=3)
    observe(api, [crawl(URLS[0], at, digest="a"), crawl(URLS[1], START, digest="a")])
    assert sorted(changes(api)) == [("new", URLS[0]), ("new", URLS[1])]
    assert sum(reported(api).values()) == 2


def test_pages_that_went_before_the_import_start_no_incident(api: Live):
    observe(api, history(with_failures=False))
    gone = URLS[::5]
    for minutes in (0, 70):
        api.clock.now = START + timedelta(minutes=minutes)
        at = api.clock() - timedelta(seconds=5)
        observe(api, [crawl(url, at, status=404) for url in gone])
        assert api.get(f"/hosts/{HOST}").json()["incident"] is None
    assert sorted(changes(api)) == sorted(("gone", url) for url in gone)


def test_pages_that_were_seen_here_start_an_incident(api: Live):
    observe(api, history(with_failures=False))
    shown = [crawl(url, START - HOUR * 2, digest="own " + url) for url in URLS[::5]]
    observe(api, shown)
    observe(api, [crawl(url, START, status=404) for url in URLS[::5]])
    assert api.get(f"/hosts/{HOST}").json()["incident"]["kind"] == "absent"


@pytest.mark.parametrize("shown", [{"status": 429, "retry_after_s": 86_400}, {"status": 503}])
def test_trouble_of_last_week_pauses_no_host(api: Live, shown):
    items = [crawl(URLS[0], START - timedelta(days=8), digest="a")]
    items += [crawl(url, START - timedelta(days=7), **shown) for url in URLS]
    observe(api, items)
    host_queue = api.get(f"/hosts/{HOST}").json()["host_queue"]
    assert host_queue["paused_until"] is None
    assert host_queue["n_failures"] == 0


def test_late_reports_count_in_the_day_of_their_crawls(api: Live):
    api.register(*URLS)
    api.clock.now = START + timedelta(days=3, hours=13)  # one o'clock in the night
    assert api.client.put("/budget", json=BUDGET).status_code == 200
    yesterday = api.clock() - timedelta(minutes=90)
    today = api.clock() - timedelta(minutes=30)
    earlier = api.clock() - timedelta(days=2)
    observe(api, [crawl(URLS[i], earlier, digest="a") for i in range(3)])
    observe(api, [crawl(URLS[i], yesterday, digest="a") for i in range(4, 6)])
    observe(api, [crawl(URLS[9], today, digest="a")])
    assert reported(api, since=START.isoformat()) == {
        "2026-05-03T23:50:00Z": 3,
        "2026-05-04T23:50:00Z": 2,
        "2026-05-05T01:00:00Z": 1,
    }
    assert api.get("/budget").json()["spent_today"] == 1.0
    assert len(changes(api)) == 6
