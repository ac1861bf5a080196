"""Amounts of the budget on the running UTC day: spent, held by servers, and left.

All views have these amounts from here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from service.budget.allotments import Terms
from service.budget.keeper import Keeper
from service.budget.room_today import (
    held_by_servers,
    kept_for_windows,
    pace_now,
    room_now,
    spent_until,
)
from service.model.amounts import CRAWLS, fine_units
from service.status.budget_days import midnight
from service.status.counts import counts_of_today
from service.storage import Transaction


@dataclass(frozen=True, slots=True)
class BudgetToday:
    """Amounts of the running UTC day, in the unit of the budget."""

    spent: float | None
    """Amount that crawls have taken, with loans; None: the unit changed today, not to crawls."""
    held: float | None
    """Amount beside it that servers hold for their next leases, or leases of unknown cost hold."""
    left: float
    """Amount that crawls may still take without a loan."""
    at_once: float
    """Part of it for crawls that are due now."""
    next_at: datetime | None
    """Time of the next crawl; None: one may come now."""
    in_windows: float = 0.0
    """Part of what is left that stays for hosts with windows."""


def budget_today(
    tx: Transaction,
    terms: Terms,
    keeper: Keeper | None = None,
    counts: Mapping[str, int] | None = None,
) -> BudgetToday:
    """Return the amounts now; `counts` are those of the day, None: they are read.

    `keeper` adds what its server has not written yet.
    """
    now, pace = tx.now(), pace_now(tx, terms)
    if pace is None:
        by_reports = 0.0 if terms.unit == CRAWLS else reported_today(tx, terms.unit, now, counts)
        none_held = None if by_reports is None else 0.0
        return BudgetToday(by_reports, none_held, terms.budget, terms.budget, None)
    own = keeper if keeper is not None and keeper.terms == terms else None
    unwritten = 0.0 if own is None else own.unwritten()
    in_hand = held_by_servers(tx, terms, pace)
    if own is not None and not own.server:
        in_hand += own.in_hand()
    taken = pace.spent + pace.lent + unwritten
    reported = reported_today(tx, terms.unit, now, counts)
    spent: float | None = taken - in_hand
    held: float | None = in_hand
    if terms.unit != CRAWLS:
        spent, held = reported, None if reported is None else taken - in_hand - reported
    left = max(pace.left - unwritten, 0.0) + in_hand
    return BudgetToday(
        spent=None if spent is None else max(spent, 0.0),
        held=None if held is None else max(held, 0.0),
        left=left,
        at_once=min(max(room_now(tx, pace) - unwritten, 0.0) + in_hand, left),
        next_at=spent_until(tx, terms),
        in_windows=min(kept_for_windows(tx, pace), left),
    )


def reported_today(
    tx: Transaction, unit: str, now: datetime, counts: Mapping[str, int] | None = None
) -> float | None:
    """Return what the crawls of this day have spent by their reports.

    None: the budget counts crawls, or its unit has changed on this day.
    """
    if unit == CRAWLS:
        return None
    since = tx.pace_unit_since()
    if since is not None and midnight(now) <= since:
        return None
    counts = counts_of_today(tx, now) if counts is None else counts
    return counts["spent"] / fine_units(unit)
