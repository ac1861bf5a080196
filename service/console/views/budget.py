"""The plan of another budget, from the estimates in force."""

from fastapi import Response

from recrawl_client.wire.plan import BudgetPlan
from service.api.routes.plan import read_plan
from service.console.visit import Visit
from service.model.known_shares import ground_of_costs, ground_of_plan

LISTED = 10
"""Maximum number of hosts, of tags and of starved pages of a plan."""


async def show(visit: Visit) -> Response:
    """Show the plan of a bandwidth beside the one in force; to a script, only that part.

    Without a bandwidth, the answer leads to the page with the form for it.
    """
    if not visit.request.query_params.get("bandwidth"):
        return visit.go("/console/epochs")
    wanted = visit.parameters("get_plan")["bandwidth"][:1]
    answer = await read_plan(visit.service, wanted, LISTED)
    return visit.page(
        "part_plan.html" if visit.wants_part else "plan.html",
        answer=answer,
        plan=answer.items[0],
        now_plan=answer.in_force,
        change=change(answer.items[0], answer.in_force),
        ground=ground_of_plan(answer.n_pages, answer.n_copies, answer.n_assumed),
        costs=ground_of_costs(answer.n_pages, answer.n_assumed_costs, answer.unit),
    )


def change(plan: BudgetPlan, in_force: BudgetPlan) -> float | None:
    """Return the gain of freshness over the bandwidth in force, a share; None without both."""
    if plan.fresh_share is None or in_force.fresh_share is None:
        return None
    return plan.fresh_share - in_force.fresh_share
