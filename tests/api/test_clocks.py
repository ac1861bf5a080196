"""Clocks of hosts over HTTP: what pages and hosts say of them, and crawls that follow them."""

from datetime import date, datetime, timedelta

import numpy as np
import pytest
from support.clock_cases import burst
from support.live_server import Live, running
from support.store_cases import publish, schedule_columns

from recrawl_client import Client
from service.core.clocks.evidence import WIDTH
from service.core.clocks.profile import TERMS
from service.model.arrays import instant
from service.model.columns import NOT_MOVED, ClockColumns

PAGE = "https://news.example/today"
HOST = "/hosts/news.example"
REASON = "because 55% of the changes of news.example come between 05:00 and 06:30 UTC"


def teach(api: Live, weight: float, shift: int = NOT_MOVED) -> int:
    """Put an epoch in force in which the first host changes at six and its page was moved."""
    with api.service.store.begin(write=False) as tx:
        loaded = tx.load_columns()
    clocks = ClockColumns(
        host_id=loaded.host_id[:1],
        learnt_at=np.array([instant(api.clock.now)]),
        evidence=np.zeros((1, WIDTH)),
        profile=np.append(weight, burst(at=0.25).coefficients).reshape(1, 1 + TERMS),
    )
    moves = {"urgency": 0.75, "shift": shift, "carried": shift}
    schedule = schedule_columns(loaded.page_id, **moves)
    return publish(api.service.store, schedule, api.clock.now, clocks=clocks)


@pytest.fixture
def page_id(api: Live) -> int:
    """A page that has been crawled."""
    (page_id,) = api.register(PAGE)
    at = api.clock.now.isoformat()
    assert api.post("/observations", [{"url": PAGE, "observed_at": at, "digest": "1"}])
    api.clock.advance(hours=1)
    return page_id


def test_a_host_that_has_shown_no_clock_has_none(api: Live, page_id):
    assert api.get(HOST).json()["clock"] is None
    page = api.get(f"/pages/{page_id}").json()
    assert page["clock"] is page["schedule"] is None
    teach(api, weight=0.0)
    page = api.get(f"/pages/{page_id}").json()
    assert page["clock"] is api.get(HOST).json()["clock"] is page["schedule"]["moved_s"] is None


def test_a_page_and_its_host_show_the_hours_at_which_the_host_changes(api: Live, page_id):
    teach(api, weight=0.97)
    clock = api.get(HOST).json()["clock"]
    assert api.get(f"/pages/{page_id}").json()["clock"] == clock
    assert clock["weight"] == pytest.approx(0.97, abs=1e-4)
    assert (clock["busiest"]["start"], clock["busiest"]["end"]) == (5.0, 6.5)
    assert clock["busiest"]["share"] == pytest.approx(0.55, abs=0.01)
    assert datetime.fromisoformat(clock["learnt_at"]) == api.clock.now
    assert len(clock["intensity"]) == 24
    assert np.mean(clock["intensity"]) == pytest.approx(1.0, abs=1e-3)
    assert int(np.argmax(clock["intensity"])) in (5, 6)


def test_the_clock_of_one_host_is_not_that_of_another(api: Live, page_id):
    (other,) = api.register("https://other.example/")
    teach(api, weight=0.5)
    assert api.get(f"/pages/{page_id}").json()["clock"]
    assert api.get(f"/pages/{other}").json()["clock"] is None
    assert api.get("/hosts/other.example").json()["clock"] is None


@pytest.mark.parametrize(
    ("shift", "moved"),
    [(180, "3.0 hours later"), (-45, "45.0 minutes earlier"), (15, None), (0, None)],
)
def test_a_page_says_that_its_next_crawl_was_moved_and_why(api: Live, page_id, shift, moved):
    teach(api, weight=0.97, shift=shift)
    page = api.get(f"/pages/{page_id}").json()
    assert page["schedule"]["moved_s"] == 60.0 * shift
    assert page["schedule"]["urgency"] == 0.75
    sentence = page["why"]["sentence"]
    assert "URL group has changed" not in sentence
    clause = f"; its next crawl was moved {moved}, {REASON} (certainty 97%)"
    assert sentence.endswith(clause) if moved else "moved" not in sentence


def test_a_crawl_after_the_epoch_ends_the_move(api: Live, page_id):
    teach(api, weight=0.97, shift=180)
    at = api.clock.advance(hours=2).isoformat()
    assert api.post("/observations", [{"url": PAGE, "observed_at": at, "digest": "1"}])
    page = api.get(f"/pages/{page_id}").json()
    assert page["schedule"]["moved_s"] is None
    assert "moved" not in page["why"]["sentence"]
    assert "URL group has changed" not in page["why"]["sentence"]


def test_clients_and_the_command_read_clocks(api: Live, page_id, recrawl):
    teach(api, weight=0.97, shift=180)
    with Client(api.url) as client:
        page, host = client.page(page_id), client.host("news.example")
    assert page.clock == host.clock
    assert page.clock.busiest.end == 6.5
    assert page.schedule.moved_s == 10_800.0
    assert f"moved 3.0 hours later, {REASON}" in recrawl("why", PAGE, url=api.url).out


def simulated(api: Live, n_pages: int, days: int) -> list[datetime]:
    """Crawl pages that change daily at 06:00 whenever they are due; return the crawls' instants."""
    page_ids = api.register(*(f"https://news.example/{i}" for i in range(n_pages)))
    rng, crawls, start, step = np.random.default_rng(3), [], api.clock.now, timedelta(hours=6)
    due = {page_id: start + rng.random() * timedelta(days=1) for page_id in page_ids}
    last = dict.fromkeys(page_ids, start)
    while api.clock.now < start + timedelta(days=days):
        end = api.clock.advance(hours=6)
        crawled = {i: max(at, end - step) for i, at in due.items() if at < end}
        items = [
            {"page_id": i, "observed_at": at.isoformat(), "changed": edition(at) > edition(last[i])}
            for i, at in crawled.items()
        ]
        if items:
            assert api.post("/observations", items).json()["accepted"] == len(items)
        last |= crawled
        crawls += crawled.values()
        api.epoch()
        rows = api.schedule()
        due = {row["page_id"]: datetime.fromisoformat(row["next_crawl_at"]) for row in rows}
    return crawls


def edition(at: datetime) -> date:
    """Return the day of the newest change before an instant."""
    return (at - timedelta(hours=6)).date()


@pytest.mark.slow
def test_a_site_that_changes_at_six_is_crawled_after_six(sqlite_url):
    with running(sqlite_url, bandwidth=30) as api:
        crawls = simulated(api, 30, days=24)
        clock = api.get(HOST).json()["clock"]
        pages = [api.get(f"/pages/{page_id}").json() for page_id in range(1, 31)]
    assert clock["weight"] > 0.9
    late = [at.hour for at in crawls if at > crawls[-1] - timedelta(days=4)]
    assert np.mean([6 <= hour < 12 for hour in late]) > 0.7
    assert 90 <= len(late) <= 150, "the budget is 30 crawls a day"
    assert any("because" in page["why"]["sentence"] for page in pages)


def test_a_service_without_clocks_learns_none(sqlite_url):
    with running(sqlite_url, bandwidth=30, clocks=False) as api:
        simulated(api, 30, days=8)
        assert api.get(HOST).json()["clock"] is None
        pages = [api.get(f"/pages/{page_id}").json() for page_id in range(1, 31)]
    assert [page["schedule"]["moved_s"] for page in pages] == [None] * 30
