r"""The pace: the gate that keeps the budget where crawls are handed out. Pure.

Two buckets fill at the budget :math:`R` a day. Crawls that are due take from the first, which holds
a day's budget. The first is full at the start, so that a new corpus begins at once. The second is
empty at the start, and every crawl drains it. Crawls that are due have therefore left its content
over, and pages that are not due yet may take it. A lack is forgotten at midnight, because the
next day has a budget of its own. The last request of a day may take all that is left.

A UTC day has at most :math:`R` crawls. Urgent pages may take a loan of :math:`L` days beyond. Half
of the income pays a debt back, out of what the day may still spend. The crawls of a day and its
payments are together at most :math:`R`. Therefore any :math:`d` days have at most
:math:`R (d + L)` crawls.

A budget that changes in the course of a day counts from then on, so the day has the integral of its
budgets. After a cut, the day has no more than the new budget, and the first bucket keeps what it
has. A raise brings the bucket at once what it adds to the day, without what a cut of the same day
has left in it. A cut that is taken back therefore costs and gains nothing.

Amounts are in the unit of the budget: crawls, bytes, seconds or money.
"""

from dataclasses import dataclass, replace
from math import isinf
from typing import NamedTuple

from service.core.checks import InvalidInput
from service.core.even_days import NOTHING_KEPT, Kept

PAYS_BACK = 0.5
"""Share of the income that pays back a debt."""
SET_BACK_DAYS = 1 / 144
"""Time by which a clock may run backwards without being set back, days."""
ROUNDING = 1e-9
"""Largest part of a crawl that rounding may have lost from an amount."""
LONGEST_GAP_DAYS = 400
"""Time after which older days no longer matter to the pace, days."""


MOST_PAUSE_DAYS = 0.27
"""Maximum time between two requests of a fleet that asks every six hours, days."""
LATER = 1.25
"""Time to the next request, at most, in multiples of the time since the last one."""


class TakenAmounts(NamedTuple):
    """An amount taken for crawls; each part is at most `total`."""

    total: float
    on_loan: float = 0.0
    """Part that urgent pages took beyond the day's budget."""
    first: float = 0.0
    """Number of crawls that were the first of their page."""
    in_windows: float = 0.0
    """Part that hosts with windows took, without loans."""


class Available(NamedTuple):
    """The amounts that crawls may take at an instant."""

    due: float
    """Amount for crawls that are due."""
    ahead: float
    """Part of `due` for pages that are not due yet."""
    on_loan: float
    """Amount beyond `due` for urgent pages."""
    first: float
    """Number of first crawls."""
    in_windows: float = 0.0
    """Part of `due` for pages of hosts with windows that are not due yet."""
    shared: float = 0.0
    """Part of `due` that hosts with windows take before others, by their share of the day."""
    shared_each: float = 0.0
    """Share of each amount that they take before others, until they have `shared`."""


@dataclass(frozen=True, slots=True)
class Pace:
    """The state of the gate."""

    budget: float
    """Amount a day."""
    at: float
    """Instant of this state, days since a midnight UTC."""
    tokens: float
    """Amount in the first bucket."""
    ahead: float = 0.0
    """Amount in the second bucket; negative after crawls in advance of the income of the day."""
    carried: float = 0.0
    """Amount that the day before left to this day, less than the cost of one crawl."""
    spent: float = 0.0
    """Amount taken this day, without loans."""
    paid: float = 0.0
    """Amount of this day's budget that has paid back the debt."""
    debt: float = 0.0
    """Amount of the loan that is not paid back."""
    n_first: float = 0.0
    """Number of first crawls this day."""
    in_windows: float = 0.0
    """Amount taken this day by hosts with windows, without loans."""
    lent: float = 0.0
    """Amount taken this day on loan."""
    changed: float = 0.0
    """Integral of this day's budgets, to its end, less the budget in force."""
    cut: float = 0.0
    """Part of the integral that cuts of this day took, and no raise has brought back."""

    @classmethod
    def starting(cls, budget: float, at: float) -> "Pace":
        """Return the pace of a new corpus, which may spend a day's budget at once."""
        return cls(budget=budget, at=at, tokens=budget)

    @property
    def of_day(self) -> float:
        """Amount of this day: the integral of its budgets, at most the one in force."""
        return self.budget + min(self.changed, 0.0)

    @property
    def left(self) -> float:
        """Amount that this day may still spend without a loan."""
        return max(self.of_day + self.carried - self.spent - self.paid, 0.0)


