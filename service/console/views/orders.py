"""Orders for all servers: the budget, and the pause of all hosts."""

from fastapi import Response

from recrawl_client.wire.orders import BudgetAnswer
from service.api.routes import orders
from service.console.views.hosts import chosen_s
from service.console.visit import Visit
from service.model.errors import BudgetUnitChanges


def set_budget(visit: Visit) -> Response:
    """Set the budget; ask about another unit."""
    new = visit.form.get("budget", "").strip()
    body = visit.body(budget=new, change_unit=_agreed(visit))
    try:
        orders.put_budget(service=visit.service, actor=visit.actor, body=body)
    except BudgetUnitChanges:
        return _ask_unit(visit, new)
    return visit.go("/console/epochs", "budget")


def unset_budget(visit: Visit) -> Response:
    """Go back to the budget of the settings; ask about another unit."""
    try:
        orders.delete_budget(service=visit.service, actor=visit.actor, change_unit=_agreed(visit))
    except BudgetUnitChanges:
        return _ask_unit(visit, None)
    return visit.go("/console/epochs", "budget")


def _agreed(visit: Visit) -> bool:
    return visit.form.get("change_unit") == "true"


def _ask_unit(visit: Visit, new: str | None) -> Response:
    """Ask about a budget in another unit; None is that of the settings."""
    budget = visit.ask(BudgetAnswer, orders.get_budget)
    return visit.page("budget_unit.html", status=409, budget=budget, new=new)


def pause(visit: Visit) -> Response:
    """Pause all hosts for some time, or end the pause."""
    seconds = chosen_s(visit)
    if seconds is None:
        orders.delete_pause(service=visit.service, actor=visit.actor)
    else:
        body = visit.body(for_s=seconds)
        orders.post_pause(service=visit.service, actor=visit.actor, body=body)
    return visit.go("/console/hosts", "all_resumed" if seconds is None else "all_paused")
