"""Allotments: parts of the pace that servers take in advance, so that leases seldom lock it.

A server takes an allotment in a transaction of its own and spends it in memory (`budget.keeper`).
The next draw brings back the rest. A server that dies loses its allotment, so the budget is never
exceeded.
"""

import math
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import NamedTuple

import numpy as np

from service.budget.day_plans import (
    first_crawls_a_day,
    in_force,
    kept_at,
    next_first_at,
    next_room_in_windows,
    window_demands,
)
from service.core.division import FIRST_SHARE
from service.core.pace import (
    ROUNDING,
    Pace,
    TakenAmounts,
    advanced,
    at_last_request,
    given_back,
    room,
    taken,
)
from service.model.amounts import CRAWLS, Amount, is_money, typical_cost
from service.model.arrays import Bools, Floats
from service.storage import Transaction
from service.storage.budget.allotments import HeldAmounts
from service.storage.budget.pace import days_since_1970, moment_of

HELD_S = 5.0
"""Time for which a server holds an allotment that it does not use, seconds.

An allotment is also at least the income of this time."""
LOST = timedelta(minutes=1)
"""Time after which an allotment goes back to the pace, because its server has died."""


URGENT = 1.2
"""Minimum urgency of a page that may be crawled on loan."""
LEAST_WAIT_DAYS = 60 / 86_400
"""Least wait for room after which pages that cost something are put off, days."""
PUT_OFF = timedelta(minutes=2)
"""Maximum time for which they are put off, because an order may raise the budget."""
GRAIN = 1.0
"""Amount that one crawl takes of a budget of crawls."""


@dataclass(frozen=True, slots=True)
class Terms:
    """Settings of the budget."""

    budget: float
    """Amount a day."""
    loan_days: float = 0.0
    """Maximum of the debt, in days of budget."""
    unit: str = CRAWLS
    """Unit of the budget (`model.amounts`)."""
    first_share: float = FIRST_SHARE
    """Maximum share of the cap of a host for first crawls, where the host has none of its own."""

    @property
    def amount(self) -> Amount:
        """Amount a day with its unit."""
        return Amount(self.budget, self.unit)

    @property
    def grain(self) -> float:
        """Amount that a day without room for it leaves to the next.

        A budget of crawls may be below one a day. In other units, a page that is dearer than a
        day's budget is not crawled, and no day has more than its budget.
        """
        return GRAIN if self.unit == CRAWLS else 0.0

    @property
    def typical(self) -> float:
        """Amount of a crawl whose cost nobody knows, at most a day's budget unless crawls."""
        return GRAIN if self.unit == CRAWLS else min(typical_cost(self.unit), self.budget)

    @property
    def most(self) -> float:
        """Maximum amount of one crawl; dearer pages wait."""
        return math.inf if self.unit == CRAWLS else self.budget


