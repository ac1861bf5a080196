"""The requests and results of methods for operators: budget, pauses, needs and audit."""

from datetime import datetime
from typing import Any, TypedDict
from urllib.parse import quote

from recrawl_client.flows import Flow, Listing, ask, call, encoded
from recrawl_client.wire.access import AuditAnswer, AuditItem
from recrawl_client.wire.hosts import HostAnswer
from recrawl_client.wire.orders import BudgetAnswer, PauseAnswer
from recrawl_client.wire.status import AcceptedNeed

Span = float | datetime
"""A duration from now, seconds, or its end."""


class AuditFilters(TypedDict, total=False):
    """Filters of the audit."""

    key: str
    """Author: the id or name of a key."""
    act: str
    """Act, such as `host.pause`."""
    object: str
    """Object of the act, such as a host."""
    since: datetime
    until: datetime


def budget() -> Flow[BudgetAnswer]:
    """Show the budget in force."""
    return ask("GET", "/budget", BudgetAnswer)


def set_budget(budget: str, *, change_unit: bool) -> Flow[BudgetAnswer]:
    """Set the budget."""
    body = encoded({"budget": budget} | ({"change_unit": True} if change_unit else {}))
    return ask("PUT", "/budget", BudgetAnswer, content=body)


def unset_budget(*, change_unit: bool) -> Flow[BudgetAnswer]:
    """Unset the budget of the operator."""
    params = {"change_unit": True} if change_unit else {}
    return ask("DELETE", "/budget", BudgetAnswer, params=params)


def pause() -> Flow[datetime | None]:
    """Show the pause of all hosts."""
    answer = yield from ask("GET", "/pause", PauseAnswer)
    return answer.paused_until


def pause_all(span: Span) -> Flow[datetime | None]:
    """Pause all hosts."""
    answer = yield from ask("POST", "/pause", PauseAnswer, content=_pause(span))
    return answer.paused_until


def resume_all() -> Flow[None]:
    """End the pause of all hosts."""
    yield from ask("DELETE", "/pause", PauseAnswer)


def pause_host(host: str, span: Span) -> Flow[HostAnswer]:
    """Pause a host."""
    return ask("POST", _path(host), HostAnswer, content=_pause(span))


def resume_host(host: str, *, site: bool) -> Flow[HostAnswer]:
    """End the operator's pause of a host."""
    return ask("DELETE", _path(host), HostAnswer, params={"site": site})


def end_incident(host: str) -> Flow[HostAnswer]:
    """End the incident of a host."""
    return ask("DELETE", f"/hosts/{quote(host, safe='')}/incident", HostAnswer)


def accept_need(kind: str, subject: str, for_s: float, reason: str) -> Flow[AcceptedNeed]:
    """Accept a need for some time."""
    body = encoded({"kind": kind, "subject": subject, "for_s": for_s, "reason": reason})
    return ask("PUT", "/needs/accepted", AcceptedNeed, content=body)


def withdraw_acceptance(kind: str, subject: str) -> Flow[None]:
    """Withdraw the acceptance of a need."""
    yield from call("DELETE", "/needs/accepted", params={"kind": kind, "subject": subject})


def audit(filters: AuditFilters) -> Listing[AuditItem]:
    """List the audit, newest entries first."""
    params: dict[str, Any] = {
        name: value.isoformat() if isinstance(value, datetime) else value
        for name, value in filters.items()
    }
    return Listing("/audit", AuditAnswer, params)


def _pause(span: Span) -> bytes:
    return encoded({"until" if isinstance(span, datetime) else "for_s": span})


def _path(host: str) -> str:
    return f"/hosts/{quote(host, safe='')}/pause"
