"""The state of a running service, and what needs somebody, as `recrawl status` prints them."""

from datetime import datetime
from typing import TYPE_CHECKING, Any

from service.model.amounts import CRAWLS, DEFAULT, is_money
from service.model.known_shares import never_crawled, with_assumed, without_share
from service.model.words import ago, ahead, counted, number, span

if TYPE_CHECKING:
    from recrawl_client import Client

OK = 200
NOT_READY = {"health": "not ready"}


def state_of(client: "Client") -> dict[str, Any]:
    """Return the answer of GET /status with the address; where it is not ready, the reason."""
    from msgspec import to_builtins

    own = {"address": str(client.http.base_url).rstrip("/")}
    reason = _not_ready(client)
    if reason is not None:
        return {**own, **NOT_READY, "reason": reason}
    return {**own, "health": "ok", **to_builtins(client.status())}


def _not_ready(client: "Client") -> str | None:
    """Return why a service is not ready; None: it is."""
    answer = _get(client, "/readyz")
    health = _object(answer)
    if answer.status_code == OK and health.get("status") == "ok":
        return None
    away = ", ".join(health.get("away", ()))
    default = f"away: {away}" if away else f"GET /readyz answers {answer.status_code}"
    return str(health.get("detail", default))


def show(state: dict[str, Any]) -> None:
    """Print what needs somebody, then a table of the rest; a remedy has a line of its own."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    for need in state.get("needs_you", []):
        title = Text(f"{need['kind']}: {need['subject']}", "bold yellow")
        console.print(title, Text(f"since {_ago(state, need['since'])}", "dim"))
        console.print(Text(f"  {need['sentence']}"), soft_wrap=True)
        console.print(Text(f"  {need['remedy']}\n"), soft_wrap=True)
    facts = Table(show_header=False, box=None)
    for name, text in lines(state):
        facts.add_row(name, Text(text))
    console.print(facts)


def lines(state: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the state as pairs of a name and a short text."""
    if state["health"] != "ok":
        return [("health", f"not ready, at {state['address']}: {state['reason']}")]
    paused_until = state.get("paused_until")
    return [
        ("health", f"ok, version {state['version']}, at {state['address']}"),
        ("needs you", f"{len(state['needs_you'])}" if state["needs_you"] else "nothing"),
        *([("accepted", _accepted(state["accepted"]))] if state.get("accepted") else []),
        *([("paused", _paused(state, paused_until))] if paused_until else []),
        ("pages", _pages(state)),
        ("fresh", _fresh(state)),
        ("today", _today(state)),
        ("budget", _budget_of(state)),
        ("epoch", _epoch_of(state)),
        ("crawlers", _crawlers(state)),
    ]


def _paused(state: dict[str, Any], until: str) -> str:
    end = datetime.fromisoformat(until)
    when = ahead(end, datetime.fromisoformat(state["at"]))
    return f"all hosts, by an operator; the pause ends {when}, or by `recrawl resume`"


def _accepted(accepted: list[dict[str, Any]]) -> str:
    """Return what an operator has accepted, and until when."""
    return "; ".join(
        f"{each['kind']}: {each['subject']}, until {each['until'][:10]}"
        + ("" if each["since"] else " (does not hold now)")
        for each in accepted
    )


def _pages(state: dict[str, Any]) -> str:
    if state["counted"] == "ids":
        return f"up to {state['n_pages']:,}; the next count comes within ten minutes"
    texts = [
        f"{state['n_pages']:,}",
        never_crawled(state["n_never_crawled"], state.get("n_stopped")),
    ]
    texts.append(f"{state['n_overdue']:,} overdue")
    texts += [f"{state['n_no_content']:,} without content"] if state["n_no_content"] else []
    texts += [f"{state['n_gone']:,} more are gone"] if state["n_gone"] else []
    return ", ".join(texts) + _counted(state)


def _fresh(state: dict[str, Any]) -> str:
    if state["fresh_share"] is None:
        return without_share(state["n_pages"], state["n_never_crawled"])
    share = f"{state['fresh_share']:.1%} of pages, by importance{_counted(state)}"
    return with_assumed(share, state["n_pages"], state.get("n_assumed"))


