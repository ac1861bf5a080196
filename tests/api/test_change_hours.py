"""Change hours over HTTP: what pages and hosts show of them, and crawls that follow them."""

from datetime import date, datetime, timedelta

import numpy as np
import pytest
from support.hours_cases import burst
from support.live_server import Live, running
from support.store_cases import publish, schedule_columns

from recrawl_client import Client
from service.core.change_hours.evidence import WIDTH
from service.core.change_hours.profile import TERMS
from service.model.arrays import instant
from service.model.columns import NOT_SHIFTED, ChangeHours, GroupHours
from service.model.urls import bucket, directory
from service.storage.epochs.contract import Learnt

PAGE = "https://news.example/today"
HOST = "/hosts/news.example"
REASON = "because 55% of the changes of news.example come between 05:00 and 06:30 UTC"


def teach(api: Live, weight: float, shift: int = NOT_SHIFTED) -> int:
    """Put an epoch in force in which the first host changes at six and its page was shifted."""
    with api.service.store.begin(write=False) as tx:
        loaded = tx.load_columns()
    change_hours = ChangeHours(
        host_id=loaded.host_id[:1],
        learnt_at=np.array([instant(api.clock.now)]),
        evidence=np.zeros((1, WIDTH)),
        profile=np.append(weight, burst(at=0.25).coefficients).reshape(1, 1 + TERMS),
    )
    moves = {"urgency": 0.75, "shift": shift, "carried": shift}
    schedule = schedule_columns(loaded.page_id, **moves)
    return publish(api.service.store, schedule, api.clock.now, change_hours=change_hours)


@pytest.fixture
def page_id(api: Live) -> int:
    """A page that has been crawled."""
    (page_id,) = api.register(PAGE)
    at = api.clock.now.isoformat()
    assert api.post("/observations", [{"url": PAGE, "observed_at": at, "digest": "1"}])
    api.clock.advance(hours=1)
    return page_id


@pytest.mark.dear
def test_a_host_that_has_no_change_hours_has_none(api: Live, page_id):
    assert api.get(HOST).json()["change_hours"] is None
    page = api.get(f"/pages/{page_id}").json()
    assert page["change_hours"] is page["schedule"] is None
    teach(api, weight=0.0)
    page = api.get(f"/pages/{page_id}").json()
    assert (
        page["change_hours"]
        is api.get(HOST).json()["change_hours"]
        is page["schedule"]["shift_s"]
        is None
    )


def test_a_page_and_its_host_show_the_hours_at_which_the_host_changes(api: Live, page_id):
    teach(api, weight=0.97)
    hours = api.get(HOST).json()["change_hours"]
    assert api.get(f"/pages/{page_id}").json()["change_hours"] == hours
    assert hours["weight"] == pytest.approx(0.97, abs=1e-4)
    assert (hours["busiest"]["start"], hours["busiest"]["end"]) == (5.0, 6.5)
    assert hours["busiest"]["share"] == pytest.approx(0.55, abs=0.01)
    assert datetime.fromisoformat(hours["learnt_at"]) == api.clock.now
    assert len(hours["intensity"]) == 24
    assert np.mean(hours["intensity"]) == pytest.approx(1.0, abs=1e-3)
    assert int(np.argmax(hours["intensity"])) in (5, 6)


def test_the_change_hours_of_one_host_are_not_that_of_another(api: Live, page_id):
    (other,) = api.register("https://other.example/")
    teach(api, weight=0.5)
    assert api.get(f"/pages/{page_id}").json()["change_hours"]
    assert api.get(f"/pages/{other}").json()["change_hours"] is None
    assert api.get("/hosts/other.example").json()["change_hours"] is None


@pytest.mark.parametrize(
    ("shift", "length"),
    [(180, "3 hours later"), (-45, "45 minutes earlier"), (15, None), (0, None)],
)
def test_a_page_says_that_its_next_crawl_was_shifted_and_why(api: Live, page_id, shift, length):
    teach(api, weight=0.97, shift=shift)
    page = api.get(f"/pages/{page_id}").json()
    assert page["schedule"]["shift_s"] == 60.0 * shift
    assert page["schedule"]["urgency"] == 0.75
    sentence = page["why"]["sentence"]
    assert "since its last crawl its URL group" not in sentence
    clause = f"; its next crawl was shifted {length}, {REASON} (certainty 97%)."
    assert sentence.endswith(clause) if length else "shifted" not in sentence


