"""Hosts with windows have their early crawls inside of them, and no burst at the opening."""

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from support.budget_cases import Fleet, service, urls
from support.crawl_cases import POLITE, RUDE, queue, report, rng, rows
from support.store_cases import CERTIFICATE, T0, publish, register, schedule_columns

from service.batching.lease_requests import LeaseRequest, lease_all
from service.budget.allotments import Terms
from service.budget.keeper import Keeper
from service.budget.spending import adopt_pace
from service.leases.dealt import WorkerRequest
from service.leases.due import due_at
from service.leases.early import EarlyPages, waited
from service.leases.host_settings import change_group, change_host
from service.leases.queue import fill_queue
from service.model.calendars import Calendars
from service.status.budget_today import budget_today
from service.storage.queue.columns import ALL_PAGES
from service.storage.queue.hours import follow_hours

BUDGET = 24.0
NIGHT = "a.example"
MIDNIGHT = T0.replace(hour=0)
HOUR, SOON = timedelta(hours=1), timedelta(minutes=20)
EVENING = "12:00-20:00 UTC"
SECOND = timedelta(seconds=1)


def crawled(store, keeper, now, count=100):
    """Crawl what a worker is given at an instant; return the pages."""
    store.clock = lambda: now
    job = LeaseRequest(WorkerRequest("w", count, SOON), ALL_PAGES)
    parts = lease_all(store, RUDE, rng(), [job], keeper=keeper)
    if keeper is not None:
        keeper.give_back()
    crawls = [crawl for part in parts for crawl in rows(part.leased)]
    if crawls:
        report(store, crawls, now)
    return [crawl.page_id for crawl in crawls]


def open_in_the_evening(store, host=NIGHT, group=None):
    """Open a host in the evening, or a group of it and another whose windows are its own."""
    store.calendars = Calendars()
    with store.begin() as tx:
        if group is None:
            change_host(tx, host, {"windows": [EVENING]}, MIDNIGHT, POLITE)
        else:
            change_group(tx, group, {"windows": [EVENING]}, [host, "other"], MIDNIGHT, POLITE)
            change_host(tx, "other", {"windows": []}, MIDNIGHT, POLITE)
    with store.begin(write=False) as tx:
        follow_hours(tx, tx.orders().hours)


def crawled_before(store, *hosts, n=60):
    """Register n pages of each host, of ten days' intervals, that were crawled four days ago."""
    before = MIDNIGHT - timedelta(days=4)
    ids = np.array([register(store, n, before - HOUR, host=host) for host in hosts])
    queue(store, ids.ravel(), before)
    crawled(store, None, before, count=1_000)
    with store.begin() as tx:
        tx.run("UPDATE page_states SET interval_factor = 1.0")
    rates = schedule_columns(np.sort(ids.ravel()), crawl_rate=np.full(ids.size, 0.1))
    demand = (("", "", 0.1 * n * (len(hosts) - 1)), (EVENING, "", 0.1 * n))
    publish(store, rates, now=before, certificate=replace(CERTIFICATE, window_demand=demand))
    return [sorted(each) for each in ids.tolist()]


def fill(store, early, now):
    """Queue what the idle budget may bring forward; a fill follows the counts of the one before."""
    store.clock = lambda: now
    for _ in range(2):
        fill_queue(store, now + HOUR, early=early)


@pytest.mark.usefixtures("no_timers")
@pytest.mark.parametrize("group", [None, "g"])
def test_a_day_is_spent_evenly_over_its_window(sql_store, group):
    crawled_before(sql_store, NIGHT)
    open_in_the_evening(sql_store, group=group)
    keeper, early = Keeper(sql_store, Terms(BUDGET), seconds=lambda: 0.0), EarlyPages(BUDGET)
    closed_at = MIDNIGHT - 4 * HOUR
    assert crawled(sql_store, keeper, closed_at) == []  # the pace begins
    taken = []
    for hour in range(1, 29):
        # the last request of the window comes before its last 30 seconds
        at = closed_at + hour * HOUR + (timedelta(minutes=-1) if hour == 24 else SECOND)
        fill(sql_store, early, at)
        taken.append(len(crawled(sql_store, keeper, at)))
    assert sum(taken[:15]) == 0, "none in the closure"
    assert taken[15] == 1, "at the opening, what the day before has left"
    assert set(taken[16:23]) == {3, 4}, "evenly, but for the last hour"
    assert (sum(taken[16:23]), taken[23]) == (BUDGET, 0)
    assert sum(taken[24:]) == 0