def advanced(pace: Pace, at: float, budget: float, grain: float = 1.0) -> Pace:
    """Return the pace at a later instant; the new budget is in force from then on.

    After a clock that was set back, the pace goes on from the earlier instant, and the amounts of
    the day stay.

    Parameters
    ----------
    at : days since the same midnight
    budget : amount a day
    grain : amount
        Maximum cost of one crawl, which a day without room for it leaves to the next.

    Raises
    ------
    InvalidInput
        The budget or the grain is negative or not finite.

    Examples
    --------
    >>> spent = taken(Pace.starting(budget=24.0, at=0.0), TakenAmounts(24.0))
    >>> room(advanced(spent, at=0.5, budget=24.0)).due  # the day is spent
    0.0
    >>> room(advanced(spent, at=1.25, budget=24.0)).due
    24.0
    """
    for name, value in (("budget", budget), ("grain", grain)):
        if not 0 <= value < float("inf"):
            raise InvalidInput(name, f"is {value}, expected a finite amount that is not negative")
    if at < pace.at:
        pace = replace(pace, at=at if pace.at - at > SET_BACK_DAYS else pace.at)
        return _under(budget, pace)
    if at - pace.at > LONGEST_GAP_DAYS:
        pace = replace(pace, at=at - LONGEST_GAP_DAYS)
    while int(pace.at) < int(at):
        midnight = float(int(pace.at) + 1)
        pace = _within_day(pace, midnight, grain)
        carried = min(pace.left, grain)
        # else a day that took more than its income would leave early pages less of the next one
        ahead = max(pace.ahead, carried)
        depth = max(pace.budget, grain)
        pace = replace(
            pace,
            tokens=min(pace.tokens, depth),
            ahead=min(ahead, depth),
            carried=carried,
            spent=0.0,
            paid=0.0,
            n_first=0.0,
            in_windows=0.0,
            lent=0.0,
            changed=0.0,
            cut=0.0,
            at=midnight,
        )
    return _under(budget, _within_day(pace, at, grain))


def _under(budget: float, pace: Pace) -> Pace:
    """Return the pace under another budget, from its instant on.

    >>> noon = Pace(budget=20_000.0, at=0.5, tokens=19_980.0, spent=20.0)
    >>> low = _under(10.0, noon)
    >>> low.left, _under(20_000.0, low).left, _under(20_000.0, low).tokens
    (0.0, 19980.0, 19980.0)
    >>> _under(20_000.0, Pace(budget=10.0, at=0.5, tokens=0.0, spent=10.0)).tokens
    9995.0
    """
    if budget == pace.budget:
        return pace
    # what the day has more by the new budget
    more = (budget - pace.budget) * (int(pace.at) + 1 - pace.at)
    changed = pace.changed + more - (budget - pace.budget)
    again = min(max(more, 0.0), pace.cut)
    return replace(
        pace,
        budget=budget,
        tokens=pace.tokens + max(more, 0.0) - again,
        changed=changed,
        cut=pace.cut + max(-more, 0.0) - again,
    )


def _within_day(pace: Pace, at: float, grain: float) -> Pace:
    """Return the pace at a later instant of the same day."""
    income = pace.budget * (at - pace.at)
    pays = min(pace.debt, PAYS_BACK * income, pace.left)
    # a budget below one crawl a day must add up to a crawl
    depth = max(pace.budget, grain)
    return replace(
        pace,
        at=at,
        tokens=min(pace.tokens + income - pays, max(depth, pace.tokens)),
        ahead=min(pace.ahead + income - pays, max(depth, pace.ahead)),
        paid=pace.paid + pays,
        debt=pace.debt - pays,
    )


def at_last_request(pace: Pace, asked_at: float) -> Pace:
    """Return the pace in which early pages may take all that the day has left, at its last request.

    `asked_at` is the instant of the request before. If as much time passes again, the next request
    comes on the next day. Income after this one would be left over. A fleet that asks less often
    than every six hours may ask at any time, so its days stay as they are.

    Examples
    --------
    >>> evening = Pace(budget=24.0, at=0.75, tokens=24.0, ahead=6.0, spent=12.0)
    >>> at_last_request(evening, asked_at=0.5).ahead, at_last_request(evening, asked_at=0.7).ahead
    (12.0, 6.0)
    """
    pause = pace.at - asked_at
    is_last = pace.at + LATER * pause >= int(pace.at) + 1
    if not (0.0 < pause <= MOST_PAUSE_DAYS and is_last):
        return pace
    return replace(pace, ahead=max(pace.ahead, pace.left))


