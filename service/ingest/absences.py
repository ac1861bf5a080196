"""Absences of pages: a second look confirms the first one, and crawls without content count. Pure.

Arrays are (N,) for crawls, ordered by page and time, and (P,) for their pages.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.ingest.requests import MICROSECOND
from service.model.arrays import (
    DAY,
    NO_TIME,
    UNIX_ZERO,
    Bools,
    Codes,
    Groups,
    Instants,
    Ints,
    instant,
)
from service.model.columns import CrawlColumns, PageStates
from service.model.domain import MOST_FAILURES
from service.model.outcomes import CONTENT, DOUBTFUL, IS_ABSENT, WAITS, all_content

SLOWEST = 1e-3
"""Minimum crawl rate whose interval is compared with an hour, 1/day."""
LONG_AGO = instant(UNIX_ZERO)
"""First absence of a page that an older release found gone."""
CONFIRMED_AFTER = 1.0 / 24.0
"""Maximum time from the first look at an absent page to the look that confirms it, days."""
CONFIRMING_LOOKS = 2
"""Number of looks that make a page gone."""


class Absences(NamedTuple):
    """(N,) absences of pages among crawls, and what they show together."""

    confirmed: Bools
    """True if the crawl found the page absent, and a look long enough before it did too."""
    was_gone: Bools
    """True if the page was gone before the crawl."""
    since: Instants
    """(P,) time of the first absence since the last content, or of the first of the doubtful crawls
    in a row; NaT: none."""


def absences(
    states: PageStates,
    groups: Groups,
    crawls: CrawlColumns,
    outcome: Codes,
    waits: Bools | None = None,
) -> Absences:
    """Return the absences of pages: a second look confirms the first one.

    A crawl that shows neither content nor an absence changes nothing. A doubtful crawl makes the
    absences before it none, because the first look may have been part of the incident. Looks that
    are in `waits` confirm nothing; None: none of them waits.
    """
    looked = ~np.isnat(states.absent_since)
    if all_content(outcome) and not (looked | states.gone).any():
        never = np.zeros(len(outcome), np.bool_)
        return Absences(never, never, states.absent_since)
    absent, content = IS_ABSENT[outcome], outcome == CONTENT
    doubted, was_doubted = outcome == DOUBTFUL, states.outcome == DOUBTFUL
    seen = states.gone | (looked & ~was_doubted)
    at = crawls.observed_at
    # number of absences since the last content, with 1 for those of earlier batches
    so_far: Ints = np.cumsum(absent)
    others: Ints = so_far - absent
    base = groups.before(seen - others[groups.start], content | doubted, -others)
    opens = absent & (others + base == 0)
    # a gone page of an older release has no time of its first absence
    first = np.where(states.gone & np.isnat(states.absent_since), LONG_AGO, states.absent_since)
    # the time of the first doubt lasts as long as the doubts go on
    doubts_before = groups.before(was_doubted, np.ones_like(doubted), doubted)
    begins = opens | (doubted & ~doubts_before)
    sets = begins | content | (doubts_before & ~doubted)
    since = groups.before(first, sets, np.where(begins, at, NO_TIME))
    confirmed = absent & ~opens & (at - since >= _confirmed_after(states)[groups.page])
    if waits is not None:
        confirmed &= ~waits
    was_gone = groups.before(states.gone, content | confirmed, confirmed)
    confirmed |= absent & was_gone
    return Absences(
        confirmed,
        was_gone,
        groups.after(first, sets, np.where(begins, at, NO_TIME)),
    )


def _confirmed_after(states: PageStates) -> NDArray[np.timedelta64]:
    """Return (P,) spans between two looks at an absent page: an hour, or a shorter interval."""
    rate = np.where(states.crawl_rate > 0, states.crawl_rate, states.retry_rate)
    scheduled = rate > 0
    interval = np.where(scheduled, states.interval_factor, 1.0) / np.maximum(rate, SLOWEST)
    shorter: NDArray[np.timedelta64] = (
        np.minimum(interval, CONFIRMED_AFTER) * (DAY / MICROSECOND)
    ).astype("m8[us]")
    return shorter


def failures(states: PageStates, groups: Groups, outcome: Codes, absent: Absences) -> Ints:
    """Return (P,) crawls in a row without content; for a gone page, those that found it absent.

    A doubtful crawl counts only as the first one, so that an incident makes no page wait longer.
    """
    if all_content(outcome) and not states.n_failures.any():
        return states.n_failures
    content = outcome == CONTENT
    confirms = absent.confirmed & ~absent.was_gone
    in_row = groups.before(states.n_failures > 0, np.ones_like(content), ~content)
    again = in_row & (outcome == DOUBTFUL)
    # a price is no failure, and no content either
    missed = ~content & ~again & WAITS[outcome]
    counts = np.where(absent.was_gone, IS_ABSENT[outcome], missed)
    so_far: Ints = np.cumsum(counts)
    others: Ints = so_far - counts
    initial = states.n_failures - others[groups.start]
    restart = np.where(confirms, CONFIRMING_LOOKS, 0) - so_far
    n_failures = so_far[groups.end] + groups.after(initial, content | confirms, restart)
    return np.minimum(n_failures, MOST_FAILURES)
