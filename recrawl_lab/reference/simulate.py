"""Event-by-event simulation of one page, a reference for the closed forms of `costs`.

Changes, pings and crawls have exact instants, without time steps. Random numbers come from a numpy
Generator of the caller.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from service.core.checks import Bools, Floats, InvalidInput, check_array
from service.core.costs import Timing
from service.core.waits import CREDIT_TOLERANCE


class PageStaleness(NamedTuple):
    """Averages over time of one page of importance 1."""

    harmonic: float
    """Mean of 1 + 1/2 + … + 1/n for n uncrawled changes."""
    binary: float
    """Mean of 1[n > 0]."""


class Played(NamedTuple):
    """Events of one page; instants in days, ascending."""

    changed_at: Floats
    crawled_at: Floats
    n_pings: int


def staleness(changed_at: ArrayLike, crawled_at: ArrayLike, days: float) -> PageStaleness:
    """Return the cost averaged over `days` of a page whose last crawl was at 0.

    The n-th change since a crawl adds 1/n from its instant to the next crawl, so the integral is
    a sum over the changes. A crawl at the instant of a change sees it.

    Parameters
    ----------
    changed_at, crawled_at : array_like, shapes (M,) and (K,), days
        Ascending, within [0, days].

    Raises
    ------
    InvalidInput
        Instants that do not ascend or lie outside of [0, days], or no days.

    Examples
    --------
    Changes after one and two days, a crawl after four, one more change after nine:

    >>> staleness([1.0, 2.0, 9.0], [4.0], days=10.0)
    PageStaleness(harmonic=0.5, binary=0.4)
    """
    if not 0 < days < np.inf:
        raise InvalidInput("days", f"must be positive and finite, not {days}")
    changes = _instants("changed_at", changed_at, days)
    crawls = np.append(_instants("crawled_at", crawled_at, days), days)
    crawl = np.searchsorted(crawls, changes, side="left")
    waits = crawls[crawl] - changes
    rank = np.arange(1, changes.size + 1) - np.searchsorted(crawl, crawl, side="left")
    return PageStaleness(
        float(np.sum(waits / rank) / days), float(np.sum(waits, where=rank == 1) / days)
    )


def play_page(
    rng: np.random.Generator,
    days: float,
    change_rate: float,
    crawl_rate: float = 0.0,
    crawl_probability: float = 0.0,
    *,
    timing: Timing = "poisson",
    ping_recall: float = 1.0,
    ping_precision: float = 1.0,
) -> Played:
    """Simulate one page for `days` days: changes, their pings, and the crawls that follow.

    Changes come at random at `change_rate`; a share `ping_recall` of them is announced at once.
    False pings come at the rate at which a share `ping_precision` of all pings is true. The page
    is crawled at `crawl_rate` on the clock and on pings with `crawl_probability`.

    The timing `poisson` is a Poisson clock and a random draw at each ping (K19); `periodic` is
    crawls on time and pings by credit. Raise `InvalidInput` for a number outside of its domain.

    Examples
    --------
    >>> played = play_page(np.random.default_rng(1), 8.0, 2.0, crawl_rate=0.5, timing="periodic")
    >>> played.crawled_at
    array([2., 4., 6., 8.])
    """
    _check_page(days, change_rate, crawl_rate, crawl_probability, ping_recall, ping_precision)
    if timing not in {"poisson", "periodic"}:
        raise InvalidInput("timing", f"is {timing!r}, expected 'poisson' or 'periodic'")
    changed_at = poisson_instants(rng, change_rate, days)
    announced = changed_at[rng.random(changed_at.size) < ping_recall]
    false_rate = change_rate * ping_recall * (1.0 / ping_precision - 1.0)
    pinged_at = np.sort(np.append(announced, poisson_instants(rng, false_rate, days)))
    if timing == "poisson":
        clock = poisson_instants(rng, crawl_rate, days)
        chosen = rng.random(pinged_at.size) < crawl_probability
    else:
        clock = np.arange(1, np.floor(days * crawl_rate) + 1) / max(crawl_rate, 1 / days)
        chosen = by_credit(pinged_at.size, crawl_probability)
    crawled_at = np.sort(np.append(np.minimum(clock, days), pinged_at[chosen]))
    return Played(changed_at, crawled_at, pinged_at.size)


def simulated_cost(
    rng: np.random.Generator,
    days: float,
    change_rate: float,
    crawl_rate: float = 0.0,
    crawl_probability: float = 0.0,
    *,
    timing: Timing = "poisson",
    ping_recall: float = 1.0,
    ping_precision: float = 1.0,
) -> PageStaleness:
    """Cost of one page that is played for `days` days; parameters as in `play_page`.

    Examples
    --------
    A change a day, crawled at random once a day: the closed forms are ln 2 and 1/2.

    >>> cost = simulated_cost(np.random.default_rng(1), 100_000.0, 1.0, crawl_rate=1.0)
    >>> f"{cost.harmonic:.2f} {cost.binary:.2f}"
    '0.69 0.50'
    """
    played = play_page(
        rng,
        days,
        change_rate,
        crawl_rate,
        crawl_probability,
        timing=timing,
        ping_recall=ping_recall,
        ping_precision=ping_precision,
    )
    return staleness(played.changed_at, played.crawled_at, days)


def poisson_instants(rng: np.random.Generator, rate: float, days: float) -> Floats:
    """Draw the instants in [0, days) of events at `rate` a day, ascending."""
    return np.sort(rng.random(rng.poisson(rate * days)) * days)


def by_credit(n_pings: int, crawl_probability: float) -> Bools:
    """Return which of `n_pings` pings, one after another from credit 0, buy a crawl.

    Examples
    --------
    >>> by_credit(6, 0.4)
    array([False, False,  True, False,  True, False])
    """
    earned = np.floor(np.arange(n_pings + 1) * crawl_probability + CREDIT_TOLERANCE)
    return np.asarray(np.diff(earned) > 0)


def _instants(name: str, values: ArrayLike, days: float) -> Floats:
    def test(at: Floats) -> Bools:
        return np.asarray((at >= 0) & (at <= days) & (np.diff(at, prepend=0.0) >= 0))

    return check_array(
        name, values, (np.size(values),), test=test, must=f"ascending within [0, {days}]"
    )


def _check_page(
    days: float, change: float, clock: float, p: float, recall: float, precision: float
) -> None:
    domains = (
        ("days", days, 0 < days < np.inf, "positive and finite"),
        ("change_rate", change, 0 <= change < np.inf, "finite and not negative"),
        ("crawl_rate", clock, 0 <= clock < np.inf, "finite and not negative"),
        ("crawl_probability", p, 0 <= p <= 1, "in [0, 1]"),
        ("ping_recall", recall, 0 <= recall <= 1, "in [0, 1]"),
        ("ping_precision", precision, 0 < precision <= 1, "positive and at most 1"),
    )
    for name, value, good, must in domains:
        if not good:
            raise InvalidInput(name, f"must be {must}, not {value}")
