"""Methods for operators, of `Client` and of `AsyncClient`: budget, pauses, needs, audit."""

from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from typing import TypeVar, Unpack

from recrawl_client import acts
from recrawl_client.acts import AuditFilters, Span
from recrawl_client.flows import Flow, Listing
from recrawl_client.wire.access import AuditItem
from recrawl_client.wire.hosts import HostAnswer
from recrawl_client.wire.orders import BudgetAnswer
from recrawl_client.wire.status import AcceptedNeed

T = TypeVar("T")
ItemT = TypeVar("ItemT")
MONTH_S = 2_592_000.0
"""Time for which a need is accepted by default, seconds: 30 days."""


class ActMethods:
    """Methods for operators; see `recrawl_client.client.Client`."""

    def _run(self, flow: Flow[T]) -> T:
        raise NotImplementedError

    def _items(self, listing: Listing[ItemT]) -> Iterator[ItemT]:
        raise NotImplementedError

    def budget(self) -> BudgetAnswer:
        """Return the budget in force, and who has set it."""
        return self._run(acts.budget())

    def set_budget(self, budget: str, *, change_unit: bool = False) -> BudgetAnswer:
        """Set the amount a day, such as `10000 crawls`, for all servers; no restart is needed.

        A budget in another unit than the one in force is refused without `change_unit`.
        """
        return self._run(acts.set_budget(budget, change_unit=change_unit))

    def unset_budget(self, *, change_unit: bool = False) -> BudgetAnswer:
        """Return to the budget of the settings; one in another unit needs `change_unit`."""
        return self._run(acts.unset_budget(change_unit=change_unit))

    def pause(self) -> datetime | None:
        """Return the end of the pause of all hosts; None while there is none."""
        return self._run(acts.pause())

    def pause_all(self, span: Span) -> datetime | None:
        """Pause all hosts for a number of seconds, or until an instant; return the end."""
        return self._run(acts.pause_all(span))

    def resume_all(self) -> None:
        """End the pause of all hosts."""
        return self._run(acts.resume_all())

    def pause_host(self, host: str, span: Span) -> HostAnswer:
        """Pause a host, and its group, for a number of seconds or until an instant."""
        return self._run(acts.pause_host(host, span))

    def resume_host(self, host: str, *, site: bool = False) -> HostAnswer:
        """End the operator's pause of a host; with `site` the site's pause too."""
        return self._run(acts.resume_host(host, site=site))

    def end_incident(self, host: str) -> HostAnswer:
        """End the incident of a host, and the pause that its site asked for."""
        return self._run(acts.end_incident(host))

    def accept_need(
        self, kind: str, subject: str, *, for_s: float = MONTH_S, reason: str = ""
    ) -> AcceptedNeed:
        """Accept a need for a number of seconds; raise `NotFound` if it does not hold."""
        return self._run(acts.accept_need(kind, subject, for_s, reason))

    def withdraw_acceptance(self, kind: str, subject: str) -> None:
        """Withdraw the acceptance of a need; raise `NotFound` if there is none."""
        return self._run(acts.withdraw_acceptance(kind, subject))

    def audit(self, **filters: Unpack[AuditFilters]) -> Iterator[AuditItem]:
        """Yield entries of the audit, newest first, requested in parts."""
        return self._items(acts.audit(filters))


class AsyncActMethods:
    """Methods for operators; see `recrawl_client.async_client.AsyncClient`."""

    async def _run(self, flow: Flow[T]) -> T:
        raise NotImplementedError

    def _items(self, listing: Listing[ItemT]) -> AsyncIterator[ItemT]:
        raise NotImplementedError

    async def budget(self) -> BudgetAnswer:
        """Return the budget in force, and who has set it."""
        return await self._run(acts.budget())

    async def set_budget(self, budget: str, *, change_unit: bool = False) -> BudgetAnswer:
        """Set the amount a day, such as `10000 crawls`, for all servers; no restart is needed.

        A budget in another unit than the one in force is refused without `change_unit`.
        """
        return await self._run(acts.set_budget(budget, change_unit=change_unit))

    async def unset_budget(self, *, change_unit: bool = False) -> BudgetAnswer:
        """Return to the budget of the settings; one in another unit needs `change_unit`."""
        return await self._run(acts.unset_budget(change_unit=change_unit))

    async def pause(self) -> datetime | None:
        """Return the end of the pause of all hosts; None while there is none."""
        return await self._run(acts.pause())

    async def pause_all(self, span: Span) -> datetime | None:
        """Pause all hosts for a number of seconds, or until an instant; return the end."""
        return await self._run(acts.pause_all(span))

    async def resume_all(self) -> None:
        """End the pause of all hosts."""
        return await self._run(acts.resume_all())

    async def pause_host(self, host: str, span: Span) -> HostAnswer:
        """Pause a host, and its group, for a number of seconds or until an instant."""
        return await self._run(acts.pause_host(host, span))

    async def resume_host(self, host: str, *, site: bool = False) -> HostAnswer:
        """End the operator's pause of a host; with `site` the site's pause too."""
        return await self._run(acts.resume_host(host, site=site))

    async def end_incident(self, host: str) -> HostAnswer:
        """End the incident of a host, and the pause that its site asked for."""
        return await self._run(acts.end_incident(host))

    async def accept_need(
        self, kind: str, subject: str, *, for_s: float = MONTH_S, reason: str = ""
    ) -> AcceptedNeed:
        """Accept a need for a number of seconds; raise `NotFound` if it does not hold."""
        return await self._run(acts.accept_need(kind, subject, for_s, reason))

    async def withdraw_acceptance(self, kind: str, subject: str) -> None:
        """Withdraw the acceptance of a need; raise `NotFound` if there is none."""
        return await self._run(acts.withdraw_acceptance(kind, subject))

    def audit(self, **filters: Unpack[AuditFilters]) -> AsyncIterator[AuditItem]:
        """Yield entries of the audit, newest first, requested in parts."""
        return self._items(acts.audit(filters))
