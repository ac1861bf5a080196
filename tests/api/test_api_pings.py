"""Change notices over HTTP: counted, and decided upon at once."""

from datetime import timedelta

import pytest
from support.live_server import Live

NEWS = "https://example.com/news"
ABOUT = "https://example.com/about"


def ping(api: Live, url: str = NEWS, **since) -> dict:
    """Send one notice of a change and give the decision."""
    changed_at = (api.clock() + timedelta(**since)).isoformat()
    response = api.post("/pings", [{"url": url, "changed_at": changed_at}])
    assert response.status_code == 200, response.text
    (decision,) = response.json()["decisions"]
    return decision


def crawled(api: Live, url: str = NEWS) -> None:
    """Report a crawl of this instant."""
    item = {"url": url, "observed_at": api.clock().isoformat(), "digest": "a"}
    assert api.post("/observations", [item]).json()["accepted"] == 1


@pytest.mark.dear
def test_a_page_never_crawled_is_crawled_at_once(api: Live):
    decision = ping(api)
    assert (decision["crawl"], decision["reason"]) == (True, "never_crawled")


def test_the_word_of_an_incomplete_page_counts_for_nothing(api: Live):
    api.register(NEWS, observability="incomplete")
    crawled(api)
    api.clock.advance(hours=1)
    decision = ping(api)
    assert (decision["crawl"], decision["reason"]) == (False, "not_trusted")


def test_a_change_before_the_last_crawl_needs_no_other(api: Live):
    api.register(NEWS, observability="complete")
    crawled(api)
    decision = ping(api, hours=-1)
    assert (decision["crawl"], decision["reason"]) == (False, "crawled_since")


def test_a_page_no_epoch_has_scheduled_is_crawled_on_every_ping(api: Live):
    api.register(NEWS, observability="complete")
    crawled(api)
    for _ in range(2):
        api.clock.advance(hours=1)
        decision = ping(api)
        assert (decision["crawl"], decision["reason"]) == (True, "unscheduled")


@pytest.mark.dear
def test_pings_are_crawled_in_the_share_that_the_schedule_says(api: Live):
    api.register(NEWS, observability="complete")
    api.register(*(f"https://example.com/{i}" for i in range(9)), importance=0.3)
    crawled(api)
    for _ in range(10):
        api.clock.advance(hours=6)
        ping(api)
    api.epoch()
    (row,) = [row for row in api.schedule() if row["url"] == NEWS]
    probability = row["crawl_probability"]
    assert 0.05 < probability < 0.95, "the world of this test leaves no choice"
    decisions = []
    for _ in range(40):
        api.clock.advance(hours=6)
        decisions.append(ping(api))
    assert {d["reason"] for d in decisions} == {"credit", "saving"}
    assert all(d["crawl"] == (d["reason"] == "credit") for d in decisions)
    n_crawls = sum(d["crawl"] for d in decisions)
    assert abs(n_crawls - 40 * probability) <= 1


@pytest.mark.dear
def test_the_same_ping_again_changes_nothing_and_says_so(api: Live):
    api.register(NEWS, observability="complete")
    crawled(api)
    api.clock.advance(hours=1)
    items = [{"url": NEWS, "changed_at": api.clock().isoformat()}]
    first, again = api.post("/pings", items).json(), api.post("/pings", items).json()
    assert (first["accepted"], first["duplicate"]) == (1, 0)
    assert (again["accepted"], again["duplicate"]) == (0, 1)
    assert again["decisions"][0]["reason"] == "not_newer"
    assert again["decisions"][0]["crawl"] is False
    assert api.get("/pages", url=NEWS).json()["estimate"]["n_pings"] == 1


def test_an_older_ping_is_late(api: Live):
    ping(api)
    older = (api.clock() - timedelta(days=1)).isoformat()
    answer = api.post("/pings", [{"url": NEWS, "changed_at": older}]).json()
    assert (answer["accepted"], answer["late"]) == (0, 1)


def test_decisions_are_told_by_the_positions_of_the_items(api: Live):
    answer = api.post(
        "/pings",
        [
            {"url": "mailto:me@example.com", "changed_at": api.clock().isoformat()},
            {"url": NEWS, "changed_at": api.clock().isoformat()},
            {"page_id": 77, "changed_at": api.clock().isoformat()},
            {"url": ABOUT, "changed_at": api.clock().isoformat()},
        ],
    ).json()
    assert [d["index"] for d in answer["decisions"]] == [1, 3]
    assert [r["index"] for r in answer["rejected"]] == [0, 2]
    urls = [api.get(f"/pages/{d['page_id']}").json()["url"] for d in answer["decisions"]]
    assert urls == [NEWS, ABOUT]


def test_a_ping_that_asks_for_a_crawl_makes_the_page_due_until_it_is_crawled(api: Live):
    api.register(NEWS, observability="complete")
    crawled(api)
    changed_at = api.clock.advance(hours=2)
    assert ping(api)["crawl"] is True
    api.epoch()
    (row,) = api.schedule(url=NEWS)
    assert row["next_crawl_at"] == changed_at.isoformat().replace("+00:00", "Z")
    api.clock.advance(hours=1)
    crawled(api)
    (row,) = api.schedule(url=NEWS)
    assert row["next_crawl_at"] != changed_at.isoformat().replace("+00:00", "Z")


def test_pings_make_the_estimate_of_a_complete_page(api: Live):
    api.register(NEWS, observability="complete")
    for _ in range(30):
        api.clock.advance(hours=12)
        ping(api)
    estimate = api.get("/pages", url=NEWS).json()["estimate"]
    assert estimate["n_pings"] == 30
    assert 1.5 < estimate["change_rate"] < 2.5