@pytest.mark.usefixtures("no_timers")
def test_the_views_name_what_a_day_keeps_for_windows(sql_store):
    """Half of the plan is of a host that opens at noon, so half of the day is kept."""
    crawled_before(sql_store, NIGHT, "b.example")
    open_in_the_evening(sql_store)
    terms, left = Terms(BUDGET), []
    keeper = Keeper(sql_store, terms, seconds=lambda: 0.0)
    for hour in (0, 11, 16, 21):
        sql_store.clock = lambda hour=hour: MIDNIGHT + hour * HOUR
        keeper.give_back()
        with sql_store.begin() as tx:
            adopt_pace(tx, terms)
        with sql_store.begin(write=False) as tx:
            today = budget_today(tx, terms)
        left.append(today.in_windows)
        assert today.at_once <= today.left - today.in_windows + 1e-9
    assert left[:2] == pytest.approx([BUDGET / 2, BUDGET / 2])
    assert 0 < left[2] < BUDGET / 2
    assert left[3] == 0


@pytest.mark.usefixtures("no_timers")
def test_pages_ripen_in_open_time_alone(sql_store):
    (ids,) = crawled_before(sql_store, NIGHT)
    open_in_the_evening(sql_store)
    with sql_store.begin(write=False) as tx:
        pages = tx.due_columns(np.array(ids))
    due = due_at(pages)
    noon = MIDNIGHT + 12 * HOUR
    share = [waited(pages, due, at)[0] for at in (noon - 16 * HOUR, noon, noon + 8 * HOUR)]
    assert share[0] == share[1] < share[2]


@pytest.mark.usefixtures("no_timers")
def test_pages_that_stay_closed_leave_their_places_to_others(sql_store):
    _, other = crawled_before(sql_store, NIGHT, "b.example")
    open_in_the_evening(sql_store)
    keeper, early = Keeper(sql_store, Terms(BUDGET), seconds=lambda: 0.0), EarlyPages(BUDGET)
    assert crawled(sql_store, keeper, MIDNIGHT - 12 * HOUR) == []
    fill(sql_store, early, MIDNIGHT)
    taken = set(crawled(sql_store, keeper, MIDNIGHT + SECOND))
    assert len(taken) == 12
    assert taken <= set(other)


class NightFleet(Fleet):
    """A fleet that notes the instants of its crawls, on pages that change every other day."""

    def __init__(self, live):
        super().__init__(live)
        self.at = []

    def crawl(self, items):
        self.at += [self.live.clock()] * len(items)
        return super().crawl(items)

    def digest(self, crawl, at):
        return f"{(self.live.clock().toordinal() + crawl['page_id']) // 2}"


@pytest.mark.slow
def test_a_fleet_at_night_spends_the_budget_without_a_burst(database_url):
    budget, days = 96.0, 5
    with service(database_url, bandwidth=budget) as live:
        live.client.patch("/hosts/a.example", json={"windows": ["22:00-06:00 Europe/Berlin"]})
        live.register(*urls(40))
        fleet = NightFleet(live)
        begin = live.clock()
        for _ in range(days * 24):
            live.service.runner.run_once()
            fleet.ask()
            live.clock.advance(hours=1)
    assert sum(fleet.days()[-2:]) >= 0.99 * budget * 2
    after = [at for at in fleet.at if at >= begin + timedelta(days=2)]
    by_hour = Counter((at.astimezone(ZoneInfo("Europe/Berlin")).hour + 2) % 24 for at in after)
    assert set(by_hour) <= set(range(8)), "no crawl outside of the window"
    assert by_hour[0] <= 1.5 * by_hour.total() / 8
