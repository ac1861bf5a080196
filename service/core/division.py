"""The division of a budget: refreshes, first crawls, and requests that teach nothing. Pure.

A budget of :math:`R` a day pays for every request. The allocation of refreshes receives
:math:`R - h - x`. Requests that teach nothing, such as retries, take :math:`h` a day. First crawls
take :math:`x` a day: as many as the new pages want, at most a share of the budget. While first
copies wait, one refresh a day is enough for each page that has a copy. First crawls may have what
is beyond.

Amounts are in the unit of the budget: crawls, bytes, seconds or money. A crawl whose cost nobody
knows yet counts at the mean cost.
"""

from typing import NamedTuple

from service.core.checks import InvalidInput

FIRST_SHARE = 0.5
"""Maximum share of a budget, and of the cap of a host, for first crawls, by default."""
LEAST_PLANNED = 0.1
"""Minimum share of the budget for refreshes."""


class Wanted(NamedTuple):
    """Demand of the pages of a budget beside refreshes."""

    n_copies: int = 0
    """Pages that have a copy."""
    n_waiting: int = 0
    """Pages that wait for their first crawl."""
    first_crawls: float = 0.0
    """First crawls a day that the new pages want within the caps of hosts and groups."""
    minima: float = 0.0
    """Sum of the minimum crawl rates of the pages that have a copy, amount a day."""


class Division(NamedTuple):
    """Parts of a budget, amounts a day."""

    budget: float
    planned: float
    """Part of refreshes."""
    overhead: float
    """Part of requests that teach nothing."""
    first_crawls: float | None
    """Maximum of first crawls, crawls a day; None: no maximum."""


def reserved(bandwidth: float, planned: float, overhead: float | None) -> float:
    """Return the part of a budget that refreshes leave to first crawls, amount a day.

    >>> reserved(100.0, 75.0, 5.0)
    20.0
    """
    return max(bandwidth - (overhead or 0.0) - planned, 0.0)


def divided(
    budget: float, wanted: Wanted, overhead: float, first_share: float, each: float = 1.0
) -> Division:
    """Return the parts of a budget.

    The maximum of first crawls is the share `first_share` of the budget, even where fewer pages
    wait. New pages therefore need not wait for the next epoch. Refreshes receive what the pages
    that wait do not want, at least their minima and `LEAST_PLANNED` of the budget. A corpus without
    any copy has the whole budget for first crawls, and its rates are planned on all of it.

    Parameters
    ----------
    budget, overhead : amounts a day
    first_share : share of the budget, in [0, 1]
    each : mean cost of a crawl, in the unit of the budget

    Raises
    ------
    InvalidInput
        An amount is negative or not finite, or the share is outside of [0, 1].

    Examples
    --------
    >>> divided(100.0, Wanted(n_copies=500, n_waiting=20, first_crawls=20.0), 5.0, 0.5)
    Division(budget=100.0, planned=75.0, overhead=5.0, first_crawls=50.0)
    >>> divided(100.0, Wanted(n_copies=30, n_waiting=900, first_crawls=900.0), 0.0, 0.5)
    Division(budget=100.0, planned=30.0, overhead=0.0, first_crawls=70.0)
    """
    for name, value in (("budget", budget), ("overhead", overhead)):
        if not 0 <= value < float("inf"):
            raise InvalidInput(name, f"is {value}, expected a finite amount that is not negative")
    if not 0 <= first_share <= 1:
        raise InvalidInput("first_share", f"is {first_share}, expected a share between 0 and 1")
    if not wanted.n_copies:
        return Division(budget, budget, overhead, budget / each)
    most = first_share * budget
    if wanted.n_waiting:
        most = max(most, budget - overhead - wanted.n_copies * each)
    planned = budget - overhead - min(wanted.first_crawls * each, most)
    planned = max(planned, LEAST_PLANNED * budget, min(wanted.minima, budget))
    return Division(budget, planned, overhead, most / each)
