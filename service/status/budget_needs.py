"""Needs of the budget. Pure."""

from collections.abc import Iterator

from service.budget.plan_notices import exceeds
from service.model.words import number
from service.status.budget_days import exceeded, unused
from service.status.facts import Facts
from service.status.kinds import Found, NeedKind


def budget_unused(facts: Facts) -> Iterator[Found]:
    """Yield that yesterday left much of the budget over, while pages waited."""
    if facts.budget is not None and (
        day := unused(facts.steps, facts.budget, facts.at, facts.unit_since)
    ):
        yield Found("budget", day.since, day.words())


BUDGET_UNUSED = NeedKind(
    "budget_unused",
    budget_unused,
    "Start more crawlers, or lower the budget: {day} used {used} of {allowed}, while pages waited.",
    "recrawl leases workers",
    since_stays=False,
)


def budget_exceeded(facts: Facts) -> Iterator[Found]:
    """Yield that crawls took more than the budget and its loan, by yesterday or today."""
    if facts.budget is not None and (
        days := exceeded(facts.steps, facts.budget, facts.at, facts.unit_since)
    ):
        yield Found("budget", days.since, days.words())


def minima_exceed_budget(facts: Facts) -> Iterator[Found]:
    """Yield that minimum crawl rates exceed the budget, before an epoch has failed by them."""
    epoch, terms = facts.in_force, facts.budget
    plan = None if epoch is None else epoch.certificate
    if epoch is None or plan is None or terms is None or facts.epochs.failures.since is not None:
        return
    if exceeds(plan, terms.amount):
        values = {"needed": f"{number(plan.min_bandwidth or 0.0)} {plan.unit}"}
        values["allowed"] = number(terms.budget)
        yield Found("budget", epoch.finished_at or facts.at, values)


MINIMA_EXCEED_BUDGET = NeedKind(
    "minima_exceed_budget",
    minima_exceed_budget,
    "Raise the budget, or lower minimum crawl rates: they need {needed} a day, and the budget is "
    "{allowed}, so the next epoch fails.",
    "recrawl budget show",
)


BUDGET_EXCEEDED = NeedKind(
    "budget_exceeded",
    budget_exceeded,
    "Let all crawlers take leases: {day} took {used}, but {allowed} were allowed.",
    "recrawl leases workers",
    since_stays=False,
)
