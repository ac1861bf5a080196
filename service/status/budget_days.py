"""UTC days against the budget, from the steps of the history. Pure.

A day of crawls takes as many as were leased, or as were reported, whichever is more: a crawl
without a lease is only reported, and a lost lease is only leased.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import accumulate
from typing import NamedTuple

from service.budget.allotments import Terms
from service.model.amounts import CRAWLS, Amount, fine_units
from service.storage.history.measured import MeasuredStep

DAY = timedelta(days=1)
LONGEST = 7
"""Maximum number of days that are judged together."""
USED = 0.9
"""Share of the budget below which a day is unused."""
WAITING = 0.01
"""Minimum share of pages that are overdue, all day, for pages to count as waiting."""
TOLERANCE = 0.02
"""Share beyond the budget that is not judged, because crawls are reported after midnight too."""


class JudgedDays(NamedTuple):
    """Days that left too much of the budget, or took too much."""

    first: datetime
    last: datetime
    since: datetime
    used: float
    allowed: float
    unit: str

    def words(self) -> dict[str, str]:
        """Return the words of a sentence."""
        day = f"{self.last:%Y-%m-%d}"
        if self.first != self.last:
            day = f"{self.first:%Y-%m-%d} to {day}"
        used, allowed = round(self.used, 2), Amount(round(self.allowed, 2), self.unit)
        return {"day": day, "used": f"{used:,.12g}", "allowed": str(allowed)}


def midnight(at: datetime) -> datetime:
    """Return the begin of the UTC day of an instant."""
    return at.replace(hour=0, minute=0, second=0, microsecond=0)


def unused(
    steps: Sequence[MeasuredStep], terms: Terms, at: datetime, unit_since: datetime | None = None
) -> JudgedDays | None:
    """Return yesterday if it left much of the budget while pages waited; None: it did not.

    `since` is the begin of the first of such days in a row. A day counts if pages were there at
    its begin, and if the budget has had its unit all day (`unit_since`: its last change).
    """
    first, last = None, midnight(at) - DAY
    for n in range(LONGEST):
        day = last - n * DAY
        in_other = unit_since is not None and day <= unit_since
        if in_other or not _left_much(steps, terms, day):
            break
        first = day
    if first is None:
        return None
    own = _of_days(steps, last, last, terms.unit)
    return JudgedDays(last, last, first, _used(own, terms), _budget(own, terms, min), terms.unit)


def _left_much(steps: Sequence[MeasuredStep], terms: Terms, day: datetime) -> bool:
    own = _of_days(steps, day, day, terms.unit)
    measured = [each for each in own if each.measured_at is not None]
    was_there = any(each.at <= day and each.n_pages for each in steps)
    waited = all((each.n_overdue or 0) > WAITING * (each.n_pages or 0) for each in measured)
    is_below = _used(own, terms) < USED * _budget(own, terms, min)
    return bool(measured) and was_there and waited and is_below


def exceeded(
    steps: Sequence[MeasuredStep], terms: Terms, at: datetime, unit_since: datetime | None = None
) -> JudgedDays | None:
    """Return days up to yesterday or today that took more than budget and loan; None: none did.

    `since` is the first step that was beyond, of any such days. Steps that begin before the last
    change of the unit, `unit_since`, do not count.
    """
    if unit_since is not None:
        steps = [step for step in steps if step.at > unit_since]
    today, beyond = midnight(at), list[JudgedDays]()
    for last in (today - DAY, today):
        for n in range(LONGEST):
            beyond += _beyond(steps, terms, last - n * DAY, last)
    if not beyond:
        return None
    worst = max(beyond, key=lambda days: days.used / days.allowed)
    return worst._replace(since=min(days.since for days in beyond))


def _beyond(
    steps: Sequence[MeasuredStep], terms: Terms, first: datetime, last: datetime
) -> Iterator[JudgedDays]:
    own = _of_days(steps, first, last, terms.unit)
    n_days, budget = (last - first) // DAY + 1, _budget(own, terms, max)
    allowed = budget * (n_days + terms.loan_days)
    most = allowed * (1.0 + TOLERANCE) + terms.grain
    for step, used in zip(own, _sums(own, terms), strict=True):
        if used > most:
            yield JudgedDays(first, last, step.at, _used(own, terms), allowed, terms.unit)
            return


def _of_days(
    steps: Sequence[MeasuredStep], first: datetime, last: datetime, unit: str
) -> list[MeasuredStep]:
    """Return the steps of days whose budget was in a unit, or that had none."""
    return [
        step
        for step in steps
        if first <= step.at < last + DAY and (step.budget is None or (step.unit or CRAWLS) == unit)
    ]


def _budget(
    steps: Sequence[MeasuredStep], terms: Terms, which: Callable[[list[float]], float]
) -> float:
    """Return the least or the largest amount a day that was in force, the present one included."""
    return which([terms.budget, *(step.budget for step in steps if step.budget is not None)])


def _used(steps: Sequence[MeasuredStep], terms: Terms) -> float:
    return max(_sums(steps, terms), default=0.0)


def _sums(steps: Sequence[MeasuredStep], terms: Terms) -> list[float]:
    """Return the amount up to the end of each step."""
    if terms.unit != CRAWLS:
        return [total / fine_units(terms.unit) for total in accumulate(s.spent for s in steps)]
    leased = accumulate(step.n_leased for step in steps)
    reported = accumulate(step.n_reported for step in steps)
    return [float(max(pair)) for pair in zip(leased, reported, strict=True)]
