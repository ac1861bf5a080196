"""The state of a service: numbers of pages and crawls, the budget, the epoch, and the needs."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from service.budget.allotments import Terms
from service.budget.keeper import Keeper
from service.core.estimators.base import Estimator
from service.model.domain import Epoch
from service.status.asked import LastAsked
from service.status.budget_today import BudgetToday, budget_today
from service.status.counts import PageCounts, count_pages, counts_of_today
from service.status.facts import Facts, read_facts
from service.status.needs import AcceptedNeed, Need, judged, needs_of
from service.storage import Store

Budget = Callable[[], Terms | None]
"""Function that returns the budget that leases keep now; None: none is set."""


class ServiceState(NamedTuple):
    """The state at one instant."""

    at: datetime
    pages: PageCounts
    of_budget: BudgetToday | None
    """Amounts of the budget of the running UTC day; None: no budget is set."""
    today: dict[str, int]
    """Counts of the history of the running UTC day."""
    in_force: Epoch | None
    newest: Epoch | None
    n_hosts_paused: int
    """Hosts whose queue is shut, after trouble or by an operator."""
    facts: Facts
    needs: list[Need]
    accepted: list[AcceptedNeed]


@dataclass(frozen=True, slots=True)
class StateReader:
    """A reader of the state, for all requests of a process."""

    store: Store
    estimator: Estimator[Any]
    """Estimator of the settings."""
    interval: timedelta
    """Interval of epochs."""
    budget: Budget
    asked: LastAsked
    keeper: Keeper | None = None
    """Keeper of this server, which knows what it has not written; None: no server leases here."""
    delay_s: float = 0.0
    """Delay of hosts without one of their own, seconds."""

    def read(self) -> ServiceState:
        """Return the state now."""
        with self.store.begin(write=False) as tx:
            terms = self.budget()
            facts = read_facts(self.store, tx, self.asked, self.interval, terms, self.delay_s)
            today = counts_of_today(tx, facts.at)
            own = None if terms is None else budget_today(tx, terms, self.keeper, today)
            in_force, newest = tx.epoch_in_force(), tx.newest_epoch()
            n_paused = sum(map(len, tx.paused_queues(facts.at)))
        pages = count_pages(self.store, self.estimator, facts.at)
        return ServiceState(
            facts.at, pages, own, today, in_force, newest, n_paused, facts, *judged(facts)
        )

    def needs(self) -> list[Need]:
        """Return what needs somebody now."""
        return needs_of(self.facts())

    def facts(self) -> Facts:
        """Return the facts that decide about needs now."""
        with self.store.begin(write=False) as tx:
            terms = self.budget()
            return read_facts(self.store, tx, self.asked, self.interval, terms, self.delay_s)
