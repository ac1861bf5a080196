"""Notices about the plan in force: budgets that it does not follow, and figures that it assumes."""

from service.model.amounts import CRAWLS, DEFAULT, Amount
from service.model.domain import Certificate, Epoch
from service.model.known_shares import ground_of_costs
from service.model.words import number
from service.storage import Transaction

ROUNDING = 1e-6
"""Maximum relative difference of equal amounts."""


def notices_in_force(tx: Transaction, budget: Amount | None) -> list[str]:
    """Return the notices about the plan in force; `budget` is that of now, None: none is set."""
    epoch, newest = tx.epoch_in_force(), tx.newest_epoch()
    failed = failing(epoch, newest)
    return [*([failed] if failed else []), *plan_notices(epoch, budget)]


def plan_notices(epoch: Epoch | None, budget: Amount | None) -> list[str]:
    """Return the notices about the plan of an epoch in force, but for epochs that failed since."""
    plan = None if epoch is None else epoch.certificate
    if plan is None:
        return []
    costs = ground_of_costs(plan.n_pages, plan.n_assumed_costs, plan.unit)
    return [each for each in (behind(epoch, budget), exceeding(plan, budget), costs) if each]


def failing(epoch: Epoch | None, newest: Epoch | None) -> str:
    """Return that the newest epoch failed, after the one in force; else ""."""
    if epoch is None or newest is None or newest.reason is None:
        return ""
    reason = newest.reason.rstrip(".")
    return f"the plan in force stays that of epoch {epoch.epoch}: the last one failed ({reason})"


def behind(epoch: Epoch | None, budget: Amount | None) -> str:
    """Return that an epoch has planned with another budget than that of now; else ""."""
    plan = None if epoch is None else epoch.certificate
    if epoch is None or plan is None:
        return ""
    had = planned_budget(plan)
    if had == budget or (had and budget and _are_equal(had, budget)):
        return ""
    old, new = (DEFAULT if each is None else f"{each} a day" for each in (had, budget))
    if had is None:
        old = "no budget"
    return (
        f"the plan in force is that of epoch {epoch.epoch}, with {old}; the budget has changed "
        f"since ({new}), and the next epoch plans with it"
    )


def planned_budget(plan: Certificate) -> Amount | None:
    """Return the budget of a plan; None: no budget was set."""
    if plan.first_crawls is None and plan.unit == CRAWLS:
        return None
    return Amount(plan.bandwidth, plan.unit)


def exceeding(plan: Certificate, budget: Amount | None) -> str:
    """Return that the minimum crawl rates of pages exceed the budget of now; else ""."""
    if not exceeds(plan, budget):
        return ""
    needed = number(plan.min_bandwidth or 0.0)
    return (
        f"minimum crawl rates need {needed} {plan.unit} a day, more than the budget: epochs fail, "
        "and the schedule stays as it is, until one of the two changes"
    )


def exceeds(plan: Certificate, budget: Amount | None) -> bool:
    """Return whether the minimum crawl rates of pages exceed the budget of now."""
    same = budget is not None and budget.unit == plan.unit
    needed = plan.min_bandwidth or 0.0
    return budget is not None and same and needed > budget.value * (1 + ROUNDING)


def _are_equal(one: Amount, other: Amount) -> bool:
    return one.unit == other.unit and abs(one.value - other.value) <= ROUNDING * other.value
