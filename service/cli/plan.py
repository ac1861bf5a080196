"""`recrawl plan`: show the plans of other budgets."""

import json
import math
from typing import TYPE_CHECKING, Annotated

import typer

from service.cli.options import URL, ApiKey, To, connected
from service.cli.output import AsJson
from service.model.known_shares import ground_of_costs, ground_of_plan
from service.model.words import counted, number

if TYPE_CHECKING:
    from recrawl_client import BudgetPlan, PlanAnswer

MULTIPLES = (0.5, 1.0, 1.5, 2.0, 4.0)
"""Default bandwidths, in multiples of that in force."""
BYTES = ("bytes", "kB", "MB", "GB", "TB")
AMOUNTS = ("bandwidth", "planned", "overhead", "reserved", "bandwidth_used")
"""Fields of a plan in the unit of the budget."""
SMALL = 1e-3
"""Gain below which two digits are written."""
LEAST = 1e-9
MOST = 1e15
"""Smallest and largest budget that the service takes, in its unit a day."""


def plan(
    bandwidth: Annotated[
        list[float] | None,
        typer.Option(
            help="Budget a day, in its unit; repeat it. Default: half to four times that in force"
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option(min=0, max=1_000, help="Most hosts, tags and starved pages of each plan")
    ] = 5,
    to: To = URL,
    api_key: ApiKey = None,
    as_json: AsJson = False,
) -> None:
    """Show the plans of other budgets: freshness, and crawls by host and by tag."""
    from msgspec import to_builtins

    with connected(to, api_key) as client:
        if not bandwidth:
            present = client.budget().amount or client.epoch().bandwidth or LEAST
            wanted = (min(max(present * multiple, LEAST), MOST) for multiple in MULTIPLES)
            bandwidth = list(dict.fromkeys(wanted))
        answer = client.plan(*bandwidth, limit=limit)
    if as_json:
        typer.echo(json.dumps(to_builtins(answer), indent=2))
    else:
        show(answer)


def show(answer: "PlanAnswer") -> None:
    """Print a table of the plans, and the busiest hosts and tags of each."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    of_pages = answer.n_pages, answer.n_copies, answer.n_assumed
    costs = ground_of_costs(answer.n_pages, answer.n_assumed_costs, answer.unit)
    grounds = [each for each in (ground_of_plan(*of_pages), costs) if each]
    console, answer = Console(), in_large_units(answer)
    hosts = f"{counted(answer.n_pages, 'page')} of {counted(answer.n_hosts, 'host')}"
    ground = f"{hosts}, by epoch {answer.epoch}"
    if answer.min_bandwidth:
        least = f"{_number(answer.min_bandwidth)} {answer.unit}"
        ground += f"; minimum crawl rates need {least} a day"
    console.print(Text(ground))
    for ground in (*grounds, *answer.plan_notices):
        console.print(Text(ground))
    heads = (
        *(f"{answer.unit} a day", "for new pages", "used", "fresh", "harmonic cost"),
        *("gain of one more", "starved"),
    )
    others = [item for item in answer.items if item.bandwidth != answer.in_force.bandwidth]
    rows = [_row(answer.in_force, present=True), *map(_row, others)]
    # columns without a value take room from the others
    some = [n for n in range(len(heads)) if any(row[n] for row in rows)]
    view = Table(box=box.ROUNDED)
    for n in some:
        view.add_column(heads[n], justify="right", min_width=max(len(row[n]) for row in rows))
    for row in rows:
        view.add_row(*(Text(row[n]) for n in some))
    console.print(view)
    for item in answer.items:
        for line in _busiest(item):
            console.print(Text(line), soft_wrap=True)


def in_large_units(answer: "PlanAnswer") -> "PlanAnswer":
    """Return plans in kB, MB, GB or TB where they are in bytes, so that a line has room."""
    if answer.unit != "bytes":
        return answer
    from msgspec.structs import replace

    most = max(item.bandwidth for item in (answer.in_force, *answer.items))
    power = min(max(int(math.log10(max(most, 1.0))) // 3, 0), len(BYTES) - 1)
    size = 1_000.0**power

    def scaled(item: "BudgetPlan") -> "BudgetPlan":
        amounts = {name: getattr(item, name) for name in AMOUNTS}
        scales = {name: value and value / size for name, value in amounts.items()}
        return replace(item, **scales, gain=item.gain and item.gain * size)

    return replace(
        answer,
        unit=BYTES[power],
        min_bandwidth=answer.min_bandwidth / size,
        in_force=scaled(answer.in_force),
        items=[scaled(item) for item in answer.items],
    )


def _row(item: "BudgetPlan", *, present: bool = False) -> tuple[str, ...]:
    share = item.fresh_share
    return (
        _number(item.bandwidth) + " now" * present,
        _number(item.reserved),
        _number(item.bandwidth_used),
        "" if share is None else f"{share:.1%}",
        _number(item.harmonic_cost, 4),
        _small(item.gain),
        f"{item.n_starved:,}" if item.n_starved else "",
    )


def _small(value: float | None) -> str:
    """Return a gain, which may be far below one, in few characters."""
    if value is None or not 0 < abs(value) < SMALL:
        return _number(value, 3)
    return number(value, 2)


def _busiest(item: "BudgetPlan") -> list[str]:
    """Return the busiest hosts and tags of a plan and its losses, or why an epoch would fail."""
    if not item.feasible:
        starved = (f"page {page.page_id} ({_number(page.min_crawl_rate)})" for page in item.starved)
        return [f"{_number(item.bandwidth)}: {item.reason}; starved: {', '.join(starved)}"]
    busy = (h for h in item.hosts if h.crawl_rate)
    hosts = (f"{h.host} {_number(h.crawl_rate)}" + " (cap)" * h.at_cap for h in busy)
    tags = (f"{tag.tag} {_number(tag.crawl_rate)}" for tag in item.tags if tag.crawl_rate)
    lists = (("host", list(hosts) if len(item.hosts) > 1 else []), ("tag", list(tags)))
    lost = [
        f"{each.host} {_number(each.by_delay + each.by_closures, 3)} of {_number(each.wanted, 3)}"
        for each in item.window_losses
    ]
    budget = f"at {_number(item.bandwidth)} a day"
    lines = [f"{budget}, crawls by {name}: {', '.join(each)}" for name, each in lists if each]
    if lost:
        lines.append(f"{budget}, crawls a day lost to windows: {', '.join(lost)}")
    return lines


def _number(value: float | None, digits: int = 6) -> str:
    return "" if value is None else number(value, digits)
