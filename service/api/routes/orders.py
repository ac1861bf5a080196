"""Orders of operators for all servers: the budget, and the pause of all hosts."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from msgspec import UNSET

from recrawl_client.wire.orders import BudgetAnswer, BudgetBody, PauseAnswer, PauseBody
from service.access.audit import write_audit
from service.api import openapi
from service.api.admission import TheActor
from service.api.assembly import Service, TheBody, TheService
from service.api.examples import EXAMPLES
from service.api.requests.items import decode_object
from service.api.requests.pauses import end_of
from service.api.responses.encode import answer
from service.api.route import GUARDED, DirectRoute
from service.budget.in_force import BudgetInForce
from service.budget.plan_notices import notices_in_force
from service.budget.spending import adopt_pace, count_other_crawls
from service.epochs.constraints import CONSTRAINED
from service.leases.host_settings import HOURS
from service.model.access import Actor
from service.model.amounts import CRAWLS, Amount, is_money, read_budget
from service.model.errors import BudgetUnitChanges, InvalidField
from service.status.budget_today import budget_today
from service.status.counts import counts_of_today
from service.storage import Transaction
from service.storage.budget.orders import Orders

router = APIRouter(tags=["orders"], route_class=DirectRoute, dependencies=GUARDED)

FREE_PAGES = (
    "pages whose crawls cost nothing (price 0) are not bounded by this budget: they are crawled as "
    "often as the delays and caps of their hosts allow; a max_crawl_rate of the host bounds them"
)
"""Notice of a budget of money."""
BUDGET, PAUSE = "budget", "pause"
"""Names under which the orders are held while they change."""


@router.get("/budget", responses=openapi.answers(BudgetAnswer, EXAMPLES["budget_answer"], 422))
def get_budget(service: TheService) -> Response:
    """Show the budget in force, its author and what today has spent."""
    service.store.counter.write()  # reports of the last seconds, too
    with service.store.begin(write=False) as tx:
        return _answer_budget(service, tx)


@router.put(
    "/budget",
    responses=openapi.answers(BudgetAnswer, EXAMPLES["budget_answer"], 409, *openapi.WRITES),
    openapi_extra=openapi.request_body(BudgetBody, EXAMPLES["budget"], batch=False),
)
def put_budget(service: TheService, actor: TheActor, body: TheBody) -> Response:
    """Set the budget without a restart.

    It wins over `RECRAWL_BUDGET` and `RECRAWL_BANDWIDTH`, and outlives restarts, until DELETE. All
    servers and workers keep it within a second; an epoch is requested, which plans with it. The
    loan and the share of first crawls stay those of the settings.

    Another unit changes which pages are worth a crawl, and the costs of pages in the old one are
    forgotten. So it is refused without `change_unit`.
    """
    sent = decode_object(body, BudgetBody)
    try:
        amount = read_budget(sent.budget)
    except ValueError as error:
        raise InvalidField("budget", str(error)) from None
    if amount.unit != CRAWLS and service.plan.objective != CONSTRAINED:
        raise InvalidField(
            "budget",
            f"a budget in {amount.unit} needs the objective {CONSTRAINED}, not "
            f"{service.plan.objective}; set RECRAWL_OBJECTIVE={CONSTRAINED}, or send crawls",
        )
    return _order_budget(service, actor, amount, change_unit=sent.change_unit)


@router.delete(
    "/budget", responses=openapi.answers(BudgetAnswer, EXAMPLES["budget_answer"], 409, 422)
)
def delete_budget(
    service: TheService,
    actor: TheActor,
    change_unit: Annotated[
        bool, Query(description="True to go back to a budget in another unit, too")
    ] = False,
) -> Response:
    """Unset the budget of the operator.

    The budget of the settings is in force again, for all servers and workers. If it has another
    unit, this is refused without `change_unit`.
    """
    return _order_budget(service, actor, None, change_unit=change_unit)


def _order_budget(
    service: Service, actor: Actor, amount: Amount | None, *, change_unit: bool
) -> Response:
    service.store.counter.write()  # the counts of today have those of the last seconds, too
    with service.store.begin() as tx:
        tx.hold_settings(BUDGET)
        before, now = tx.orders(), tx.now()
        after = Orders("" if amount is None else str(amount), now, before.paused_until)
        if after.budget != before.budget:
            planned = BudgetInForce(service.budget.settings, after)
            in_force = BudgetInForce(service.budget.settings, before)
            if not change_unit:
                _check_unit(in_force.amount, planned.amount, tx.cost_unit())
            tx.order_budget(after.budget, now)
            if planned.terms is not None:
                adopt_pace(tx, planned.terms)
                if in_force.terms is None or in_force.unit != planned.unit:
                    counts = counts_of_today(tx, now)
                    done = max(counts["n_leased"], counts["n_reported"])
                    in_other = in_force.terms is not None
                    count_other_crawls(tx, planned.terms, done, in_other=in_other)
            tx.request_epoch(now)
            act = "budget.unset" if amount is None else "budget.set"
            values = ({"budget": each.budget or None} for each in (before, after))
            write_audit(tx, actor, act, BUDGET, *values)
    service.watch.poll()
    service.runner.wake()
    with service.store.begin(write=False) as tx:
        return _answer_budget(service, tx)


def _check_unit(before: Amount | None, after: Amount | None, cost_unit: str | None) -> None:
    """Raise `BudgetUnitChanges` if both are amounts in two units, or costs would be forgotten.

    Costs in `cost_unit` stay while there is no budget, and under one in crawls.
    """
    if after is None:
        return
    if before is not None and before.unit != after.unit:
        change, old = f"from {before} to {after} a day", cost_unit or before.unit
    elif before is None and cost_unit is not None and after.unit not in {CRAWLS, cost_unit}:
        change, old = f"from no budget to {after} a day", cost_unit
    else:
        return
    raise BudgetUnitChanges(
        f"the budget would change {change}, which is another unit: other pages are then worth a "
        f"crawl, and the costs of pages in {old} are forgotten; nothing was changed. To "
        "change it all the same, send change_unit=true"
    )


def _answer_budget(service: Service, tx: Transaction) -> Response:
    budget = BudgetInForce(service.budget.settings, tx.orders())
    terms, amount = budget.terms, budget.amount
    today = None if terms is None else budget_today(tx, terms, service.keeper)
    by_settings = service.budget.settings.amount
    owner = "operator" if budget.by_operator else "settings"
    return answer(
        BudgetAnswer(
            budget=None if amount is None else str(amount),
            amount=None if amount is None else amount.value,
            unit=budget.unit,
            set_by="default" if amount is None else owner,  # type: ignore[arg-type]
            set_at=budget.orders.budget_at if budget.by_operator else None,
            by_settings=None if by_settings is None else str(by_settings),
            spent_today=None if today is None else today.spent,
            held_today=None if today is None else today.held,
            left_today=None if today is None else today.left,
            left_now=None if today is None else today.at_once,
            left_in_windows=None if today is None else today.in_windows,
            next_at=None if today is None else today.next_at,
            plan_notices=notices_in_force(tx, amount),
            notice=FREE_PAGES if is_money(budget.unit) else UNSET,
        )
    )


@router.get("/pause", responses=openapi.answers(PauseAnswer, EXAMPLES["pause_answer"], 422))
def get_pause(service: TheService) -> Response:
    """Show the pause of all hosts."""
    with service.store.begin(write=False) as tx:
        return _answer_pause(tx.orders().paused_until, tx.now())


@router.post(
    "/pause",
    responses=openapi.answers(PauseAnswer, EXAMPLES["pause_answer"], *openapi.WRITES),
    openapi_extra=openapi.request_body(PauseBody, EXAMPLES["pause"], batch=False),
)
def post_pause(service: TheService, actor: TheActor, body: TheBody) -> Response:
    """Pause all hosts: no server leases a crawl until the end.

    This server stops at once, all others within a second. Leases that run may be extended,
    returned and reported. Epochs, pings and registrations go on. A later pause replaces this one.
    """
    return _order_pause(service, actor, decode_object(body, PauseBody))


@router.delete("/pause", responses=openapi.answers(PauseAnswer, EXAMPLES["pause_answer"], 422))
def delete_pause(service: TheService, actor: TheActor) -> Response:
    """End the pause of all hosts; pauses of single hosts stay."""
    return _order_pause(service, actor, None)


def _order_pause(service: Service, actor: Actor, pause: PauseBody | None) -> Response:
    with service.store.begin() as tx:
        tx.hold_settings(PAUSE)
        before, now = tx.orders(), tx.now()
        until = None if pause is None else end_of(pause, now)
        if until != before.paused_until:
            tx.order_pause(until)
            act = "service.resume" if until is None else "service.pause"
            values = ({"paused_until": each} for each in (before.paused_until, until))
            write_audit(tx, actor, act, "all hosts", *values)
    service.watch.poll()
    service.lease_waiters.wake_all()
    return _answer_pause(until, now)


def replan_hours(
    tx: Transaction,
    before: Mapping[str, Any] | None,
    after: Mapping[str, Any] | None,
    now: datetime,
) -> None:
    """Request an epoch if windows or blackouts have changed, because a plan counts with them."""
    old, new = before or {}, after or {}
    if any((old.get(name) or None) != (new.get(name) or None) for name in HOURS):
        tx.request_epoch(now)


def follow_hours_now(service: Service) -> None:
    """Follow windows that have changed: at once in this server, within a second in the others."""
    service.watch.poll()
    service.runner.wake()
    service.lease_waiters.wake_all()


def _answer_pause(until: datetime | None, now: datetime) -> Response:
    in_force = until is not None and until > now
    return answer(PauseAnswer(paused_until=until if in_force else None))