def room(
    pace: Pace,
    loan_days: float = 0.0,
    most_first: float = float("inf"),
    kept: Kept = NOTHING_KEPT,
) -> Available:
    """Return what crawls may take now.

    `loan_days` is the maximum of the debt, in days of budget; `most_first` is the maximum of first
    crawls a day. `kept` is what the day keeps (`core.even_days`). It bounds the crawls of hosts
    with windows, so the first bucket does not: a closure would let it overflow.
    """
    tokens = pace.tokens + kept.in_windows * pace.of_day
    due = max(min(tokens, pace.left) - kept.due * pace.budget, 0.0)
    ahead = max(min(pace.ahead, due), 0.0)
    first = most_first if isinf(most_first) else most_first * (1.0 - kept.due)
    released = max(kept.in_windows * pace.of_day - kept.due * pace.budget, 0.0)
    shared = max(released - pace.in_windows, 0.0)
    # at once, what a late start has left to hosts with windows would be a burst
    own = pace.spent - pace.in_windows
    others = max(pace.of_day - kept.early * pace.budget - released - own, 0.0)
    evenly = max(min(pace.left - kept.early * pace.budget, due), 0.0)
    return Available(
        due=due,
        ahead=ahead,
        on_loan=max(loan_days * pace.budget - pace.debt, 0.0),
        first=max(first - pace.n_first, 0.0),
        in_windows=evenly if kept.in_windows > 0 else 0.0,
        shared=min(shared, due),
        shared_each=shared / (shared + others) if shared > 0 else 0.0,
    )


def next_room_at(pace: Pace, grain: float = 1.0) -> float:
    """Return the earliest instant at which crawls that are due may take `grain`, days.

    Examples
    --------
    >>> next_room_at(Pace(budget=24.0, at=0.5, tokens=0.0)) * 24  # one crawl an hour
    13.0
    >>> whole_day = TakenAmounts(24.0)
    >>> next_room_at(taken(Pace.starting(budget=24.0, at=0.5), whole_day))
    1.0
    """
    lacks = grain - pace.tokens
    at = pace.at
    if lacks > ROUNDING * grain:
        income = pace.budget * (1.0 - PAYS_BACK if pace.debt > 0 else 1.0)
        at = at + lacks / income if income > 0 else float("inf")
    spent = pace.left < grain * (1.0 - ROUNDING)
    return max(at, float(int(pace.at) + 1)) if spent else at


def taken(pace: Pace, crawls: TakenAmounts) -> Pace:
    """Return the pace after crawls took an amount.

    An amount beyond the room, of crawls that nobody asked the gate for, uses up the day. The amount
    does not reach into the next day.
    """
    own = crawls.total - crawls.on_loan
    return replace(
        pace,
        tokens=max(pace.tokens - own, 0.0),
        ahead=max(pace.ahead - own, min(-pace.budget, pace.ahead)),
        spent=pace.spent + own,
        debt=pace.debt + crawls.on_loan,
        lent=pace.lent + crawls.on_loan,
        n_first=pace.n_first + crawls.first,
        in_windows=pace.in_windows + crawls.in_windows,
    )


def regrouped(pace: Pace, before: float, after: float) -> Pace:
    """Return the pace after the share of hosts with windows in the plan changed, in [0, 1].

    Hosts whose windows are new have had their part of what other hosts took of the day. Therefore
    their share begins with the time that follows.

    >>> afternoon = Pace(budget=24.0, at=0.75, tokens=6.0, spent=18.0)
    >>> regrouped(afternoon, 0.0, 1 / 3).in_windows
    6.0
    """
    if after <= before:
        return replace(pace, in_windows=pace.in_windows * after / before if before > 0 else 0.0)
    part = (after - before) / (1.0 - before)
    return replace(pace, in_windows=pace.in_windows + part * (pace.spent - pace.in_windows))


def given_back(pace: Pace, unused: TakenAmounts, day: int) -> Pace:
    """Return the pace after an amount that was taken on a day was not used.

    After that day, only the buckets and the debt get it back.
    """
    own = unused.total - unused.on_loan
    same = int(pace.at) == day
    # what was taken before a cut of this day may lie above the budget
    full = pace.tokens + own if same and pace.cut > 0 else max(pace.budget, pace.tokens)
    return replace(
        pace,
        tokens=min(pace.tokens + own, full),
        ahead=min(pace.ahead + own, max(pace.budget, pace.ahead)),
        spent=max(pace.spent - own, 0.0) if same else pace.spent,
        debt=max(pace.debt - unused.on_loan, 0.0),
        lent=max(pace.lent - unused.on_loan, 0.0) if same else pace.lent,
        n_first=max(pace.n_first - unused.first, 0.0) if same else pace.n_first,
    )
