"""The first page: what needs you, how fresh the copies are, what the budget does."""

from collections.abc import Sequence
from typing import NamedTuple

from fastapi import Response

from recrawl_client.wire.history import HistoryRow
from recrawl_client.wire.hosts import HostsAnswer
from service.api.responses.status import encode_state
from service.api.routes import hosts
from service.console.achieved import RANGES, achieved, budget_of, charts, fitting
from service.console.beginning import steps
from service.console.cards import groups
from service.console.visit import Visit
from service.model.errors import InvalidField

PAUSED = 8
"""Maximum number of paused hosts that the page lists."""
LISTED = 12
"""Maximum number of rows of the table of numbers."""


class Pings(NamedTuple):
    """The quality of pings in a range of time."""

    n: int
    precision: float | None
    """Share of the pings that announced a change; None without a judged ping."""
    recall: float | None
    """Share of the changes that a ping announced; None without such a change."""


def show(visit: Visit) -> Response:
    """Show the overview of a range of time; by default the one that fits the history."""
    chosen = visit.request.query_params.get("range") or ""
    if chosen and chosen not in RANGES:
        raise InvalidField("range", f"range is none of {', '.join(RANGES)}; choose one of them")
    chosen, history = (chosen, achieved(visit, chosen)) if chosen else fitting(visit)
    paused = visit.ask(
        HostsAnswer, hosts.list_hosts, request=visit.request, blocked=True, limit=PAUSED
    )
    state = encode_state(visit.service.state.read(), visit.service)
    return visit.page(
        "overview.html",
        chosen=chosen,
        ranges=RANGES,
        budget=budget_of(chosen),
        rows=history.rows[-LISTED:][::-1],
        state=state,
        steps=steps(visit, state),
        groups=groups(visit, state),
        charts=[one for one in charts(history.rows, chosen, state) if one.at],
        pings=pings(history.rows),
        paused=paused,
    )


def pings(rows: Sequence[HistoryRow]) -> Pings:
    """Return the quality of the pings in rows."""
    n_true, n_false, n_missed = (
        sum(getattr(row, name) for row in rows)
        for name in ("n_true_pings", "n_false_pings", "n_missed")
    )
    judged, changes = n_true + n_false, n_true + n_missed
    return Pings(
        sum(row.n_pings for row in rows),
        n_true / judged if judged else None,
        n_true / changes if changes else None,
    )
