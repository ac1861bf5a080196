"""The budget in force: an operator's order, else that of the settings.

An order outlives restarts and changes of the settings, until it is unset. Every process reads the
orders of its store about once a second, and follows them without a restart. The loan and the share
of first crawls are always those of the settings.
"""

from dataclasses import dataclass

from service.budget.allotments import Terms
from service.core.division import FIRST_SHARE
from service.model.amounts import CRAWLS, Amount, read_budget
from service.storage.budget.orders import NO_ORDERS, Orders


@dataclass(frozen=True, slots=True)
class BudgetSettings:
    """The budget of the settings of a process."""

    amount: Amount | None = None
    """Amount a day; None: no amount was promised."""
    loan_days: float = 0.0
    """As in `Terms`, unless the budget is money."""
    first_share: float = FIRST_SHARE
    """As in `Terms`."""

    def terms(self, amount: Amount | None) -> Terms | None:
        """Return the terms of an amount a day; None for none."""
        if amount is None:
            return None
        loan_days = 0.0 if amount.is_money else self.loan_days
        return Terms(amount.value, loan_days, amount.unit, self.first_share)


class BudgetInForce:
    """The budget of one process, which follows the orders; any thread may read it."""

    def __init__(self, settings: BudgetSettings, orders: Orders = NO_ORDERS) -> None:
        self.settings = settings
        self.follow(orders)

    def follow(self, orders: Orders) -> Terms | None:
        """Put orders in force, and return their terms."""
        amount = read_budget(orders.budget) if orders.budget else self.settings.amount
        self.orders, self.terms = orders, self.settings.terms(amount)
        return self.terms

    @property
    def by_operator(self) -> bool:
        """True if an operator has set the budget."""
        return bool(self.orders.budget)

    @property
    def amount(self) -> Amount | None:
        """Amount a day; None: 0.2 crawls for each page."""
        return None if self.terms is None else self.terms.amount

    @property
    def unit(self) -> str:
        """Unit of the budget."""
        terms = self.terms
        return CRAWLS if terms is None else terms.unit
