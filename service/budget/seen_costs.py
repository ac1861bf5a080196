"""Costs that one server has seen: what its leases took, and what crawls took by their reports.

The keeper has one record for each budget, and its locks guard it.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

import numpy as np

from service.budget.allotments import GRAIN, HELD_S, Terms
from service.budget.grants import Charges, Short
from service.core.prices import FREE
from service.model.arrays import Floats, Ints

HELD = timedelta(seconds=HELD_S)
LEAST_TRIALS = 20
"""Crawls of unknown cost that one transaction may lease while few costs have been reported."""


@dataclass(slots=True)
class SeenCosts:
    """Amounts of crawls, in the unit of one budget."""

    each: float = GRAIN
    """Mean amount of a crawl, by the last leases."""
    floor: float = GRAIN
    """Smallest amount of a lease."""
    short: Short | None = None
    """Amounts of due pages that found no room in the last lease; None: none."""
    short_at: datetime | None = None
    """Time at which pages found no room."""
    n_reported: int = 0
    """Number of crawls whose cost was reported to this server."""
    _charged: dict[int, float] = field(default_factory=dict)
    """Amounts of the leases of `_charged_on`, by their tokens."""
    _charged_on: int = 0

    @classmethod
    def none(cls, terms: Terms | None) -> "SeenCosts":
        """Return the record of a server that has seen no crawl of this budget."""
        typical = GRAIN if terms is None else terms.typical
        return cls(each=typical, floor=typical)

    @property
    def trials(self) -> int:
        """Maximum number of pages of unknown cost in one transaction."""
        return max(self.n_reported, LEAST_TRIALS)

    def least(self, now: datetime) -> float:
        """Return the amount without which no crawl begins.

        Pages that found no room are looked at again after `HELD_S`, because cheaper ones may be due
        by then.
        """
        if self.short is None or self.short_at is None:
            return self.floor
        is_new = abs(now - self.short_at) < HELD
        return self.short.least if is_new else self.floor

    def charge(self, day: int, charges: Charges) -> None:
        """Remember what the leases of a day took."""
        if not len(charges.token):
            return
        paid = charges.amount[charges.amount > FREE]
        if paid.size:
            self.each = float(paid.mean())
            self.floor = min(self.floor, float(paid.min()))
        if day != self._charged_on:
            self._charged, self._charged_on = {}, day
        self._charged.update(zip(charges.token.tolist(), charges.amount.tolist(), strict=True))

    def report(self, day: int, token: Ints, amount: Floats) -> float:
        """Return what accepted crawls of a day took, less what their leases took.

        `amount` is NaN where none is known. Token 0 is no lease.
        """
        self.n_reported += int(np.count_nonzero(~np.isnan(amount)))
        charged = self._charged if day == self._charged_on else {}
        expected = [charged.pop(each, np.nan) if each else 0.0 for each in token.tolist()]
        took = np.where(np.isnan(amount) & (token == 0), self.each, amount)
        return float(np.nansum(took - np.array(expected)))
