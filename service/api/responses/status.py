"""The state of the service, as an answer."""

from typing import TYPE_CHECKING

from recrawl_client.wire.status import (
    AcceptedNeed,
    BudgetInForce,
    EpochState,
    Need,
    StatusAnswer,
    Today,
)
from service import __version__
from service.api.responses.history import is_before
from service.budget.plan_notices import plan_notices
from service.status import needs
from service.status.budget_days import midnight
from service.status.state import ServiceState

if TYPE_CHECKING:
    from service.api.assembly import Service

OF_PAGES = (
    "n_never_crawled",
    "n_stopped",
    "n_no_content",
    "n_overdue",
    "fresh_share",
    "fresh_share_plain",
    "n_assumed",
    "harmonic_staleness",
)
"""Names of gauges in an answer."""


def encode_state(state: ServiceState, service: "Service") -> StatusAnswer:
    """Return a state as an answer of a server."""
    pages, facts = state.pages, state.facts
    crawlers, gauges = facts.crawlers, pages.gauges
    return StatusAnswer(
        at=state.at,
        version=__version__,
        database="sqlite" if service.store.embedded else "postgres",
        counted=pages.by.value,
        counted_at=None if gauges is None else gauges.measured_at,
        n_pages=pages.n_pages,
        n_gone=pages.n_gone,
        n_hosts_paused=state.n_hosts_paused,
        n_leases=facts.n_running,
        n_waiting_items=service.n_waiting_items,
        ready_since=crawlers.ready_since,
        leases_asked_at=None if crawlers.leases is None else crawlers.leases.at,
        schedule_read_at=None if crawlers.schedule is None else crawlers.schedule.at,
        today=_today(state),
        budget=_budget(state),
        epoch=_epoch(state),
        needs_you=[Need(**need._asdict()) for need in state.needs],
        accepted=[encode_accepted(each) for each in state.accepted],
        paused_until=service.keeper.pause_in_force(),
        **{name: None if gauges is None else getattr(gauges, name) for name in OF_PAGES},
    )


def encode_accepted(accepted: needs.AcceptedNeed) -> AcceptedNeed:
    """Return an accepted need as a part of an answer."""
    need = accepted.need
    return AcceptedNeed(
        since=None if need is None else need.since,
        sentence=None if need is None else need.sentence,
        **accepted.acceptance._asdict(),
    )


def _today(state: ServiceState) -> Today:
    counts, own = state.today, state.of_budget
    is_mixed = is_before(midnight(state.at), state.facts.unit_since)
    return Today(
        n_leased=counts["n_leased"],
        n_reported=counts["n_reported"],
        n_failed=counts["n_failed"],
        n_changed=counts["n_changed"],
        spent=None if own is None or is_mixed else own.spent,
    )


def _budget(state: ServiceState) -> BudgetInForce | None:
    terms = state.facts.budget
    if terms is None:
        return None
    return BudgetInForce(
        amount=terms.budget,
        unit=terms.unit,
        loan_days=terms.loan_days,
        spent_until=state.facts.spent_until,
        next_at=None if state.of_budget is None else state.of_budget.next_at,
    )


def _epoch(state: ServiceState) -> EpochState:
    in_force, newest, terms = state.in_force, state.newest, state.facts.budget
    return EpochState(
        epoch=None if in_force is None else in_force.epoch,
        published_at=None if in_force is None else in_force.finished_at,
        newest=None if newest is None else newest.epoch,
        status=None if newest is None else newest.status.value,
        reason=None if newest is None else newest.reason,
        interval_s=state.facts.epochs.interval.total_seconds(),
        plan_notices=plan_notices(in_force, None if terms is None else terms.amount),
    )
