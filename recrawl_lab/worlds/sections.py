"""Worlds of hosts with sections: directories that may keep hours of their own.

The kind of a world decides at which hour a change comes: that of its section, that of its host, or
any.
"""

from typing import Literal

import numpy as np

from recrawl_lab.worlds.hourly import BULK_EVERY_DAYS, BULK_SHARE, LOG_CHANGE_RATE, SPREAD
from recrawl_lab.worlds.world import World, in_order, offsets
from service.model.arrays import Floats, Ints

SectionKind = Literal["cron", "daily", "twice", "weekend", "host", "half", "flat", "bulk", "bot"]
KINDS: dict[SectionKind, str] = {
    "cron": "one change of every page on every day, at the hour of its section",
    "daily": "changes at random days, at the hour of the section",
    "twice": "changes at random days, at one of two hours of the section, eight hours apart",
    "weekend": "as daily, all on two days in seven",
    "host": "changes at random days, at the hour of the host",
    "half": "as daily in every other section, at any hour in the rest",
    "flat": "changes at any hour",
    "bulk": "as flat, and revisions of half of a section at one instant",
    "bot": "changes at random, at four hours of the host, six hours apart",
}
"""Changes of each kind of world."""
APART = 1.0 / 3.0
"""Time from the first to the second hour of a section of the kind `twice`, days."""
WEEK, WEEKEND = 7, 2
"""Days of a week, and those of its end."""


def section_world(
    kind: SectionKind,
    *,
    rng: np.random.Generator,
    n_hosts: int = 1,
    n_sections: int = 20,
    n_pages: int = 10,
    days: float = 240.0,
) -> World:
    """Return a world of a kind, with sections on each host and pages in each section.

    Examples
    --------
    >>> world = section_world("cron", rng=np.random.default_rng(1), n_sections=2, days=9.0)
    >>> world.url[19], len(world.changes_of(19))
    ('https://host-0.example/section-1/19', 9)
    """
    section = np.repeat(np.arange(n_hosts * n_sections), n_pages)
    host, n = section // n_sections, len(section)
    rate = np.ones(n) if kind == "cron" else rng.lognormal(*LOG_CHANGE_RATE, n)
    of_hosts, of_sections = rng.random(n_hosts), rng.random(n_hosts * n_sections)
    if kind == "cron":
        page, day = np.repeat(np.arange(n), int(days)), np.tile(np.arange(int(days)), n)
        at = day.astype(np.float64)
    else:
        page = np.repeat(np.arange(n), rng.poisson(rate * days))
        at = days * rng.random(len(page))
        at = _at_weekends(at) if kind == "weekend" else at
    hour = np.full(len(at), np.nan)
    if kind in ("cron", "daily", "twice", "weekend", "half"):
        hour = of_sections[section[page]]
        if kind == "twice":
            hour = (hour + APART * rng.integers(2, size=len(at))) % 1.0
        hour[(kind == "half") & (section[page] % 2 == 1)] = np.nan
    elif kind == "host":
        hour = of_hosts[host[page]]
    elif kind == "bot":
        hour = (of_hosts[host[page]] + rng.integers(4, size=len(at)) / 4) % 1.0
    timed = np.floor(at) + hour + SPREAD * rng.standard_normal(len(at))
    at = np.where(np.isnan(hour), at, timed)
    if kind == "bulk":
        page, at = _with_revisions(page, at, section, days, rng)
    inside = (at > 0.0) & (at <= days)
    page, at = page[inside], at[inside]
    counts = np.bincount(page, minlength=n)
    return World(
        name=f"sections-{kind}",
        days=days,
        url=tuple(f"https://host-{host[i]}.example/section-{section[i]}/{i}" for i in range(n)),
        importance=np.ones(n),
        announced=np.zeros(n, np.bool_),
        created=np.zeros(n),
        ended=np.full(n, days),
        changed_at=in_order(page, at),
        first=offsets(counts),
        change_rate=rate + (BULK_SHARE / BULK_EVERY_DAYS if kind == "bulk" else 0.0),
    )


def _at_weekends(at: Floats) -> Floats:
    """Return instants, each moved to one of the last days of its week.

    >>> _at_weekends(np.array([0.0, 3.5, 6.9, 7.0])).round(2)
    array([ 5.  ,  6.  ,  6.97, 12.  ])
    """
    week = np.floor(at / WEEK)
    return np.asarray(WEEK * week + (WEEK - WEEKEND) + (at - WEEK * week) * (WEEKEND / WEEK))


def _with_revisions(
    page: Ints, at: Floats, section: Ints, days: float, rng: np.random.Generator
) -> tuple[Ints, Floats]:
    """Return changes, with those of revisions of sections added."""
    parts = [(page, at)]
    for each in range(section[-1] + 1):
        for instant in days * rng.random(rng.poisson(days / BULK_EVERY_DAYS)):
            touched = np.flatnonzero((section == each) & (rng.random(len(section)) < BULK_SHARE))
            parts.append((touched, np.full(len(touched), instant)))
    pages, instants = zip(*parts, strict=True)
    return np.concatenate(pages), np.concatenate(instants)
