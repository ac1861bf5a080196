"""Aims of an epoch."""

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from service.budget.in_force import BudgetInForce
from service.core.division import FIRST_SHARE
from service.core.estimators.base import Estimator
from service.model.amounts import CRAWLS, Amount
from service.model.domain import Timing


@dataclass(frozen=True, slots=True)
class Plan:
    """Aims of an epoch."""

    estimator: Estimator[Any]
    objective: str = "harmonic"
    timing: Timing = Timing.periodic
    bandwidth: float | None = None
    """Amount a day in the unit of the budget; None: 0.2 crawls for each page that has a copy."""
    unit: str = CRAWLS
    """Unit of the budget (`model.amounts`). It needs the objective `harmonic` unless crawls."""
    first_share: float = FIRST_SHARE
    """Maximum share of the bandwidth for first crawls."""
    retention: timedelta | None = None
    """Time for which the log is kept; None: without limit."""
    audit_retention: timedelta | None = None
    """Time for which the audit is kept; None: without limit."""
    history_retention: timedelta | None = None
    """Time for which the history is kept; None: without limit."""
    url_groups: bool = True
    """True if the latest crawls of a page's URL group shift its next crawl. This needs periodic
    timing, because the estimators for Poisson timing assume the rates in force."""
    change_hours: bool = True
    """True if crawls are shifted to the hours after a host's pages change. This needs periodic
    timing too, and an estimator with a posterior of the change rate."""
    group_hours: bool = True
    """True if URL groups may keep change hours of their own."""
    wide_revisions: bool = True
    """True if revisions of most pages of a host make the others urgent, as URL groups do."""
    ages: bool = True
    """True if change rates follow the ages of pages, as far as crawls prove that they do."""
    host_delay_s: float = 0.0
    """Delay between two crawls of hosts without one of their own, seconds."""

    def within(self, budget: BudgetInForce | None) -> "Plan":
        """Return the plan with the budget in force; None: with its own."""
        if budget is None:
            return self
        amount = budget.amount
        bandwidth = None if amount is None else amount.value
        unit = CRAWLS if amount is None else amount.unit
        return replace(self, bandwidth=bandwidth, unit=unit)

    @property
    def budget(self) -> Amount | None:
        """Amount a day with its unit; None: none is set."""
        return None if self.bandwidth is None else Amount(self.bandwidth, self.unit)

    @property
    def with_urgency(self) -> bool:
        """True if urgency shifts the next crawls of pages."""
        return self.url_groups and self.timing is Timing.periodic

    @property
    def with_change_hours(self) -> bool:
        """True if change hours of hosts shift the next crawls of pages."""
        return (
            self.change_hours
            and self.timing is Timing.periodic
            and self.estimator.steady is not None
        )
