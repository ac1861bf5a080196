"""Orders for all servers: the budget, and the pause of all hosts."""

from fastapi import Response

from service.api.routes import orders
from service.console.views.hosts import chosen_s
from service.console.visit import Visit


def set_budget(visit: Visit) -> Response:
    """Set the budget."""
    body = visit.body(budget=visit.form.get("budget", "").strip())
    orders.put_budget(service=visit.service, actor=visit.actor, body=body)
    return visit.go("/console/epochs", "budget")


def unset_budget(visit: Visit) -> Response:
    """Go back to the budget of the settings."""
    orders.delete_budget(service=visit.service, actor=visit.actor)
    return visit.go("/console/epochs", "budget")


def pause(visit: Visit) -> Response:
    """Pause all hosts for some time, or end the pause."""
    seconds = chosen_s(visit)
    if seconds is None:
        orders.delete_pause(service=visit.service, actor=visit.actor)
    else:
        body = visit.body(for_s=seconds)
        orders.post_pause(service=visit.service, actor=visit.actor, body=body)
    return visit.go("/console/hosts", "all_resumed" if seconds is None else "all_paused")
