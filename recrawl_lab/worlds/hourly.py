"""Worlds of hosts whose pages change by change hours, and worlds that only look like it.

Each host has an hour of its own. The kind of a world, one function of `KINDS`, decides what happens
at that hour.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np

from recrawl_lab.worlds.world import Importance, World, draw_importance, in_order, offsets
from service.model.arrays import Floats, Ints

Kind = Literal["daily", "cron", "flat", "bulk", "stops", "shifts"]

PAGES_PER_HOST = 50
MINUTE = 1.0 / 1440.0
SPREAD = 10 * MINUTE
"""Standard deviation of a change about the hour of its host, days."""
LOG_CHANGE_RATE = (np.log(0.3), 0.8)
"""Mean and deviation of the logarithms of change rates, 1/day."""
BULK_EVERY_DAYS = 30.0
"""Mean time between bulk revisions of a host, days."""
BULK_SHARE = 0.5
"""Share of a host's pages that a bulk revision changes."""
SHIFT = 1.0 / 24.0
"""Time by which the hours of `shifts` change, days: the beginning of winter time."""


class ClockedPages(NamedTuple):
    """(N,) pages with their hosts and the hours of these, and the number of days."""

    host: Ints
    """Number of the host, ascending."""
    hour: Floats
    """Part of the day at which the host changes, [0, 1)."""
    change_rate: Floats
    """Changes a day."""
    days: float


Changes = tuple[Ints, Floats]
"""(M,) pages and instants of changes, in any order."""


def daily(site: ClockedPages, rng: np.random.Generator) -> Changes:
    """Return Poisson numbers of changes a day, all about the hour of the host."""
    page, at = flat(site, rng)
    return page, _at_hour(at, site.hour[page], rng)


def cron(site: ClockedPages, rng: np.random.Generator) -> Changes:
    """Return one change of every page on every day, about the hour of its host."""
    days, n = int(site.days), len(site.hour)
    page = np.repeat(np.arange(n), days)
    day = np.tile(np.arange(days, dtype=np.float64), n)
    return page, _at_hour(day, site.hour[page], rng)


def flat(site: ClockedPages, rng: np.random.Generator) -> Changes:
    """Return Poisson numbers of changes, at any hour."""
    counts = rng.poisson(site.change_rate * site.days)
    page = np.repeat(np.arange(len(counts)), counts)
    return page, site.days * (1.0 - rng.random(len(page)))


def bulk(site: ClockedPages, rng: np.random.Generator) -> Changes:
    """Return changes at any hour, and revisions of many pages of a host at one instant."""
    parts = [flat(site, rng)]
    for host in range(site.host[-1] + 1):
        pages = np.flatnonzero(site.host == host)
        for at in site.days * rng.random(rng.poisson(site.days / BULK_EVERY_DAYS)):
            touched = pages[rng.random(len(pages)) < BULK_SHARE]
            parts.append((touched, np.full(len(touched), at)))
    page, at = (np.concatenate(column) for column in zip(*parts, strict=True))
    return page, at


def stops(site: ClockedPages, rng: np.random.Generator) -> Changes:
    """Return changes as `daily` in the first half, then at any hour."""
    page, at = flat(site, rng)
    by_hours = _at_hour(at, site.hour[page], rng)
    return page, np.where(at < site.days / 2, by_hours, at)


def shifts(site: ClockedPages, rng: np.random.Generator) -> Changes:
    """Return changes as `daily`, and from the middle on an hour later."""
    page, at = daily(site, rng)
    return page, np.where(at < site.days / 2, at, at + SHIFT)


KINDS: dict[Kind, Callable[[ClockedPages, np.random.Generator], Changes]] = {
    "daily": daily,
    "cron": cron,
    "flat": flat,
    "bulk": bulk,
    "stops": stops,
    "shifts": shifts,
}
"""Draw of the changes of each kind of world."""


def hourly_world(
    kind: Kind,
    n_pages: int,
    days: float,
    *,
    rng: np.random.Generator,
    pages_per_host: int = PAGES_PER_HOST,
    importance: Importance = "equal",
) -> World:
    """Return a world of a kind; every host has `pages_per_host` pages, the last one the rest.

    Examples
    --------
    >>> world = hourly_world("cron", 60, 9.0, rng=np.random.default_rng(1))
    >>> world.name, world.url[59], len(world.changes_of(59))
    ('hours-cron', 'https://host-1.example/pages/59', 9)
    """
    host = np.arange(n_pages) // pages_per_host
    hour = rng.random(host[-1] + 1)[host]
    site = ClockedPages(host, hour, rng.lognormal(*LOG_CHANGE_RATE, n_pages), days)
    page, at = KINDS[kind](site, rng)
    inside = (at > 0.0) & (at <= days)
    page, at = page[inside], at[inside]
    counts = np.bincount(page, minlength=n_pages)
    return World(
        name=f"hours-{kind}",
        days=days,
        url=tuple(f"https://host-{host[i]}.example/pages/{i}" for i in range(n_pages)),
        importance=draw_importance(importance, n_pages, rng),
        announced=np.zeros(n_pages, np.bool_),
        created=np.zeros(n_pages),
        ended=np.full(n_pages, days),
        changed_at=in_order(page, at),
        first=offsets(counts),
        change_rate=_true_rate(kind, site),
    )


def _true_rate(kind: Kind, site: ClockedPages) -> Floats:
    """Return (N,) expected changes of pages, 1/day."""
    if kind == "cron":
        return np.ones(len(site.hour))
    by_bulk = BULK_SHARE / BULK_EVERY_DAYS if kind == "bulk" else 0.0
    return site.change_rate + by_bulk


def _at_hour(at: Floats, hour: Floats, rng: np.random.Generator) -> Floats:
    """Return instants moved to about an hour of their day."""
    return np.asarray(np.floor(at) + hour + SPREAD * rng.standard_normal(len(at)))
