"""Exact staleness of a crawled copy of a world, from the instants of changes and crawls.

A page with n uncrawled changes costs H(n) = 1 + 1/2 + … + 1/n (harmonic) or 1 (binary; 0 if n = 0).
The cost counts while the page exists, with its importance as weight (K19). The copy of a new page
is fresh, because discovery is the same for every policy.
"""

from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np

from recrawl_lab.worlds.versions import Versions
from recrawl_lab.worlds.world import World
from service.model.arrays import Floats, Ints


class Crawls(NamedTuple):
    """(K,) crawls in any order: page and instant, days since the start."""

    page: Ints
    at: Floats

    @classmethod
    def none(cls) -> Self:
        """Return no crawls."""
        return cls(np.zeros(0, np.int64), np.zeros(0))


def merged(*parts: Crawls) -> Crawls:
    """Return the crawls of all parts."""
    return Crawls(*(np.concatenate(column) for column in zip(*parts, strict=True)))


@dataclass(frozen=True, slots=True)
class Staleness:
    """Averages over time and pages, weighted by importance: 0 is always fresh."""

    harmonic: float
    binary: float
    """Share of the time in which a visitor, who chooses pages by importance, reads an old copy."""
    edges: Floats
    """(B + 1,) bounds of the bins of the curve, days."""
    harmonic_curve: Floats
    """(B,) the average within each bin."""


class Steps(NamedTuple):
    """(E,) intervals of constant uncrawled changes of a page, by page and time."""

    page: Ints
    at: Floats
    days: Floats
    """Time to the next step of the page, or to its end, days."""
    n_uncrawled: Ints
    """Number of uncrawled changes in that time."""
    oldest_at: Floats
    """Instant of the oldest uncrawled change; `at` without one."""


def staleness(world: World, crawls: Crawls, bins: int = 120) -> Staleness:
    """Return the mean penalties over all time; crawls outside of a page's life are ignored."""
    return averaged(world, uncrawled(world, crawls), bins)


def averaged(world: World, steps: Steps, bins: int) -> Staleness:
    """Return the mean penalties over all steps."""
    weight = world.importance[steps.page]
    penalty = weight * harmonic_numbers(steps.n_uncrawled)
    lived = float(world.importance @ world.life)
    edges = np.linspace(0.0, world.days, bins + 1)
    stale = _within(edges, steps.at, steps.days, penalty)
    alive = _within(edges, world.created, world.life, world.importance)
    return Staleness(
        harmonic=float(penalty @ steps.days) / lived,
        binary=float((weight * (steps.n_uncrawled > 0)) @ steps.days) / lived,
        edges=edges,
        harmonic_curve=np.divide(stale, alive, out=np.zeros(bins), where=alive > 0),
    )


def uncrawled(world: World, crawls: Crawls) -> Steps:
    """Merge changes and crawls by page and time and count. O(M + K log (M + K)).

    A crawl at the instant of a change sees the change; a crawl in an outage sees nothing. A page's
    steps are its creation and then its changes and crawls, so the index of each step is the count
    of steps before it.
    """
    inside = (crawls.at > world.created[crawls.page]) & (crawls.at < world.ended[crawls.page])
    inside &= ~world.outages.during(crawls.at)
    order = np.lexsort((crawls.at[inside], crawls.page[inside]))
    crawled_page, crawled_at = crawls.page[inside][order], crawls.at[inside][order]
    crawled_version = world.first[crawled_page] + Versions(world).at(crawled_page, crawled_at)
    pages, n_crawls = np.arange(len(world)), np.bincount(crawled_page, minlength=len(world))
    n_steps = 1 + np.diff(world.first) + n_crawls
    birth = np.cumsum(n_steps) - n_steps
    crawl = crawled_version + crawled_page + 1 + np.arange(len(crawled_page))
    page, at = np.repeat(pages, n_steps), np.empty(n_steps.sum())
    is_change = np.ones(len(page), np.bool_)
    is_change[birth] = is_change[crawl] = False
    at[birth], at[crawl], at[is_change] = world.created, crawled_at, world.changed_at
    until = np.append(at[1:], 0.0)
    until[birth + n_steps - 1] = world.ended
    newest_crawled = np.zeros(len(page), np.int64)
    newest_crawled[birth], newest_crawled[crawl] = world.first[:-1], crawled_version
    newest_crawled = np.maximum.accumulate(newest_crawled)
    n_uncrawled: Ints = np.cumsum(is_change) - newest_crawled
    stale = n_uncrawled > 0
    oldest_at = at.copy()
    oldest_at[stale] = world.changed_at[newest_crawled[stale]]
    return Steps(page, at, until - at, n_uncrawled, oldest_at)


def harmonic_numbers(n: Ints) -> Floats:
    """Return H(n) of each entry from one table.

    >>> harmonic_numbers(np.array([0, 1, 2, 4])).round(4)
    array([0.    , 1.    , 1.5   , 2.0833])
    """
    table = np.cumsum(1.0 / np.arange(1, max(n.max(initial=0), 1) + 1))
    return np.concatenate(([0.0], table))[n]


def _within(edges: Floats, at: Floats, days: Floats, height: Floats) -> Floats:
    """Return the integrals of rectangles that begin at `at` over bins of equal width, exactly."""
    n_bins, width = len(edges) - 1, edges[-1] / (len(edges) - 1)
    area, rise = np.zeros(n_bins), np.zeros(n_bins)
    for moment, jump in ((at, height), (at + days, -height)):
        bin_ = np.minimum((moment / width).astype(np.int64), n_bins - 1)
        area += np.bincount(bin_, jump * (edges[bin_ + 1] - moment), n_bins)
        rise += np.bincount(bin_, jump, n_bins)
    return np.asarray(area + width * np.concatenate(([0.0], np.cumsum(rise)[:-1])))
