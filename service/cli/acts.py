"""`recrawl budget`, `pause`, `resume`, `audit` and `history`: acts on all servers, and a log."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.cli import output
from service.cli.confirming import Yes, confirm
from service.cli.durations import read_end, read_moment
from service.cli.options import URL, ApiKey, To, connected
from service.cli.output import AsJson, echo_act, echo_lines, shown
from service.model.amounts import CRAWLS, DEFAULT
from service.model.words import span

if TYPE_CHECKING:
    from recrawl_client import BudgetAnswer, Client

budget = typer.Typer(no_args_is_help=True, help="Show and set the budget, without a restart.")

Length = Annotated[str, typer.Argument(metavar="DURATION", help="Such as 30min, 2h or 1d")]
Since = Annotated[
    datetime | None,
    typer.Option(
        parser=read_moment, metavar="TIME", help="How long ago, such as 1d, or an instant"
    ),
]
Until = Annotated[
    datetime | None, typer.Option(parser=read_moment, metavar="TIME", help="End, as --since")
]
HISTORY = ("at", "fresh_share", "n_leased", "n_reported", "n_failed", "n_changed", "n_wasted")
STEPS = ((timedelta(days=2), 600), (timedelta(days=14), 3_600))
"""Longest range of the history for each length of its rows, seconds; a longer one has days."""
DAY_S = 86_400
UNIT_CHANGES = "budget-unit-changes"
"""Problem of a budget in another unit."""


@budget.command(name="show")
def show_budget(to: To = URL, api_key: ApiKey = None, as_json: AsJson = False) -> None:
    """Show the budget in force, and who has set it."""
    with connected(to, api_key) as service:
        answer = service.budget()
    _show(answer, as_json=as_json or not output.on_terminal())


@budget.command(name="set")
def set_budget(
    amount: Annotated[str, typer.Argument(help='A day: "10000 crawls", "50 GB", "20 h", "30 USD"')],
    yes: Yes = False,
    to: To = URL,
    api_key: ApiKey = None,
    as_json: AsJson = False,
) -> None:
    """Set the budget of all servers and workers; it outlives restarts until `budget unset`.

    It wins over RECRAWL_BUDGET and RECRAWL_BANDWIDTH. Every process follows within a second.
    Another unit than that of the budget in force is asked about, or needs --yes.
    """
    with connected(to, api_key) as service:
        change = partial(service.set_budget, amount)
        _show(_changed(service, change, f"{amount} a day", yes=yes), as_json=as_json)


@budget.command(name="unset")
def unset_budget(
    yes: Yes = False, to: To = URL, api_key: ApiKey = None, as_json: AsJson = False
) -> None:
    """Go back to the budget of the settings; another unit is asked about, or needs --yes."""
    with connected(to, api_key) as service:
        _show(
            _changed(service, service.unset_budget, "that of the settings", yes=yes),
            as_json=as_json,
        )


def _changed(
    service: "Client", change: Callable[..., "BudgetAnswer"], new: str, *, yes: bool
) -> "BudgetAnswer":
    """Change the budget; ask about another unit, which the service refuses without consent."""
    from recrawl_client import Refused

    try:
        return change()
    except Refused as error:
        if error.code != UNIT_CHANGES:
            raise
    before = service.budget().budget
    old = "no budget" if before is None else f"{before} a day"
    confirm(
        f"the budget changes from {old} to {new}, in another unit: other pages are then worth a "
        "crawl, and the costs of pages in the old unit are forgotten",
        yes=yes,
    )
    return change(change_unit=True)


def _show(answer: "BudgetAnswer", *, as_json: bool) -> None:
    echo_act(answer, sentence(answer), as_json=as_json)


def sentence(answer: "BudgetAnswer") -> str:
    """Return who has set the budget, and what of it this day has spent."""
    owner = {"operator": "set by an operator", "settings": "by the settings"}
    amount = f"{answer.budget} a day, {owner.get(answer.set_by)}"
    parts = [amount if answer.budget else DEFAULT]
    if answer.set_at is not None:
        parts[0] += f" at {answer.set_at:%Y-%m-%d %H:%M:%SZ}"
    if answer.budget and answer.spent_today is None:
        parts.append(f"{answer.unit} spent today are not known, as the unit has changed")
    if answer.spent_today is not None:
        parts.append(f"spent today: {shown(answer.spent_today)} {answer.unit}")
        if answer.held_today:
            owner_of_more = "servers" if answer.unit == CRAWLS else "leases"
            parts[-1] += f", {owner_of_more} hold {shown(answer.held_today)} more"
    if answer.left_today is not None and answer.left_now is not None:
        parts.append(_left(answer, answer.left_today, answer.left_now))
    if answer.set_by == "operator":
        parts.append(f"without this order: {answer.by_settings or 'the default'}")
    parts += answer.plan_notices
    if answer.notice:
        parts.append(answer.notice)
    return "; ".join(parts)


def _left(answer: "BudgetAnswer", left: float, at_once: float) -> str:
    """Return what is left of today, and how it comes."""
    rest = f"left today: {shown(left)} {answer.unit}"
    if not left or (left < 1 and answer.unit == CRAWLS):
        return f"{rest}, until midnight UTC"
    if at_once >= left:
        return f"{rest}, all of them at once"
    rest += f", {shown(at_once)} of them at once"
    if answer.left_in_windows:
        rest += f", {shown(answer.left_in_windows)} kept for hosts with windows"
    if answer.unit != CRAWLS or not answer.amount:
        return f"{rest}, the others with the hours"
    return f"{rest}, then one each {span(DAY_S / answer.amount)}"


def pause(length: Length, to: To = URL, api_key: ApiKey = None, as_json: AsJson = False) -> None:
    """Pause all hosts: no server leases a crawl until the end. Leases that run may be reported."""
    with connected(to, api_key) as service:
        until = service.pause_all(read_end(length))
    echo_act(
        {"paused_until": until},
        f"all hosts are paused until {until:%Y-%m-%d %H:%M:%SZ}",
        as_json=as_json,
    )


def resume(to: To = URL, api_key: ApiKey = None, as_json: AsJson = False) -> None:
    """End the pause of all hosts; pauses of single hosts stay."""
    with connected(to, api_key) as service:
        until = service.pause()
        service.resume_all()
    none = until is None
    end = "no pause of all hosts was in force" if none else "crawls are leased again"
    echo_act({"paused_until": None}, end, as_json=as_json)


def audit(
    since: Since = None,
    until: Until = None,
    act: Annotated[str | None, typer.Option(help="Such as host.pause")] = None,
    key: Annotated[str | None, typer.Option(help="Author: id or name of a key")] = None,
    name: Annotated[str | None, typer.Option("--object", help="Such as a host")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Most entries, newest first")] = 100,
    to: To = URL,
    api_key: ApiKey = None,
    as_json: AsJson = False,
) -> None:
    """List administrative acts, newest first."""
    wanted = {"since": since, "until": until, "act": act, "key": key, "object": name}
    filters: Any = {field: value for field, value in wanted.items() if value is not None}
    fields = ("at", "key", "act", "object", "after", "before")
    with connected(to, api_key) as service:
        listed = islice(service.audit(**filters), limit)
        empty = "no act matches the options" if filters else "no acts yet"
        echo_lines(listed, *fields, as_json=as_json, empty=empty)


def history(
    since: Since = None,
    until: Until = None,
    host: Annotated[str | None, typer.Option(help="Only this host")] = None,
    to: To = URL,
    api_key: ApiKey = None,
    as_json: AsJson = False,
) -> None:
    """List what was achieved, oldest first: of the last day in steps of ten minutes."""
    end = until or datetime.now(UTC)
    length = end - since if since is not None else timedelta(days=1)
    step_s = next((step for longest, step in STEPS if length <= longest), DAY_S)
    with connected(to, api_key) as service:
        rows = service.steps(since, until, step_s=step_s, host=host)
        echo_lines(rows, *HISTORY, as_json=as_json, empty="no steps in this time")
