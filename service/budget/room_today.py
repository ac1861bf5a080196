"""Room that the pace has for leases at this instant, read without a draw."""

import math
from datetime import datetime

import numpy as np

from service.budget.allotments import Terms
from service.budget.day_plans import (
    first_crawls_a_day,
    in_force,
    kept_at,
    next_room_in_windows,
    window_demands,
)
from service.core.pace import ROUNDING, Pace, advanced, room
from service.core.prices import is_free
from service.model.amounts import CRAWLS, is_money
from service.model.arrays import LATEST
from service.storage import Transaction
from service.storage.budget.pace import days_since_1970, moment_of


def pace_now(tx: Transaction, terms: Terms) -> Pace | None:
    """Return the pace at this instant; None: it has another unit."""
    pace, at = tx.pace(), days_since_1970(tx.now())
    if pace is None:
        return Pace.starting(terms.budget, at)
    if (tx.pace_unit() or CRAWLS) != terms.unit:
        return None
    return advanced(pace, at, terms.budget, terms.grain)


def room_now(tx: Transaction, pace: Pace) -> float:
    """Return the amount for crawls that are due, beside what servers hold."""
    demands = window_demands(tx, in_force(tx)) if tx.calendars.in_use else ()
    return room(pace, kept=kept_at(demands, pace.at)).due


def kept_for_windows(tx: Transaction, pace: Pace) -> float:
    """Return the part of what is left of the day that stays for hosts with windows."""
    demands = window_demands(tx, in_force(tx)) if tx.calendars.in_use else ()
    return min(kept_at(demands, pace.at).due * pace.budget, pace.left)


def held_by_servers(tx: Transaction, terms: Terms, pace: Pace) -> float:
    """Return the amount of this day that servers hold, and no lease has taken.

    A server that has died holds its amount for `LOST` at most.
    """
    today = int(pace.at)
    return sum(
        row.due + row.on_loan
        for row in tx.allotments()
        if row.on_day == today and row.unit == terms.unit
    )


def spent_until(tx: Transaction, terms: Terms | None, cost: float = 0.0) -> datetime | None:
    """Return the time until which the budget is spent; None: it has room, or none is set.

    `cost` is that of the page that waits; 0: none is known.
    """
    if terms is not None and is_money(terms.unit) and is_free(np.array(cost)):
        return None
    pace = None if terms is None else pace_now(tx, terms)
    if terms is None or pace is None:
        return None
    least = terms.typical if terms.unit == CRAWLS or not cost else min(cost, terms.budget)
    demands = window_demands(tx, in_force(tx)) if tx.calendars.in_use else ()
    due = room(pace, kept=kept_at(demands, pace.at)).due
    if due + held_by_servers(tx, terms, pace) >= least * (1.0 - ROUNDING):
        return None
    next_at = next_room_in_windows(pace, least, demands)
    return LATEST if math.isinf(next_at) else moment_of(next_at)


def first_spent_until(tx: Transaction, terms: Terms | None) -> datetime | None:
    """Return the day after one that has had its first crawls; None: it has room for some."""
    pace = None if terms is None else pace_now(tx, terms)
    most = first_crawls_a_day(in_force(tx))
    if terms is None or pace is None or math.isinf(most):
        return None
    is_spent = room(pace, most_first=most).first < 1.0 - ROUNDING
    return moment_of(math.floor(pace.at) + 1.0) if is_spent else None
