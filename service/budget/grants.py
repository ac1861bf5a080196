"""Grants: the amounts that one transaction may lease, and what it has leased of them."""

from dataclasses import dataclass
from typing import NamedTuple

from service.budget.allotments import Allotment
from service.core.pace import TakenAmounts
from service.model.arrays import Floats, Ints

NOTHING = TakenAmounts(0.0)


class Short(NamedTuple):
    """Amounts of due pages that an allotment had no room for."""

    least: float
    """Amount of the cheapest page."""
    total: float


class Charges(NamedTuple):
    """Amounts that leases took."""

    token: Ints
    amount: Floats


@dataclass(slots=True)
class Grant:
    """The amounts that one transaction may lease, and has leased."""

    allotment: Allotment
    lends: bool = False
    """True if urgent pages may ask for a loan."""
    ahead: bool = False
    """True for crawls of pages that are not due yet."""
    taken: TakenAmounts = NOTHING
    urgent: float = 0.0
    """Amount of urgent pages that it had no room for."""
    short: Short | None = None
    """Amounts of other due pages that it had no room for; None: none."""
    charges: Charges | None = None
    """Amounts of the leases; None: no lease has read the queue."""

    @property
    def is_open(self) -> bool:
        """True if a lease may find a page within the budget."""
        if self.ahead:
            return self.allotment.early_crawls(1) > 0
        return self.allotment.has_room() or self.may_lend or self.allotment.is_spent

    @property
    def may_lend(self) -> bool:
        """True if urgent pages may go beyond the own part of the allotment."""
        return not self.ahead and (self.allotment.on_loan > 0 or self.lends)

    def begin(self) -> None:
        """Forget what an earlier attempt of the transaction has leased."""
        self.taken, self.urgent, self.short, self.charges = NOTHING, 0.0, None, None
