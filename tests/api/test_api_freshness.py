"""Verdicts about copies over HTTP."""

from datetime import timedelta

import pytest
from support.live_server import START, Live

URL, OTHER = "https://a.example/1", "https://a.example/2"


@pytest.fixture
def world(api: Live) -> Live:
    """A page that was crawled at the start and found changed a day later."""
    api.register(URL)
    for day, digest in enumerate("ab"):
        api.clock.now = START + timedelta(days=day)
        at = api.clock.now.isoformat()
        api.post("/observations", [{"url": URL, "observed_at": at, "digest": digest}])
    api.clock.advance(days=1)
    return api


def ask(api: Live, *items):
    response = api.post("/freshness", list(items))
    assert response.status_code == 200, response.text
    return response.json()


@pytest.mark.dear
def test_a_copy_of_the_last_crawl_is_judged_and_an_older_one_is_stale(world: Live):
    day = (START + timedelta(days=1)).isoformat()
    answer = ask(world, {"url": URL}, {"url": URL, "fetched_at": START.isoformat()})
    last, older = answer["verdicts"]
    assert 0 < last["stale"] < 1
    assert older["stale"] == 1.0
    assert older["expected_changes"] == pytest.approx(1 + last["expected_changes"])
    assert (last["fetched_at"], last["last_crawl_at"]) == (day.replace("+00:00", "Z"),) * 2
    assert last["next_crawl_at"] is None  # before the first epoch
    assert (older["fetch"], answer["n_fetch"]) == (True, 1 + last["fetch"])
    world.epoch()
    assert ask(world, {"url": URL})["verdicts"][0]["next_crawl_at"] is not None


@pytest.mark.dear
def test_the_tolerance_decides_whether_to_fetch(world: Live):
    stale = ask(world, {"url": URL})["verdicts"][0]["stale"]
    below, at = ({"url": URL, "max_stale": p} for p in (stale * 0.99, stale))
    assert [v["fetch"] for v in ask(world, below, at)["verdicts"]] == [True, False]


def test_an_unknown_page_is_judged_by_its_group_and_stays_unknown(world: Live):
    fetched_at = (world.clock.now - timedelta(days=3)).isoformat()
    copy, none = ask(world, {"url": OTHER, "fetched_at": fetched_at}, {"url": OTHER})["verdicts"]
    assert copy["page_id"] is copy["last_crawl_at"] is copy["next_crawl_at"] is None
    assert 0 < copy["stale"] < 1
    assert (none["fetch"], none["stale"], none["fetched_at"]) == (True, None, None)
    assert world.get("/pages", url=OTHER).status_code == 404


@pytest.mark.dear
def test_the_same_page_by_url_and_by_id_and_twice(world: Live):
    page_id = world.get("/pages", url=URL).json()["page_id"]
    one, two, three = ask(world, {"url": URL}, {"page_id": page_id}, {"url": URL})["verdicts"]
    assert one == two == three


def test_wrong_items_are_rejected_alone(world: Live):
    future = (world.clock.now + timedelta(hours=1)).isoformat()
    answer = ask(
        world,
        {"url": URL},
        {"url": URL, "page_id": 1},
        {"page_id": 999},
        {"url": URL, "fetched_at": future},
        {"url": URL, "max_stale": 2},
        {"url": "ftp://x/"},
        {"nonsense": 1},
    )
    assert [verdict is None for verdict in answer["verdicts"]] == [False] + 6 * [True]
    assert [(r["index"], r["field"]) for r in answer["rejected"]] == [
        (1, "url"),
        (2, "page_id"),
        (3, "fetched_at"),
        (4, "max_stale"),
        (5, "url"),
        (6, "nonsense"),
    ]
    assert answer["n_rejected"] == 6


@pytest.mark.dear
def test_a_request_holds_ten_thousand_copies(sqlite_api: Live):
    many = [{"url": f"https://a.example/{i}"} for i in range(10_001)]
    refused = sqlite_api.post("/freshness", many)
    assert (refused.status_code, "10000" in refused.json()["detail"]) == (413, True)
    assert ask(sqlite_api, *many[:-1])["n_fetch"] == 10_000
    assert ask(sqlite_api)["verdicts"] == []


def crawled(api: Live, *, url: str = URL, **fields) -> None:
    item = {"url": url, "observed_at": api.clock.advance(hours=7).isoformat(), **fields}
    assert api.post("/observations", [item]).json()["accepted"] == 1


def verdict(api: Live, url: str = URL):
    return ask(api, {"url": url, "max_stale": 0})["verdicts"][0]


def test_a_verdict_has_the_state_of_its_page(world: Live):
    world.register(OTHER)
    unknown = verdict(world, "https://a.example/3")
    assert (unknown["state"], unknown["moved_to"], unknown["fetch"]) == (None, None, True)
    new = verdict(world, OTHER)
    assert (new["state"], new["fetch"]) == ("never_crawled", True)
    active = verdict(world)
    assert (active["state"], active["moved_to"], active["fetch"]) == ("active", None, True)
    crawled(world, status=500)
    failing = verdict(world)
    assert (failing["state"], failing["fetch"]) == ("failing", True)
    for _ in range(2):
        crawled(world, status=500)
    assert verdict(world)["state"] == "no_content"


@pytest.mark.parametrize("fields", [{"status": 403}, {"status": 451}, {"robots_denied": True}])
def test_a_refused_page_is_not_fetched_until_a_crawl_shows_it(world: Live, fields):
    crawled(world, **fields)
    refused = verdict(world)
    assert (refused["state"], refused["fetch"]) == ("refused", False)
    for _ in range(3):
        crawled(world, **fields)
    assert verdict(world)["state"] == "refused"
    crawled(world, digest="c")
    world.clock.advance(hours=1)
    shown = verdict(world)
    assert (shown["state"], shown["fetch"]) == ("active", True)


def test_a_page_that_is_gone_is_not_fetched(world: Live):
    for _ in range(3):
        crawled(world, status=404)
    gone = verdict(world)
    assert (gone["state"], gone["gone"], gone["fetch"]) == ("gone", True, False)
    assert gone["moved_to"] is None
    crawled(world, digest="c")
    assert verdict(world)["state"] == "active"


def test_a_page_that_moved_names_its_target(world: Live):
    for _ in range(3):
        crawled(world, status=301, redirect_url=OTHER)
    moved, target = (verdict(world, url) for url in (URL, OTHER))
    assert (moved["state"], moved["moved_to"], moved["fetch"]) == ("moved", OTHER, False)
    assert (target["state"], target["fetch"]) == ("never_crawled", True)
    several = ask(world, *({"url": url} for url in (OTHER, URL, URL, "https://a.example/9")))
    assert [v["moved_to"] for v in several["verdicts"]] == [None, OTHER, OTHER, None]