def _counted(state: dict[str, Any]) -> str:
    """Return when pages were counted, where that is not now."""
    return "" if state["counted"] == "now" else f", counted {_ago(state, state['counted_at'])}"


def _today(state: dict[str, Any]) -> str:
    today, budget = state["today"], state["budget"]
    spent = ""  # crawls are counted already
    if today["spent"] is not None and budget["unit"] != CRAWLS:
        spent = f", {number(today['spent'], 6)} {budget['unit']}"
    return (
        f"{counted(today['n_reported'], 'crawl')}{spent}, "
        f"{counted(today['n_changed'], 'change')} found, {today['n_failed']:,} failed or refused, "
        f"{today['n_leased']:,} leased (UTC)"
    )


def _budget_of(state: dict[str, Any]) -> str:
    budget = state["budget"]
    if budget is None:
        return DEFAULT
    loan = (
        f", with a loan of up to {span(86_400.0 * budget['loan_days'])}"
        if budget["loan_days"]
        else ""
    )
    return f"{number(budget['amount'], 6)} {budget['unit']} a day{loan}{_spent(state)}"


def _spent(state: dict[str, Any]) -> str:
    """Return that the budget is spent for the rest of the day, where it is."""
    until = state["budget"].get("spent_until")
    if until is None:
        return _paced(state)
    goes_on = ahead(datetime.fromisoformat(until), datetime.fromisoformat(state["at"]))
    free = ", except those that cost nothing" if is_money(state["budget"]["unit"]) else ""
    return f"; spent for today: crawls go on {goes_on}{free}"


def _paced(state: dict[str, Any]) -> str:
    """Return when the next crawl comes, where the income so far is spent."""
    next_at = state["budget"].get("next_at")
    if next_at is None:
        return ""
    comes = ahead(datetime.fromisoformat(next_at), datetime.fromisoformat(state["at"]))
    return f"; its income so far is spent: the next crawl comes {comes}"


def _epoch_of(state: dict[str, Any]) -> str:
    epoch = state["epoch"]
    if epoch["epoch"] is None:
        return _none_yet(state)
    newest = f"{epoch['epoch']}, published {_ago(state, epoch['published_at'])}"
    if epoch["newest"] != epoch["epoch"]:
        newest += f"; {epoch['newest']} {epoch['status']}"
    newest = newest if epoch["reason"] is None else f"{newest}: {epoch['reason']}"
    return "; ".join([newest, *epoch.get("plan_notices", ())])


def _none_yet(state: dict[str, Any]) -> str:
    """Return why no epoch is in force: on Postgres only a worker runs epochs."""
    epoch = state["epoch"]
    not_begun = epoch["newest"] is None or epoch["status"] == "requested"
    if state["database"] == "postgres" and state["n_pages"] and not_begun:
        return "none yet: is `recrawl worker` running?"
    return "none yet; the first one runs once pages are registered"


def _crawlers(state: dict[str, Any]) -> str:
    texts = [counted(state["n_leases"], "lease runs", "leases run")]
    for name, what in (("leases_asked_at", "leases asked"), ("schedule_read_at", "schedule read")):
        texts += [f"{what} {_ago(state, state[name])}"] if state[name] else []
    ready = state["ready_since"]
    texts.append("no crawl is ready" if ready is None else f"a crawl ready {_ago(state, ready)}")
    waiting = state["n_waiting_items"]
    texts += [f"{counted(waiting, 'report')} to write"] if waiting else []
    return ", ".join(texts)


def _ago(state: dict[str, Any], at: str) -> str:
    """Return how long before the answer an instant was, by the clock of the service."""
    passed = datetime.fromisoformat(state["at"]) - datetime.fromisoformat(at)
    return ago(passed.total_seconds())


def _get(client: "Client", path: str) -> Any:
    """Return an answer of any status; raise `Unavailable` without an answer."""
    import httpx

    from recrawl_client import Unavailable
    from recrawl_client.patience import tls_remedy

    try:
        return client.http.get(path)
    except (httpx.RequestError, httpx.InvalidURL) as error:
        address = str(client.http.base_url).rstrip("/")
        raise Unavailable(f"GET {address}{path}: {error}{tls_remedy(error)}") from error


def _object(answer: Any) -> dict[str, Any]:
    """Return the JSON object of an answer; an empty object for other content."""
    try:
        content = answer.json()
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}