@dataclass(frozen=True, slots=True)
class Allotment:
    """Amounts that a server may lease on one day."""

    day: int | None
    """Days from 1970 to the day UTC; None: any day."""
    due: float
    """Amount for crawls that are due."""
    ahead: float = 0.0
    """Part of `due` for pages that are not due yet, on hosts without windows."""
    in_windows: float = 0.0
    """Part of `due` for pages that are not due yet, on hosts with windows."""
    shared: float = 0.0
    """Part of `due` that hosts with windows take before others."""
    used_in_windows: float = 0.0
    """Amount that hosts with windows have taken of it, which the next draw counts."""
    on_loan: float = 0.0
    """Amount beyond `due` for urgent pages."""
    first: float = math.inf
    """Number of first crawls."""
    first_share: float = FIRST_SHARE
    """As in `Terms`."""
    next_first_at: datetime | None = None
    """Time of the next first crawls, if the day has no further ones now; None: it has some."""
    unit: str = CRAWLS
    """Unit of the amounts."""
    least: float = GRAIN
    """Amount without which no crawl begins: that of the next crawl, as far as it is known."""
    most: float = math.inf
    """Maximum amount of one crawl; dearer pages wait."""
    knows_costs: bool = True
    """True if the stored costs of pages are in the unit of the amounts."""
    paid_at: datetime | None = None
    """Time to which due pages are put off that may cost something, once the allotment has no room.

    None: they stay, because room comes soon, or the unit is no currency.
    """
    server: int = 0
    """Number of the server whose row has these amounts; 0: no row has them."""
    trials: float = math.inf
    """Maximum number of crawls, in one transaction, of pages whose own cost nobody knows."""

    @property
    def is_spent(self) -> bool:
        """True while only pages that cost nothing may be crawled."""
        return self.paid_at is not None and not self.has_room()

    def has_room(self) -> bool:
        """Return whether a crawl that is due may begin."""
        return self._begins(self.due)

    def crawls(self, count: int) -> int:
        """Return how many of `count` crawls that are due may begin, by the least amount of one."""
        return self._number(count, self.due)

    def early_crawls(self, count: int) -> int:
        """Return how many of `count` crawls of pages that are not due yet may begin."""
        return self._number(count, max(self.ahead, self.in_windows))

    def crawls_in_windows(self, count: int) -> int:
        """Return how many of `count` crawls may be of hosts with windows before all others."""
        return int(min(count, self.shared / self.least + ROUNDING)) if self.least > 0 else 0

    def begins_early(self, *, in_windows: bool) -> bool:
        """Return whether a crawl of a page that is not due yet may begin, on hosts of a kind."""
        return self._begins(self.in_windows if in_windows else self.ahead)

    def _begins(self, amount: float) -> bool:
        return amount >= self.least * (1.0 - ROUNDING)

    def _number(self, count: int, amount: float) -> int:
        if self.unit == CRAWLS:
            return int(min(count, amount / GRAIN + ROUNDING))
        # how many fit depends on the costs of the pages
        return count if self._begins(amount) else 0

    def fits(self, amount: Floats, *, ahead: bool = False) -> Bools:
        """Return which crawls of these amounts fit, the first ones first."""
        most = max(self.ahead, self.in_windows) if ahead else self.due
        return fitting(amount, most + ROUNDING * self.least)

    def tries(self, unknown: Bools) -> Bools:
        """Return the crawls of pages of known cost, and the first ones of unknown cost."""
        return ~unknown | (np.cumsum(unknown) <= self.trials)

    def early(self, closes: Bools) -> Floats:
        """Return what early crawls may take; `closes` marks those of hosts with windows."""
        return np.where(closes, self.in_windows, self.ahead) + ROUNDING * self.least

    def fits_on_loan(self, amount: Floats) -> Bools:
        """Return which urgent crawls of these amounts fit on loan, the first ones first."""
        return fitting(amount, self.on_loan + ROUNDING * self.least)

    def first_crawls(self, count: int) -> int:
        """Return how many of `count` first crawls may begin."""
        return int(min(count, self.first + ROUNDING))

    def less(self, crawls: TakenAmounts) -> "Allotment":
        """Return what is left after crawls."""
        if self.day is None:  # no budget is set
            return self
        own = crawls.total - crawls.on_loan
        return replace(
            self,
            due=max(self.due - own, 0.0),
            ahead=max(self.ahead - own, 0.0),
            in_windows=max(self.in_windows - own, 0.0),
            shared=max(self.shared - crawls.in_windows, 0.0),
            used_in_windows=self.used_in_windows + crawls.in_windows,
            on_loan=max(self.on_loan - crawls.on_loan, 0.0),
            first=max(self.first - crawls.first, 0.0),
        )

    def unused(self) -> TakenAmounts:
        """Return what goes back to the pace."""
        first = 0.0 if math.isinf(self.first) else self.first
        return TakenAmounts(self.due + self.on_loan, self.on_loan, first)


def fitting(amount: Floats, room: float) -> Bools:
    """Return which amounts fit into a room one after the other; those that do not are left out.

    >>> fitting(np.array([2.0, 3.0, 1.0, 1.0]), 4.0).tolist()
    [True, False, True, True]
    """
    if math.isinf(room):
        return np.ones(len(amount), np.bool_)
    fit: Bools = np.cumsum(amount) <= room
    for _ in range(MOST_ROUNDS):
        left = room - float(amount[fit].sum())
        rest = np.flatnonzero(~fit & (amount <= left))
        if not rest.size:
            break
        fit[rest[np.cumsum(amount[rest]) <= left]] = True
    return fit


MOST_ROUNDS = 16
"""Maximum number of times that dearer crawls are left out for later ones."""

UNLIMITED = Allotment(day=None, due=math.inf)
"""The allotment where no budget is set."""
NO_CRAWLS = Allotment(day=0, due=0.0)
"""The allotment of a pause."""