def test_a_crawl_after_the_epoch_ends_the_shift(api: Live, page_id):
    teach(api, weight=0.97, shift=180)
    at = api.clock.advance(hours=2).isoformat()
    assert api.post("/observations", [{"url": PAGE, "observed_at": at, "digest": "1"}])
    page = api.get(f"/pages/{page_id}").json()
    assert page["schedule"]["shift_s"] is None
    assert "shifted" not in page["why"]["sentence"]
    assert "since its last crawl its URL group" not in page["why"]["sentence"]


def test_clients_and_the_command_read_change_hours(api: Live, page_id, recrawl):
    teach(api, weight=0.97, shift=180)
    with Client(api.url) as client:
        page, host = client.page(page_id), client.host("news.example")
    assert page.change_hours == host.change_hours
    assert page.change_hours.busiest.end == 6.5
    assert page.schedule.shift_s == 10_800.0
    assert f"shifted 3 hours later, {REASON}" in recrawl("why", PAGE, url=api.url).out


def teach_group(api: Live, page_id: int, **values) -> None:
    """Give the URL group of a page hours of its own, about noon."""
    with api.service.store.begin() as tx:
        page = tx.page(page_id)
        hours = tx.change_hours(np.array([page.host_id]))
        changes = {
            "host_id": np.array([page.host_id]),
            "url_group": np.array([bucket(directory(page.url))], np.int32),
            "seen_at": hours.learnt_at,
            "page_id": np.array([page_id]),
            "in_force": np.array([True]),
            "has_own": np.array([True]),
            "certain": np.ones(1),
            "evidence": np.zeros((1, WIDTH)),
            "profile": np.append(0.9, burst(at=0.5).coefficients).reshape(1, 1 + TERMS),
        }
        epoch = tx.number_in_force()
        tx.save_learnt(epoch, Learnt({}, hours, GroupHours(**(changes | values))))


def test_a_page_of_a_section_shows_the_hours_of_the_section(api: Live, page_id):
    (other,) = api.register("https://news.example/sport/2026/7/cup")
    teach(api, weight=0.97, shift=180)
    assert api.get(HOST).json()["url_group_hours"] == []
    teach_group(api, other)
    hours = api.get(f"/pages/{other}").json()["change_hours"]
    assert hours["url_group"] == "news.example/sport/2026"
    assert (hours["weight"], hours["busiest"]["start"]) == (0.9, 11.0)
    host = api.get(HOST).json()
    assert host["url_group_hours"] == [hours]
    assert host["change_hours"]["url_group"] is None
    assert api.get(f"/pages/{page_id}").json()["change_hours"] == host["change_hours"]
    sentence = api.get(f"/pages/{page_id}").json()["why"]["sentence"]
    assert "changes of news.example come" in sentence


def test_why_names_the_section_whose_hours_shifted_a_crawl(api: Live, page_id):
    teach(api, weight=0.97, shift=180)
    teach_group(api, page_id)
    sentence = api.get(f"/pages/{page_id}").json()["why"]["sentence"]
    assert "55% of the changes of news.example come between 11:00 and 12:30 UTC" in sentence
    assert "certainty 90%" in sentence


def test_a_flat_section_has_no_hours_and_one_that_is_its_host_those_of_the_host(api: Live, page_id):
    teach(api, weight=0.97)
    flat = np.append(0.0, burst(at=0.5).coefficients).reshape(1, 1 + TERMS)
    none = {"has_own": np.array([False]), "profile": flat}
    teach_group(api, page_id, **none)
    assert api.get(f"/pages/{page_id}").json()["change_hours"] is None
    assert api.get(HOST).json()["url_group_hours"] == []
    teach_group(api, page_id, **none, in_force=np.array([False]))
    assert api.get(f"/pages/{page_id}").json()["change_hours"]["busiest"]["start"] == 5.0


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
        hours = api.get(HOST).json()["change_hours"]
        pages = [api.get(f"/pages/{page_id}").json() for page_id in range(1, 31)]
    assert hours["weight"] > 0.9
    late = [at.hour for at in crawls if at > crawls[-1] - timedelta(days=4)]
    assert np.mean([6 <= hour < 12 for hour in late]) > 0.7
    assert 90 <= len(late) <= 150, "the budget is 30 crawls a day"
    assert any("because" in page["why"]["sentence"] for page in pages)


@pytest.mark.dear
def test_a_service_without_change_hours_learns_none(sqlite_url):
    with running(sqlite_url, bandwidth=30, change_hours=False) as api:
        simulated(api, 30, days=8)
        assert api.get(HOST).json()["change_hours"] is None
        pages = [api.get(f"/pages/{page_id}").json() for page_id in range(1, 31)]
    assert [page["schedule"]["shift_s"] for page in pages] == [None] * 30
