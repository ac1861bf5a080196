"""Fleets in simulated time over changes of clocks: no crawl outside of the windows, none lost.

The oracle is zoneinfo alone: a crawl is right if the wall time of its host lies in a window.
"""

from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from support.window_fleet import Fleet

from service.core.estimators.gamma import Gamma
from service.leases.due import next_at
from service.model.arrays import NO_TIME, instant, moment
from service.model.calendars import HourRules, hours_of
from service.model.columns import DueColumns
from service.model.windows import read_blackout, read_window

NIGHT = ("Mon-Fri 22:00-06:00 Europe/Berlin", "Sun 02:00-03:00 UTC")
HOWE = ("22:00-06:00 Australia/Lord_Howe",)
SHOP = ("Mon-Sat 01:00-05:30 America/New_York", "Sun 00:00-24:00 America/New_York")
WEEKEND = ("Sat-Sun 00:00-24:00 UTC",)
DARK = ("2026-12-24/2026-12-26 Europe/Berlin",)
RULES = {
    "night.example": HourRules(NIGHT, DARK),
    "howe.example": HourRules(HOWE),
    "a.shop.example": HourRules(SHOP),
    "b.shop.example": HourRules(WEEKEND),
    "free.example": HourRules(),
}


def is_open(rules, at):
    """Return whether the wall time lies in a window, minute by minute."""
    found = rules.windows is None
    for window in map(read_window, rules.windows or ()):
        wall = at.astimezone(ZoneInfo(window.zone)).replace(tzinfo=None)
        for back in (0, 1):
            day = wall.date() - timedelta(days=back)
            midnight = datetime.combine(day, time())
            minutes = (wall - midnight) / timedelta(minutes=1)
            found |= day.weekday() in window.days and window.begin <= minutes < window.end
    dark = map(read_blackout, rules.blackouts)
    return found and not any(
        each.first <= at.astimezone(ZoneInfo(each.zone)).date() <= each.last for each in dark
    )


def played(store, start, days, n, every=timedelta(days=1)):
    """Return a fleet of n pages for each host after some days, with epochs in these intervals."""
    rng = np.random.default_rng(5)
    pages = {host: rng.uniform(0.3, 2.0, n) for host in RULES}
    fleet = Fleet(store, pages, start, Gamma(), 4.0 * n, every)
    fleet.rule(
        hosts={
            "night.example": {"windows": NIGHT, "blackouts": DARK},
            "howe.example": {"windows": HOWE},
            "b.shop.example": {"windows": WEEKEND},
        },
        groups={"shop": ({"windows": SHOP}, ["a.shop.example", "b.shop.example"])},
    )
    fleet.run(start + timedelta(days=days))
    return fleet


def outside(fleet):
    """Return the crawls outside of windows, and the leases that end outside of them."""
    moment = timedelta(microseconds=1)
    return [
        (host, began, ends)
        for host, _, began, ends in fleet.crawls
        if not (is_open(RULES[host], began) and is_open(RULES[host], ends - moment))
    ]


def made(fleet, host):
    """Return the crawls of a host after the first ones, over those that windows permit."""
    pages = [page for page, name in fleet.host.items() if name == host]
    n = sum(name == host for name, *_ in fleet.crawls) - len(pages)
    return n / sum(fleet.promised[page] for page in pages)


def first_hours(fleet, host, start, days):
    """Return the crawls of an hour after an opening, over those of a mean open hour."""
    hours = hours_of(RULES[host], start + timedelta(days=35))
    begin, end = (
        np.datetime64((start + timedelta(days=day)).replace(tzinfo=None), "us") for day in (3, days)
    )
    some = (hours.opens >= begin) & (hours.opens < end)
    opens, closes = hours.opens[some], hours.closes[some]
    at = np.array([c[2].replace(tzinfo=None) for c in fleet.crawls if c[0] == host], "M8[us]")
    at = at[(at >= opens[0]) & (at < end)]
    length = (closes - opens) / np.timedelta64(1, "h")
    since = at - opens[opens.searchsorted(at, side="right") - 1]
    n_first = np.count_nonzero(since < np.timedelta64(1, "h"))
    return (n_first / np.minimum(length, 1.0).sum()) / (len(at) / length.sum())


@pytest.mark.slow
def test_a_year_over_both_changes_of_clocks_keeps_windows_rates_and_an_even_load(sql_store):
    start, days = datetime(2026, 1, 5, tzinfo=UTC), 365
    fleet = played(sql_store, start, days, 2, every=timedelta(days=5))
    assert outside(fleet) == []
    for host in RULES:
        assert made(fleet, host) >= 0.98, host
    for host in list(RULES)[:4]:
        assert first_hours(fleet, host, start, days) <= 2.0, host


@pytest.mark.dear
@pytest.mark.parametrize("start", [(2026, 3, 27), (2026, 10, 23), (2026, 4, 3)])
def test_days_around_changes_of_clocks_keep_windows(sqlite_store, start):
    fleet = played(sqlite_store, datetime(*start, tzinfo=UTC), 4, 2)
    assert len(fleet.crawls) > 15
    assert outside(fleet) == []


@pytest.mark.parametrize("host", ["night.example", "howe.example", "b.shop.example"])
@pytest.mark.parametrize("now", [(2026, 3, 29), (2026, 10, 25), (2026, 4, 4), (2026, 12, 25)])
def test_no_next_crawl_lies_in_a_closed_minute(host, now):
    """Pages of all kinds, some overdue, some asked for, some without content."""
    rng, n = np.random.default_rng(7), 300
    now = datetime(*now, tzinfo=UTC)
    hours = hours_of(RULES[host], now)
    ago = (rng.exponential(5.0, (2, n)) * 86_400e6).astype("m8[us]")
    last = np.where(rng.random(n) < 0.1, NO_TIME, instant(now) - ago[0])
    pages = DueColumns(
        page_id=np.arange(n),
        created_at=instant(now) - ago[0],
        last_crawl_at=last,
        requested_at=np.where(rng.random(n) < 0.3, instant(now) - ago[1], NO_TIME),
        gone=rng.random(n) < 0.1,
        n_failures=rng.integers(0, 4, n),
        outcome=np.zeros(n, np.int64),
        hops=np.zeros(n, np.int64),
        retry_rate=np.zeros(n),
        interval_factor=np.ones(n),
        due_rate=rng.uniform(0.0, 24.0, n),
        hours=np.full(n, hours, object),
    )
    at = [moment(each) for each in next_at(pages, instant(now)) if not np.isnat(each)]
    assert len(at) > 0.9 * n
    assert [each for each in at if not is_open(RULES[host], each)] == []
    open_now = is_open(RULES[host], now)
    assert any(each < now for each in at) == open_now, "overdue pages wait for the opening"