class Wish(NamedTuple):
    """Amounts that a server asks for."""

    due: float
    on_loan: float = 0.0
    each: float = GRAIN
    """Mean amount of a crawl."""
    least: float = GRAIN
    """Amount of the next crawl."""


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
    unleased: TakenAmounts | None = None,
    server: int = 0,
) -> Drawn:
    """Take an allotment of the pace, after the unused one went back.

    `unleased` are amounts of this day that no lease took, less those that leases took too much. The
    transaction locks the pace to its end. Raise `OtherUnit` if the pace has another unit.
    A `server` other than 0 writes what it holds. The amounts of servers that died go back.
    """
    certificate = in_force(tx)
    most_first, demands = first_crawls_a_day(certificate), window_demands(tx, certificate)
    before = tx.lock_pace()
    at = days_since_1970(tx.now())
    pace = Pace.starting(terms.budget, at) if before is None else before
    asked_at, pace = pace.at, advanced(pace, at, terms.budget, terms.grain)
    if server:
        pace, is_own = _without_lost(tx, pace, terms, server)
        back = back if is_own else None
    if back is not None and back.day is not None:
        pace = given_back(pace, back.unused(), back.day)
        if back.day == int(pace.at):
            pace = replace(pace, in_windows=pace.in_windows + back.used_in_windows)
    if unleased is not None:
        pace = corrected(pace, unleased)
    pace = at_last_request(pace, asked_at)
    now = room(pace, terms.loan_days, most_first, kept_at(demands, at))
    due = usable(terms, wish, min(now.due, wish.due))
    first = math.inf
    if not math.isinf(most_first):
        # an amount that is usable is enough for a crawl
        number = max(due / wish.each, 1.0) if due > 0 else 0.0
        first = math.floor(min(now.first, number) + ROUNDING)
    allotment = Allotment(
        day=int(pace.at),
        due=due,
        ahead=min(now.ahead, due),
        in_windows=min(now.in_windows, due),
        shared=min(now.shared, now.shared_each * due),
        on_loan=usable(terms, wish, min(now.on_loan, wish.on_loan)),
        first=first,
        first_share=terms.first_share,
        unit=terms.unit,
        least=wish.least,
        most=terms.most,
        knows_costs=terms.unit == CRAWLS or tx.cost_unit() in {None, terms.unit},
    )
    unused = allotment.unused()
    pace = taken(pace, unused)
    if server and unused.total > 0:
        allotment = replace(allotment, server=server)
        tx.add_allotment(_row(allotment, unused), tx.now() + LOST)
    if now.first - first < 1.0:
        allotment = replace(allotment, next_first_at=next_first_at(pace, most_first, demands))
    tx.save_pace(pace, terms.unit)
    next_at = next_room_in_windows(pace, wish.least, demands)
    if is_money(terms.unit) and allotment.knows_costs and next_at - at >= LEAST_WAIT_DAYS:
        put_off = moment_of(at) + PUT_OFF
        paid_at = put_off if math.isinf(next_at) else min(moment_of(next_at), put_off)
        allotment = replace(allotment, paid_at=paid_at)
    lends = now.on_loan - allotment.on_loan >= wish.each
    return Drawn(allotment, lends, None if math.isinf(next_at) else moment_of(next_at))


def _row(allotment: Allotment, unused: TakenAmounts) -> HeldAmounts:
    """Return the row of what a server holds."""
    own = unused.total - unused.on_loan
    day = allotment.day or 0
    return HeldAmounts(allotment.server, day, allotment.unit, own, unused.on_loan, unused.first)


def _without_lost(tx: Transaction, pace: Pace, terms: Terms, server: int) -> tuple[Pace, bool]:
    """Return the pace with what servers that died held, and whether this one had a row."""
    is_own = False
    for row in tx.take_allotments(server, tx.now()):
        if row.server == server:
            is_own = True
        elif row.unit == terms.unit:
            pace = given_back(pace, row.amounts, row.on_day)
    return pace, is_own


def corrected(pace: Pace, amounts: TakenAmounts) -> Pace:
    """Return the pace after amounts of this day; a negative total goes back to it."""
    if amounts.total >= 0:
        return taken(pace, amounts)
    pace = taken(pace, amounts._replace(total=0.0))
    return given_back(pace, TakenAmounts(-amounts.total), int(pace.at))


def usable(terms: Terms, wish: Wish, amount: float) -> float:
    """Return an amount without the part that no crawl can use."""
    if terms.unit == CRAWLS:
        return math.floor(amount / GRAIN + ROUNDING) * GRAIN
    return amount if amount >= wish.least * (1.0 - ROUNDING) else 0.0
