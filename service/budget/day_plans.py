"""Plans of a day: what the epoch in force keeps for windows, and how many first crawls it has."""

import math
from collections.abc import Sequence
from datetime import datetime

from service.core.even_days import NOTHING_KEPT, Demand, Kept, kept
from service.core.pace import ROUNDING, Pace, next_room_at
from service.model.arrays import instant
from service.model.domain import Certificate
from service.storage import Transaction
from service.storage.budget.pace import moment_of

BISECTED_DAYS = 1 / 86_400
"""Precision of the time of the next room where hosts have windows, days."""


def in_force(tx: Transaction) -> Certificate | None:
    """Return the certificate of the epoch in force; None: there is none."""
    epoch = tx.epoch_in_force()
    return None if epoch is None else epoch.certificate


def first_crawls_a_day(certificate: Certificate | None) -> float:
    """Return the maximum of first crawls a day by the certificate of the epoch in force."""
    if certificate is None or certificate.first_crawls is None:
        return math.inf
    return certificate.first_crawls


def window_demands(tx: Transaction, certificate: Certificate | None) -> tuple[Demand, ...]:
    """Return the planned crawls by windows; (): no host had windows in the epoch in force.

    Windows that no host has any more count as open.
    """
    if certificate is None or not certificate.window_demand:
        return ()
    return tx.calendars.demands(certificate.window_demand, tx.now())


def kept_at(demands: Sequence[Demand], at: float) -> Kept:
    """Return what a day keeps at an instant, days since 1970."""
    return kept(demands, instant(moment_of(at))) if demands else NOTHING_KEPT


def next_room_in_windows(pace: Pace, least: float, demands: Sequence[Demand]) -> float:
    """Return the earliest instant at which crawls that are due may take an amount, days."""
    first, midnight = next_room_at(pace, least), float(int(pace.at) + 1)
    if not demands or first >= midnight:
        return first
    most = (pace.left - least * (1.0 - ROUNDING)) / max(pace.budget, 1e-300)
    return _kept_less(demands, max(first, pace.at), most)


def next_first_at(pace: Pace, most_first: float, demands: Sequence[Demand]) -> datetime:
    """Return the time of the next first crawl after those that the pace has now: a midnight."""
    if not demands or math.isinf(most_first):
        return moment_of(float(int(pace.at) + 1))
    most = 1.0 - (pace.n_first + 1.0 - ROUNDING) / max(most_first, 1e-300)
    return moment_of(_kept_less(demands, pace.at, most))


def _kept_less(demands: Sequence[Demand], begin: float, most: float) -> float:
    """Return the instant from which a day keeps at most a share, or the next midnight, days.

    A day keeps less and less in its course, so the instant is found by bisection.
    """
    low, high = begin, float(int(begin) + 1)
    if most < 0:
        return high
    if kept_at(demands, low).due <= most:
        return low
    while high - low > BISECTED_DAYS:
        middle = (low + high) / 2
        low, high = (low, middle) if kept_at(demands, middle).due <= most else (middle, high)
    return high
