"""`recrawl status`, `why` and `epochs`: show the work of a running service."""

import json
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.cli.options import URL, ApiKey, To, connected
from service.cli.output import AsJson
from service.model.words import counted, number, span

if TYPE_CHECKING:
    from prometheus_client.samples import Sample

    from recrawl_client import Client, Epoch, HistoryRow

OK = 200


def status(to: To = URL, api_key: ApiKey = None, as_json: AsJson = False) -> None:
    """Show whether a service is ready, its epoch, pages, budget, freshness and queue.

    Ends with status 1 if the service is not ready.
    """
    with connected(to, api_key) as client:
        state = state_of(client)
    if as_json:
        typer.echo(json.dumps(state, indent=2))
    else:
        for name, text in lines(state):
            typer.echo(f"{name:8} {text}")
    if state["health"] != "ok":
        raise typer.Exit(1)


def state_of(client: "Client") -> dict[str, Any]:
    """Return the state of a service; only the reason where it is not ready."""
    answer = _get(client, "/readyz")
    health = _object(answer)
    state: dict[str, Any] = {"address": str(client.http.base_url).rstrip("/")}
    if answer.status_code != OK or health.get("status") != "ok":
        reason = health.get("detail", f"GET /readyz answers {answer.status_code}")
        return state | {"health": "not ready", "reason": reason}
    state |= {"health": "ok", "version": health.get("version", "unknown")}
    newest, in_force = next(client.epochs(), None), _in_force(client)
    samples = _samples(client)
    gauges = {sample.name: sample.value for sample in samples if not sample.labels}
    builds = (sample.labels for sample in samples if sample.name == "recrawl_build_info")
    return state | {
        "database": next(builds, {}).get("database"),
        "has_pages": in_force is not None or _has_pages(client),
        "epoch": _as_json(in_force),
        "newest_epoch": _as_json(newest),
        "history": _as_json(_last_measured(client)),
        "ready_s": gauges.get("recrawl_ready_seconds"),
        "waiting_items": gauges.get("recrawl_waiting_items"),
    }


