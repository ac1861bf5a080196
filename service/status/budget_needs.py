"""Needs of the budget. Pure."""

from collections.abc import Iterator

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


BUDGET_EXCEEDED = NeedKind(
    "budget_exceeded",
    budget_exceeded,
    "Let all crawlers take leases: {day} took {used}, but {allowed} were allowed.",
    "recrawl leases workers",
    since_stays=False,
)
