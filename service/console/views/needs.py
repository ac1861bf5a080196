"""Needs that an operator accepts for some time."""

from fastapi import Response

from service.api.routes import needs
from service.console.visit import Visit
from service.model.errors import InvalidField

DAY_S = 86_400.0


def accept(visit: Visit) -> Response:
    """Accept a need for some days."""
    form, days = visit.form, visit.form.get("days", "")
    if not days.isdecimal():
        raise InvalidField("days", f"{days!r} is no number of days; choose one of the list")
    named = {name: form.get(name, "") for name in ("kind", "subject", "reason")}
    body = visit.body(for_s=DAY_S * int(days), **named)
    needs.accept_need(service=visit.service, actor=visit.actor, body=body)
    return visit.go("/console", "accepted")


def withdraw(visit: Visit) -> Response:
    """Withdraw the acceptance of a need."""
    named = {name: visit.form.get(name, "") for name in ("kind", "subject")}
    needs.withdraw_acceptance(service=visit.service, actor=visit.actor, **named)
    return visit.go("/console", "withdrawn")
