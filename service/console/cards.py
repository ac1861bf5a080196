"""The cards of the overview: one function a card. A new card is a function and a line in `GROUPS`.

A function returns None where its card has nothing to show yet.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from markupsafe import Markup

from recrawl_client.wire.status import StatusAnswer
from service.console.render import instant, number, percent
from service.console.visit import Visit
from service.model.known_shares import never_crawled, with_assumed, without_share
from service.model.words import ahead, counted


class Card(NamedTuple):
    """A number with its name and a remark."""

    name: str
    value: str
    remark: str = ""
    link: str = ""
    """Address of the view that shows more; empty: none."""
    share: float | None = None
    """Share that a bar shows, 0 to 1; None: no bar."""


MakeCard = Callable[[Visit, StatusAnswer], Card | None]


def fresh(_: Visit, state: StatusAnswer) -> Card | None:
    """Return the share of fresh copies, weighed and plain."""
    if state.n_never_crawled is None:
        return None
    if state.fresh_share is None:
        remark = without_share(state.n_pages, state.n_never_crawled)
    else:
        share = f"{percent(state.fresh_share_plain)} of the pages"
        remark = with_assumed(share, state.n_pages, state.n_assumed)
    return Card("Fresh by importance", percent(state.fresh_share), remark)


def pages(_: Visit, state: StatusAnswer) -> Card:
    """Return the number of pages."""
    least = "≤ " if state.counted == "ids" else ""
    remark = "not counted yet"
    if state.n_never_crawled is not None:
        remark = never_crawled(state.n_never_crawled, state.n_stopped)
    if state.n_gone:
        remark += f", {number(state.n_gone)} more are gone"
    return Card("Pages", f"{least}{number(state.n_pages)}", remark, "/console/pages")


def overdue(visit: Visit, state: StatusAnswer) -> Card | None:
    """Return the number of pages that were due before."""
    if state.n_overdue is None:
        return None
    counted = Markup("counted {}").format(instant(state.counted_at, visit.now))
    remark = "counted now" if state.counted == "now" else counted
    return Card("Overdue", number(state.n_overdue), remark, "/console/pages?state=overdue")


def today(_: Visit, state: StatusAnswer) -> Card:
    """Return what was crawled today, beside the budget of a day."""
    budget, done = state.budget, state.today
    if budget is None:
        return Card("Crawls today", number(done.n_reported), "no budget is set", "/console/epochs")
    taken = done.spent
    remark = f"{number(taken)} of {number(budget.amount)} {budget.unit} taken from the budget"
    if budget.spent_until is not None:
        remark += ", which is spent for today"
    elif budget.next_at is not None:
        remark += f"; the next comes {ahead(budget.next_at, state.at)}"
    share = None if taken is None or not budget.amount else min(taken / budget.amount, 1.0)
    return Card("Crawls today", number(done.n_reported), remark, "/console/epochs", share)


def hosts(_: Visit, state: StatusAnswer) -> Card:
    """Return the number of hosts that are not crawled now."""
    leases = counted(state.n_leases, "lease runs", "leases run")
    paused = number(state.n_hosts_paused)
    return Card("Hosts paused", paused, leases, "/console/hosts?blocked=true")


def epoch(visit: Visit, state: StatusAnswer) -> Card | None:
    """Return the epoch in force and its age."""
    force = state.epoch
    if force.epoch is None:
        return None
    link = f"/console/epochs/{force.epoch}"
    return Card("Epoch in force", str(force.epoch), instant(force.published_at, visit.now), link)


GROUPS: Mapping[str, tuple[MakeCard, ...]] = {
    "Freshness": (fresh, pages, overdue),
    "Budget and crawls": (today, hosts, epoch),
}
"""Cards by the heading of their group, in the order of the page."""


def groups(visit: Visit, state: StatusAnswer) -> dict[str, list[Card]]:
    """Return the cards that have something to show, by group."""
    made = {
        name: [card for make in makers if (card := make(visit, state)) is not None]
        for name, makers in GROUPS.items()
    }
    return {name: cards for name, cards in made.items() if cards}
