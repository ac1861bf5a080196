"""Change notices of a world: true, delayed, incomplete and false ones, and sitemaps.

`pages` are the (P,) pages that send notices, in any order; other pages send none.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from recrawl_lab.worlds.world import World
from service.core.checks import InvalidInput, check_amount, check_array, check_share
from service.model.arrays import Bools, Floats, Ints


class Notices(NamedTuple):
    """(K,) notices in the order of their arrival; instants are days since the start."""

    page: Ints
    changed_at: Floats
    """Instant of the change according to the notice."""
    told_at: Floats
    """Instant of arrival; never before `changed_at`."""


def true_notices(world: World, pages: Ints) -> Notices:
    """Return a notice of every change at its instant, and no others."""
    page, at = _changes(world, pages)
    return _in_order(page, at, at)


def delayed(
    notices: Notices, world: World, mean_delay: float, *, rng: np.random.Generator | None = None
) -> Notices:
    """Return each notice with an exponential delay, or without `rng` with a constant delay.

    Notices that would arrive after the world's end are dropped.

    Parameters
    ----------
    mean_delay
        Mean delay, days.

    Raises
    ------
    InvalidInput
        The delay is negative or not finite.
    """
    mean = float(check_amount("mean_delay", mean_delay, ()))
    n_notices = len(notices.page)
    delay = np.full(n_notices, mean) if rng is None else rng.exponential(mean, n_notices)
    told_at = notices.told_at + delay
    in_time = told_at <= world.days
    return _in_order(notices.page[in_time], notices.changed_at[in_time], told_at[in_time])


def imperfect_notices(
    world: World,
    pages: Ints,
    *,
    recall: ArrayLike,
    precision: ArrayLike,
    rng: np.random.Generator,
) -> Notices:
    """Return notices with some changes missing and some false.

    Each change is reported with probability `recall`, at its instant. False notices are a Poisson
    process over the page's life at change_rate recall (1/precision - 1) a day. On average, a share
    `precision` of the page's notices is then true; a page that never changes sends none.

    Parameters
    ----------
    recall, precision : array_like, shape (P,) or scalar
        In [0, 1]; precision positive.

    Raises
    ------
    InvalidInput
        Recall or precision is out of its domain.
    """
    recall_of, precision_of = np.zeros(len(world)), np.ones(len(world))
    shape = pages.shape
    recall_of[pages] = check_share("recall", np.broadcast_to(recall, shape), shape)
    precision_of[pages] = check_array(
        "precision",
        np.broadcast_to(precision, shape),
        shape,
        test=lambda share: (share > 0) & (share <= 1),
        must="positive and at most 1",
    )
    page, at = _changes(world, pages)
    announced = rng.random(len(page)) < recall_of[page]
    false_rate = world.change_rate * recall_of * (1.0 / precision_of - 1.0)
    false_page, false_at = _false_notices(world, false_rate, rng)
    notice_at = np.append(at[announced], false_at)
    return _in_order(np.append(page[announced], false_page), notice_at, notice_at)


def _false_notices(world: World, rate: Floats, rng: np.random.Generator) -> tuple[Ints, Floats]:
    """Return a Poisson process over the life of each page; `rate` is (N,) 1/day."""
    page = np.repeat(np.arange(len(world)), rng.poisson(rate * world.life))
    share = 1.0 - rng.random(len(page))
    return page, world.created[page] + share * world.life[page]


def sitemap_notices(world: World, pages: Ints, every: float) -> Notices:
    """Return the notices of a correct sitemap fetched every `every` days, from the start on.

    A fetch reports the last change of each page that changed since the fetch before: several
    changes count as one. A page that no longer exists is not listed.

    Raises
    ------
    InvalidInput
        The interval is not positive.
    """
    fetched_at = _fetches(world, every)
    page, at = _changes(world, pages)
    fetch = np.searchsorted(fetched_at, at)
    last = (np.diff(page, append=-1) != 0) | (np.diff(fetch, append=-1) != 0)
    last &= fetch < len(fetched_at)
    page, at, told_at = page[last], at[last], fetched_at[fetch[last]]
    listed = ~world.gone(page, told_at)
    return _in_order(page[listed], at[listed], told_at[listed])


def lying_sitemap_notices(world: World, pages: Ints, every: float) -> Notices:
    """Return the notices of a sitemap whose pages all have the instant of the site's last build.

    The site is built whenever any of its pages changes, is added or is deleted. A fetch after a
    build reports a change of every listed page at that instant. O(P days/every) notices.

    Raises
    ------
    InvalidInput
        The interval is not positive.
    """
    fetched_at = _fetches(world, every)
    came, went = world.created > 0, world.ended < world.days
    built_at = np.sort(np.concatenate((world.changed_at, world.created[came], world.ended[went])))
    n_builds = np.searchsorted(built_at, fetched_at, side="right")
    news = np.flatnonzero(np.diff(n_builds, prepend=0) > 0)
    page = np.flatnonzero(_member(world, pages))
    at = fetched_at[news, None]
    fetch, row = np.nonzero((world.created[page] <= at) & ~world.gone(page, at))
    return Notices(page[row], built_at[n_builds[news] - 1][fetch], fetched_at[news][fetch])


def _changes(world: World, pages: Ints) -> tuple[Ints, Floats]:
    """Return the changes of some pages, by page and time."""
    chosen = _member(world, pages)[world.changed_page]
    return world.changed_page[chosen], world.changed_at[chosen]


def _member(world: World, pages: Ints) -> Bools:
    """Return a mask of the (N,) pages that are among `pages`."""
    member = np.zeros(len(world), np.bool_)
    member[pages] = True
    return member


def _fetches(world: World, every: float) -> Floats:
    """Return the instants of the fetches after the first, ascending, within the world's days."""
    if not 0 < every < np.inf:
        raise InvalidInput("every", f"must be positive and finite, not {every}")
    nth = np.arange(1, int(world.days / every) + 1, dtype=np.float64)
    return np.minimum(nth * every, world.days)


def _in_order(page: Ints, changed_at: Floats, told_at: Floats) -> Notices:
    order = np.lexsort((changed_at, page, told_at))
    return Notices(page[order], changed_at[order], told_at[order])
