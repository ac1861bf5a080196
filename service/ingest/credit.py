"""Credit of pages: the share of a crawl that their pings have earned, spent now or later. Pure.

`core.crawl_value` has the law. The plan of a page has the bar that the value of a crawl must reach.
A ping, and the time without one, earn a share of a crawl. A whole credit pays for a crawl. A page
whose ping leaves the credit short earns the rest in time, if its pings miss changes. Its next crawl
is brought forward to that instant, so that the page is due once, like any other.

Arrays are (N,) for pings, ordered by page and time, and (P,) for their pages.
"""

from datetime import datetime
from typing import NamedTuple

import numpy as np

from service.core import waits
from service.core.crawl_value import Earnings, earnings
from service.core.estimators.gamma import Gamma
from service.estimation.estimates import pings_now
from service.estimation.rules import Rules
from service.leases.due import MAX_DUE_DAYS, requested
from service.model.arrays import (
    Bools,
    Floats,
    Groups,
    Instants,
    Ints,
    days,
    distinct,
    instant,
    rounds,
)
from service.model.columns import PageStates, PingColumns
from service.model.domain import Observability, Timing


class SpentCredit(NamedTuple):
    """The pings that pay for a crawl, and their pages after them."""

    at_once: Bools
    """(N,) True where the crawl is paid for."""
    later: Bools
    """(N,) True where the ping brings the crawl of its page forward, but not to now."""
    credit: Floats
    """(P,) credit that remains."""
    interval_factor: Floats
    """(P,) as in `PageStates`."""
    retry_rate: Floats
    """(P,) as in `PageStates`: the rate by which an earned crawl ranks among those that are due."""


def spend(
    states: PageStates,
    groups: Groups,
    pings: PingColumns,
    counts: Bools,
    rules: Rules,
    now: datetime | None,
) -> SpentCredit:
    """Return what pings pay for; only those that count earn anything.

    `now` is the arrival of the pings; None: each arrives at its own time.
    """
    page = groups.page
    probability = np.where(np.isnan(states.crawl_probability), 1.0, states.crawl_probability)
    nothing = np.zeros(len(page), np.bool_)
    if rules.timing is Timing.poisson:
        drawn = rules.rng.random(len(page)) < probability[page]
        kept = states.ping_credit, states.interval_factor, states.retry_rate
        return SpentCredit(drawn, nothing, *kept)
    counted = np.flatnonzero(counts)
    noisy = _noisy(states, page[counted], rules)
    if not len(noisy):
        at_once, credit = nothing, states.ping_credit.copy()
        for entries in rounds(page[counted]):
            row = page[counted[entries]]
            paid = waits.ping_credit(credit[row], probability[row])
            at_once[counted[entries]], credit[row] = paid
        return SpentCredit(at_once, nothing, credit, states.interval_factor, states.retry_rate)
    plan = _planned(states, noisy, probability, pings.changed_at[groups.end], rules)
    return _spend_noisy(states, page, pings, counted, plan, now)


class CrawlPlans(NamedTuple):
    """(P,) plans of pages; those of pages whose pings are complete earn by pings alone."""

    crawls: Floats
    """Crawls a day, on the clock and on pings; 0 where no time earns any."""
    earned: Earnings


def _noisy(states: PageStates, page: Ints, rules: Rules) -> Ints:
    """Return the rows of the `auto` pages among pages, ascending, whose earnings depend on time."""
    if not isinstance(rules.estimator.steady, Gamma):
        return page[:0]
    auto: Ints = page[states.observability[page] == Observability.auto]
    return distinct(auto)


def _planned(
    states: PageStates, noisy: Ints, probability: Floats, at: Instants, rules: Rules
) -> CrawlPlans:
    """Return the plans: the crawl probability by each ping, except of noisy pages."""
    earned, crawls = Earnings(probability.copy(), np.zeros(len(states))), np.zeros(len(states))
    steady = rules.estimator.steady
    assert isinstance(steady, Gamma)  # noqa: S101 - for mypy
    quality = pings_now(states, noisy, steady, at[noisy])
    # below 1, the crawls on the clock are audits beside the plan
    clock = np.where(probability[noisy] < 1.0, 0.0, states.crawl_rate[noisy])
    own = clock + probability[noisy] * quality.ping_rate
    earned.by_ping[noisy], earned.by_day[noisy] = earnings(quality, own)
    crawls[noisy] = np.where(earned.by_day[noisy] > 0, own, 0.0)
    return CrawlPlans(crawls, earned)


def _spend_noisy(
    states: PageStates,
    page: Ints,
    pings: PingColumns,
    counted: Ints,
    plan: CrawlPlans,
    now: datetime | None,
) -> SpentCredit:
    """Return what pings pay for, with what the time between crawls and pings earns."""
    at_once, (by_ping, by_day) = np.zeros(len(page), np.bool_), plan.earned
    credit, last = states.ping_credit.copy(), np.full(len(states), -1)
    since: Instants = np.fmax(states.last_ping_at, states.last_observed_at)
    for entries in rounds(page[counted]):
        which = counted[entries]
        row, at = page[which], pings.changed_at[which]
        waited = np.nan_to_num(np.maximum(days(at - since[row]), 0.0))
        paid = waits.ping_credit(credit[row], by_ping[row] + by_day[row] * waited)
        at_once[which], credit[row] = paid
        since[row], last[row] = at, which
    free = (last >= 0) & (plan.crawls > 0) & ~requested(states) & (states.n_failures == 0)
    short = np.flatnonzero(free & ~at_once[last])
    rest = np.minimum((1.0 - credit[short]) / by_day[short], MAX_DUE_DAYS)
    whole = days(since[short] - states.last_crawl_at[short]) + rest
    arrived: Instants = pings.changed_by if now is None else np.full(len(page), instant(now))
    is_past = whole <= days(arrived[last[short]] - states.last_crawl_at[short])
    at_once[last[short[is_past]]], credit[short[is_past]] = True, 0.0
    factor, later = states.interval_factor.copy(), np.zeros(len(page), np.bool_)
    nearer = whole * states.crawl_rate[short]
    sooner = ~is_past & (nearer > 0) & (nearer < factor[short])
    later[last[short[sooner]]], factor[short[sooner]] = True, nearer[sooner]
    moved = free & (at_once | later)[last]
    return SpentCredit(
        at_once, later, credit, factor, np.where(moved, plan.crawls, states.retry_rate)
    )