def lines(state: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the state as pairs of a name and a short text."""
    if state["health"] != "ok":
        return [("health", f"not ready, at {state['address']}: {state['reason']}")]
    rows = [("health", f"ok, version {state['version']}, at {state['address']}")]
    epoch, newest = state["epoch"], state["newest_epoch"]
    if epoch is None:
        rows.append(("epoch", _none_yet(state)))
    else:
        rows += [
            ("epoch", f"{epoch['epoch']}, published {_ago(epoch['finished_at'])}"),
            ("pages", f"{epoch['n_pages']:,}"),
            ("budget", _budget(epoch)),
        ]
    rows += _history(state["history"])
    rows.append(("queue", _queue(state)))
    if newest is not None and newest["status"] == "failed":
        rows.append(("warning", f"epoch {newest['epoch']} failed: {newest['reason']}"))
    return rows


def _none_yet(state: dict[str, Any]) -> str:
    """Return why no epoch is in force: on Postgres only a worker runs epochs."""
    newest = state["newest_epoch"]
    not_begun = newest is None or newest["status"] == "requested"
    if state["database"] == "postgres" and state["has_pages"] and not_begun:
        return "none yet: is `recrawl worker` running?"
    return "none yet; the first one runs once pages are registered"


def _history(row: dict[str, Any] | None) -> list[tuple[str, str]]:
    if row is None:
        return []
    texts = [f"{row['n_never_crawled']:,} pages never crawled", f"{row['n_overdue']:,} overdue"]
    if row.get("n_no_content"):
        texts.insert(1, f"{row['n_no_content']:,} without content")
    if row["fresh_share"] is not None:
        texts.insert(0, f"{row['fresh_share']:.1%} of copies, by importance")
    crawls = f"{row['n_reported']:,} in ten minutes, {row['n_changed']:,} found changes"
    measured = f"measured {_ago(row['measured_at'])}"
    return [("fresh", ", ".join([*texts, measured])), ("crawls", f"{crawls}, {measured}")]


def _queue(state: dict[str, Any]) -> str:
    ready_s = state["ready_s"]
    if ready_s is None:
        crawls = "no crawl is queued"
    elif ready_s:
        crawls = f"a crawl has been ready for {span(ready_s)}"
    else:
        crawls = "no crawl is ready yet"
    waiting = state["waiting_items"]
    return crawls if waiting is None else f"{crawls}, {waiting:,.0f} reports wait to be written"


def why(
    page: Annotated[str, typer.Argument(metavar="URL", help="URL of a page, or its page_id")],
    to: To = URL,
    api_key: ApiKey = None,
    as_json: AsJson = False,
) -> None:
    """Show the next crawl of a page, and the reason for its time."""
    from msgspec import to_builtins

    with connected(to, api_key) as client:
        answer = to_builtins(client.page(int(page) if page.isdecimal() else page))
    if as_json:
        typer.echo(json.dumps(answer, indent=2))
        return
    reason, estimate = answer["why"], answer["estimate"]
    typer.echo(answer["url"])
    typer.echo(reason["sentence"])
    next_at = _next_at(answer)
    typer.echo(f"next crawl  {_moment(next_at) if next_at else 'no time is set'}")
    last_at = answer["last_crawl_at"]
    typer.echo(f"last crawl  {_moment(last_at) if last_at else 'never'}")
    counts = [
        counted(estimate["n_observations"], "interval"),
        counted(estimate["n_changes"], "change"),
        counted(estimate["n_pings"], "ping"),
    ]
    none = "; its change rate is assumed" if estimate["assumed"] else ""
    typer.echo(f"evidence    {', '.join(counts)}{none}")


def _next_at(page: dict[str, Any]) -> str | None:
    """Return the earliest time of the next crawl: what holds the page may be later than due."""
    until: str | None = page["why"]["until"]
    due = None if page["schedule"] is None else page["schedule"]["next_crawl_at"]
    return until or due


def epochs(
    limit: Annotated[int, typer.Option(min=1, help="Most epochs, newest first")] = 20,
    to: To = URL,
    api_key: ApiKey = None,
    as_json: AsJson = False,
) -> None:
    """List epochs, newest first, with the reasons of failures; --json prints a line for each."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    with connected(to, api_key) as client:
        listed = [_as_json(epoch) or {} for epoch in islice(client.epochs(), limit)]
    if as_json:
        for epoch in listed:
            typer.echo(json.dumps(epoch))
        return
    view = Table("epoch", "status", "started", "took", "pages", "scheduled a day", "reason")
    for epoch in listed:
        view.add_row(*map(Text, _row(epoch)))
    Console().print(view)


def _row(epoch: dict[str, Any]) -> tuple[str, ...]:
    started, seconds = epoch["started_at"], sum((epoch["seconds"] or {}).values())
    return (
        str(epoch["epoch"]),
        epoch["status"],
        started[:19].replace("T", " ") + "Z" if started else "",
        f"{seconds:.1f} s" if epoch["seconds"] else "",
        "" if epoch["n_pages"] is None else f"{epoch['n_pages']:,}",
        "" if epoch["bandwidth_used"] is None else f"{epoch['bandwidth_used']:,.1f}",
        epoch["reason"] or "",
    )


# -- answers of the service


def _get(client: "Client", path: str) -> Any:
    """Return an answer of any status; raise `Unavailable` without an answer."""
    import httpx

    from recrawl_client import Unavailable

    try:
        return client.http.get(path)
    except (httpx.RequestError, httpx.InvalidURL) as error:
        address = str(client.http.base_url).rstrip("/")
        raise Unavailable(f"GET {address}{path}: {error}") from error


def _object(answer: Any) -> dict[str, Any]:
    """Return the JSON object of an answer; an empty object for other content."""
    try:
        content = answer.json()
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def _in_force(client: "Client") -> "Epoch | None":
    from recrawl_client import NotFound

    try:
        return client.epoch()
    except NotFound:
        return None


def _last_measured(client: "Client") -> "HistoryRow | None":
    """Return the newest row of the history with gauges; None where there is none of today."""
    rows = [row for row in client.steps() if row.measured_at is not None]
    return rows[-1] if rows else None


def _has_pages(client: "Client") -> bool:
    """Return whether a page is registered; False where the key may not list pages."""
    answer = _get(client, "/pages?limit=1")
    return answer.status_code == OK and bool(_object(answer).get("items"))


def _samples(client: "Client") -> "list[Sample]":
    """Return the metrics; none where a proxy blocks /metrics."""
    from prometheus_client.parser import text_string_to_metric_families

    answer = _get(client, "/metrics")
    if answer.status_code != OK or "text/plain" not in answer.headers.get("Content-Type", ""):
        return []
    families = text_string_to_metric_families(answer.text)
    return [sample for family in families for sample in family.samples]


def _as_json(value: "Epoch | HistoryRow | None") -> dict[str, Any] | None:
    from msgspec import to_builtins

    as_json: dict[str, Any] | None = to_builtins(value)
    return as_json


# -- texts


def _budget(epoch: dict[str, Any]) -> str:
    """Return the budget of an epoch in its unit, and the part that refreshes take.

    >>> _budget({"bandwidth": 30.0, "bandwidth_used": 22.5, "unit": "USD"})
    '30 USD a day, 22.5 scheduled'
    """
    unit = epoch["unit"] or "crawls"
    budget, used = number(epoch["bandwidth"], 6), number(epoch["bandwidth_used"], 6)
    return f"{budget} {unit} a day, {used} scheduled"


def _moment(at: str) -> str:
    return f"{at[:19].replace('T', ' ')}Z, {_ago(at)}"


def _ago(at: str) -> str:
    seconds = (datetime.now(UTC) - datetime.fromisoformat(at)).total_seconds()
    return f"{span(seconds)} ago" if seconds >= 0 else f"in {span(-seconds)}"
