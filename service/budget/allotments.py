"""Allotments: parts of the pace that servers take in advance, so that leases seldom lock it.

A server takes an allotment in a transaction of its own and spends it in memory (`budget.keeper`).
The next draw brings back the rest. A server that dies loses its allotment, so the budget is never
exceeded.
"""

import math
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple

from service.budget.spending import GRAIN
from service.core.division import FIRST_SHARE
from service.core.pace import (
    ROUNDING,
    Pace,
    Taken,
    advanced,
    given_back,
    next_room_at,
    room,
    taken,
)
from service.model.arrays import LATEST
from service.storage import Transaction
from service.storage.budget.pace import days_since_1970, moment_of

HELD_S = 5.0
"""Time for which a server holds an allotment that it does not use, seconds.

An allotment is also at least the income of this time."""


URGENT = 1.2
"""Minimum urgency of a page that may be crawled on loan."""


@dataclass(frozen=True, slots=True)
class Terms:
    """Settings of the budget."""

    budget: float
    """Amount a day."""
    loan_days: float = 0.0
    """Maximum of the debt, in days of budget."""
    first_share: float = FIRST_SHARE
    """Maximum share of the cap of a host for first crawls, where the host has none of its own."""


@dataclass(frozen=True, slots=True)
class Allotment:
    """Amounts that a server may lease on one day."""

    day: int | None
    """Days from 1970 to the day UTC; None: any day."""
    due: float
    """Amount for crawls that are due."""
    ahead: float = 0.0
    """Part of `due` for pages that are not due yet."""
    on_loan: float = 0.0
    """Amount beyond `due` for urgent pages."""
    first: float = math.inf
    """Number of first crawls."""
    first_share: float = FIRST_SHARE
    """As in `Terms`."""
    is_last_first: bool = False
    """True if the day has no further first crawls."""

    def has_room(self) -> bool:
        """Return whether a crawl that is due may begin."""
        return self.due >= GRAIN * (1.0 - ROUNDING)

    def crawls(self, count: int) -> int:
        """Return how many of `count` crawls that are due may begin, by the least amount of one."""
        return int(min(count, self.due / GRAIN + ROUNDING))

    def lent_crawls(self, count: int) -> int:
        """Return how many of `count` urgent crawls may begin on loan."""
        return int(min(count, self.on_loan / GRAIN + ROUNDING))

    def early_crawls(self, count: int) -> int:
        """Return how many of `count` crawls of pages that are not due yet may begin."""
        return int(min(count, self.ahead / GRAIN + ROUNDING))

    def first_crawls(self, count: int) -> int:
        """Return how many of `count` first crawls may begin."""
        return int(min(count, self.first + ROUNDING))

    def less(self, crawls: Taken) -> "Allotment":
        """Return what is left after crawls."""
        own = crawls.total - crawls.on_loan
        return replace(
            self,
            due=max(self.due - own, 0.0),
            ahead=max(self.ahead - own, 0.0),
            on_loan=max(self.on_loan - crawls.on_loan, 0.0),
            first=max(self.first - crawls.first, 0.0),
        )

    def unused(self) -> Taken:
        """Return what goes back to the pace."""
        first = 0.0 if math.isinf(self.first) else self.first
        return Taken(self.due + self.on_loan, self.on_loan, first)


UNLIMITED = Allotment(day=None, due=math.inf)
"""The allotment where no budget is set."""


class Wish(NamedTuple):
    """Amounts that a server asks for."""

    due: float
    on_loan: float = 0.0


class Drawn(NamedTuple):
    """The answer to a draw."""

    allotment: Allotment
    lends: bool
    """True if urgent pages may have a loan."""
    next_at: datetime | None
    """Earliest time of the next room for a crawl; None: never."""


def draw(
    tx: Transaction,
    terms: Terms,
    wish: Wish,
    back: Allotment | None = None,
    unleased: Taken | None = None,
) -> Drawn:
    """Take an allotment of the pace, after the unused one went back.

    `unleased` are crawls of this day that had no lease. The transaction locks the pace to its end.
    """
    most_first = first_crawls_a_day(tx)
    before = tx.lock_pace()
    at = days_since_1970(tx.now())
    pace = Pace.starting(terms.budget, at) if before is None else before
    pace = advanced(pace, at, terms.budget, GRAIN)
    if back is not None and back.day is not None:
        pace = given_back(pace, back.unused(), back.day)
    if unleased is not None:
        pace = taken(pace, unleased)
    now = room(pace, terms.loan_days, most_first)
    due = whole(min(now.due, wish.due))
    first = math.inf if math.isinf(most_first) else whole(min(now.first, due))
    allotment = Allotment(
        day=int(pace.at),
        due=due,
        ahead=min(now.ahead, due),
        on_loan=whole(min(now.on_loan, wish.on_loan)),
        first=first,
        first_share=terms.first_share,
        is_last_first=not math.isinf(most_first) and now.first - first < 1.0,
    )
    pace = taken(pace, allotment.unused())
    tx.save_pace(pace)
    next_at = next_room_at(pace, GRAIN)
    lends = now.on_loan - allotment.on_loan >= GRAIN
    return Drawn(allotment, lends, None if math.isinf(next_at) else moment_of(next_at))


def spent_until(tx: Transaction, terms: Terms | None) -> datetime | None:
    """Return the time until which the budget is spent; None: it has room, or none is set."""
    pace = None if terms is None else tx.pace()
    if terms is None or pace is None:
        return None
    pace = advanced(pace, days_since_1970(tx.now()), terms.budget, GRAIN)
    if room(pace).due >= GRAIN * (1.0 - ROUNDING):
        return None
    next_at = next_room_at(pace, GRAIN)
    return LATEST if math.isinf(next_at) else moment_of(next_at)


def whole(amount: float) -> float:
    """Return an amount without the part that no crawl can use."""
    return math.floor(amount / GRAIN + ROUNDING) * GRAIN


def first_crawls_a_day(tx: Transaction) -> float:
    """Return the maximum of first crawls a day by the epoch in force."""
    epoch = tx.epoch_in_force()
    if epoch is None or epoch.certificate is None or epoch.certificate.first_crawls is None:
        return math.inf
    return epoch.certificate.first_crawls
