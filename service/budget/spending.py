"""Amounts of the budget that crawls are expected to take, and the unit of what is stored."""

import math
from dataclasses import dataclass, replace

import numpy as np

from service.budget.allotments import Terms, corrected
from service.core.pace import Pace, TakenAmounts, advanced
from service.core.prices import expected, is_free, payable
from service.model.amounts import CRAWLS, is_money, typical_cost
from service.model.arrays import Floats, distinct
from service.storage import Store, Transaction
from service.storage.budget.pace import days_since_1970
from service.storage.queue.columns import DuePages

BLOCK = 20_000
"""Maximum pages whose costs one transaction forgets."""


@dataclass(frozen=True, slots=True)
class Spending:
    """Rule of the amounts that crawls are expected to take of a budget."""

    unit: str
    """Unit of the budget (`model.amounts`)."""
    knows_costs: bool = True
    """True if the stored costs are in this unit."""
    most: float = math.inf
    """Maximum amount of one crawl; dearer pages are in no mean."""

    def amounts(self, tx: Transaction, pages: DuePages) -> Floats:
        """Return (N,) amounts that crawls of pages are expected to take; 1 each for crawls.

        A page takes the mean of its crawls, else that of its host. A host without any takes the
        mean of the pages at hand, else `typical_cost`, at most the day's budget. A page whose
        crawls have cost no money takes nothing.
        """
        if self.unit == CRAWLS:
            return np.ones(len(pages))
        if not self.knows_costs:
            return np.full(len(pages), self._typical)
        cost, of_host = pages.cost, np.zeros(len(pages))
        has_cost = cost > 0
        if not has_cost.all():
            host_id = distinct(pages.host_id[~has_cost])
            place = np.minimum(host_id.searchsorted(pages.host_id), len(host_id) - 1)
            of_host = tx.host_costs(host_id, self.most)[place]
        own = expected(cost, np.where(has_cost, 0.0, of_host), 0.0)
        some = own[payable(own, self.most) > 0]
        amount = np.where(own > 0, own, some.mean() if some.size else self._typical)
        return np.where(is_free(cost), 0.0, amount) if is_money(self.unit) else amount

    @property
    def _typical(self) -> float:
        # else a budget below the usual cost of a crawl would never pay for the first one
        return min(typical_cost(self.unit), self.most)


def adopt_budget(store: Store, unit: str, budget: float | None = None) -> None:
    """Set the budget and the unit of the pace from now on, and the unit of the stored costs.

    `budget` is the amount a day; None: none is set. A budget of crawls learns no costs.
    """
    if budget is not None:
        with store.begin() as tx:
            adopt_pace(tx, Terms(budget, unit=unit))
    adopt_unit(store, unit)


def adopt_unit(store: Store, unit: str) -> None:
    """Forget costs in another unit, block by block; a budget of crawls leaves them."""
    if unit == CRAWLS:
        return
    with store.begin(write=False) as tx:
        stored = tx.cost_unit()
    if stored == unit:
        return
    after = 0
    while stored is not None:
        with store.begin() as tx:
            page_id = tx.next_page_ids(after, BLOCK)
            if not len(page_id):
                break
            tx.clear_costs(page_id)
            after = int(page_id[-1])
    with store.begin() as tx:
        tx.set_cost_unit(unit)


def adopt_pace(tx: Transaction, terms: Terms) -> None:
    """Set the budget of the pace; in a new unit, the shares of the day that were spent stay."""
    stored, unit = tx.pace(), tx.pace_unit() or CRAWLS
    if unit == terms.unit and (stored is None or stored.budget == terms.budget):
        return
    pace, unit = tx.lock_pace(), tx.pace_unit() or CRAWLS
    if not (same_unit := unit == terms.unit):
        tx.set_pace_unit(terms.unit)
    if pace is not None:
        at = days_since_1970(tx.now())
        # until now the income was that of the budget before
        pace = advanced(pace, at, pace.budget, Terms(pace.budget, unit=unit).grain)
        own = pace if same_unit else in_unit(pace, terms.budget)
        tx.save_pace(advanced(own, at, terms.budget, terms.grain), terms.unit)


def count_other_crawls(tx: Transaction, terms: Terms, done: float, *, in_other: bool) -> None:
    """Take the crawls `done` today from the pace of a budget of crawls that begins.

    Before it there was no budget, or one in another unit (`in_other`). A budget in another unit
    begins without this, because the costs of the day are not known.
    """
    if terms.unit != CRAWLS:
        return
    before, at = tx.lock_pace(), days_since_1970(tx.now())
    pace = Pace.starting(terms.budget, at) if before is None else before
    pace = advanced(pace, at, terms.budget, terms.grain)
    if not in_other:  # budgets of the day before it had none are over
        pace = replace(pace, tokens=terms.budget, spent=0.0, changed=0.0, cut=0.0)
    missing = done - (pace.spent + pace.lent)
    tx.save_pace(corrected(pace, TakenAmounts(missing)), CRAWLS)


def in_unit(pace: Pace, budget: float) -> Pace:
    """Return a pace in another unit, in which the budget is `budget` a day.

    The day has all of this budget, less the share that was spent of what the budgets of the day
    gave (their integral). Their changes are over.

    >>> in_unit(Pace(budget=100.0, at=0.5, tokens=50.0, spent=25.0), 4.0).spent
    1.0
    >>> raised = Pace(budget=1_000.0, at=0.75, tokens=200.0, spent=50.0, changed=-750.0)
    >>> in_unit(raised, 10.0).left
    8.0
    """
    of_budgets = budget / pace.budget if pace.budget > 0 else 0.0
    entitled = pace.budget + pace.changed
    of_days = budget / entitled if entitled > 0 else 0.0
    return replace(
        pace,
        budget=budget,
        tokens=min(pace.tokens * of_days, budget),
        ahead=min(pace.ahead * of_days, budget),
        carried=pace.carried * of_budgets,
        spent=pace.spent * of_days,
        paid=pace.paid * of_days,
        debt=pace.debt * of_budgets,
        lent=pace.lent * of_budgets,
        changed=0.0,
        cut=0.0,
        in_windows=pace.in_windows * of_days,
    )
