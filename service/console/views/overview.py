"""The first page: what needs you, what the fleet has achieved, how good its forecasts are."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from itertools import pairwise
from typing import NamedTuple

from fastapi import Response

from recrawl_client.wire.history import HistoryAnswer, HistoryRow
from recrawl_client.wire.hosts import HostsAnswer
from service.api.responses.history import encode_row
from service.api.responses.status import encode_state
from service.api.routes import history, hosts
from service.console.charts import Dot, Picture, Shape, Tick, line
from service.console.series import SeriesLine, TimeSeries
from service.console.visit import Visit
from service.core.calibration import PredictionGroups, calibration
from service.history.reading import read_rows
from service.model.errors import InvalidField
from service.model.history import ALL_HOSTS, Calibrations, merged_calibrations

RANGES = {
    "1d": ("a day", timedelta(days=1), 600),
    "7d": ("a week", timedelta(days=7), 3_600),
    "30d": ("a month", timedelta(days=30), 86_400),
}
"""Words, length and step (seconds) of the ranges of time."""
DAY_S = 86_400
MOST_ROWS = 200
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
    """Show the overview of a range of time."""
    chosen = visit.request.query_params.get("range") or "1d"
    if chosen not in RANGES:
        raise InvalidField("range", f"range is none of {', '.join(RANGES)}; choose one of them")
    (rows, forecasts), budget = achieved(visit, chosen), budget_of(chosen)
    paused = visit.ask(
        HostsAnswer, hosts.list_hosts, request=visit.request, blocked=True, limit=PAUSED
    )
    state = encode_state(visit.service.state.read(), visit.service)
    return visit.page(
        "overview.html",
        chosen=chosen,
        ranges=RANGES,
        budget=budget,
        rows=rows[-LISTED:][::-1],
        state=state,
        charts=charts(rows, budget) if rows else [],
        reliability=reliability(forecasts),
        pings=pings(rows),
        paused=paused,
    )


def achieved(visit: Visit, chosen: str) -> tuple[list[HistoryRow], Calibrations]:
    """Return the rows of all pages in a range of time, oldest first, and their predictions.

    The endpoint would merge the bins of the predictions, from which other errors follow.
    """
    _, length, step_s = RANGES[chosen]
    until, step = visit.now + timedelta(microseconds=1), timedelta(seconds=step_s)
    with visit.service.store.begin(write=False) as tx:
        rows, _ = read_rows(tx, ALL_HOSTS, visit.now - length, until, step, MOST_ROWS)
    unit = visit.service.budget.unit
    return [encode_row(row, unit) for row in rows], merged_calibrations(
        row.calibrations for row in rows
    )


def rows_of(visit: Visit, chosen: str, host: str) -> list[HistoryRow]:
    """Return the rows of a host in a range of time, oldest first."""
    _, length, step_s = RANGES[chosen]
    answer = visit.ask(
        HistoryAnswer,
        history.get_history,
        request=visit.request,
        since=visit.now - length,
        step_s=step_s,
        host=host,
        limit=MOST_ROWS,
    )
    return answer.items


def series_of(
    rows: Sequence[HistoryRow],
    title: str,
    unit: str,
    *lines: tuple[str, str, str | Callable[[HistoryRow], float | None]],
) -> TimeSeries:
    """Return a series of rows; each line has a name, a colour and a field, or a function of a row.

    A row that still runs is left out.
    """
    whole = [row for row in rows if row.complete] or list(rows)
    began = [new.at for old, new in pairwise(whole) if new.epoch != old.epoch]
    own = [
        SeriesLine(name, colour, [f(row) if callable(f) else getattr(row, f) for row in whole])
        for name, colour, f in lines
    ]
    return TimeSeries(title=title, at=[row.at for row in whole], unit=unit, lines=own, epochs=began)


def budget_of(chosen: str) -> Callable[[HistoryRow], float | None]:
    """Return a function that returns the crawls that the bandwidth allows in a row.

    `n_asked` would count the measured steps of a row alone.
    """
    days = RANGES[chosen][2] / DAY_S
    return lambda row: None if row.bandwidth is None else row.bandwidth * days


def charts(
    rows: Sequence[HistoryRow], budget: Callable[[HistoryRow], float | None]
) -> list[TimeSeries]:
    """Return the series of the page."""
    series = partial(series_of, rows)
    shown = [
        series(
            "Fresh copies",
            "%",
            ("by importance", "a", "fresh_share"),
            ("each page alike", "c", "fresh_share_plain"),
        ),
        series(
            "Budget: crawls in each step",
            "",
            ("asked", "c", budget),
            ("leased", "a", "n_leased"),
            ("reported", "d", "n_reported"),
            ("wasted on unchanged pages", "b", "n_wasted"),
        ),
        series("Spent in each step", "", ("by the reports of crawls", "a", "spent")),
        series(
            "Pages behind",
            "",
            ("overdue", "b", "n_overdue"),
            ("never crawled", "c", "n_never_crawled"),
            ("without content", "d", "n_no_content"),
        ),
    ]
    if any(row.n_pings or row.n_missed for row in rows):
        shown.append(
            series(
                "Pings in each step",
                "",
                ("announced a change", "d", "n_true_pings"),
                ("false", "b", "n_false_pings"),
                ("changes that none announced", "c", "n_missed"),
            )
        )
    return shown


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


class Reliability(NamedTuple):
    """The forecasts of an estimator, compared with the crawls that followed."""

    estimator: str
    n: int
    scores: PredictionGroups
    picture: Picture


def reliability(calibrations: Calibrations) -> list[Reliability]:
    """Return the reliability of each estimator, with the errors that the API has."""
    scored = []
    for estimator, sums in sorted(calibrations.items()):
        scores = calibration(sums)
        if scores is not None:
            picture = reliability_picture(scores)
            scored.append(Reliability(estimator, int(sums.n.sum()), scores, picture))
    return scored


def reliability_picture(scores: PredictionGroups) -> Picture:
    """Return the share of changes that crawls found over the predicted probability."""
    picture = Picture(
        title="Reliability of the forecasts",
        description=f"crawls found a change as often as forecast to {scores.expected_error:.1%} "
        "on average; points on the diagonal are exact",
        width=480,
        height=300,
        x_label="forecast probability of a change",
    )
    across, up = picture.across(0.0, 1.0), picture.up(0.0, 1.0)
    picture.shapes = [Shape("line-even", line([(across(0), up(0)), (across(1), up(1))]))]
    most = int(scores.n_predictions.max())
    columns = (scores.expected, scores.observed, scores.n_predictions)
    for expected, observed, n in zip(*(column.tolist() for column in columns), strict=True):
        title = f"forecast {expected:.1%}, found {observed:.1%} of {n:,} crawls"
        size = 2.5 + 4.5 * (n / most) ** 0.5
        picture.dots.append(Dot("fill-a", across(expected), up(observed), size, title))
    marks = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    picture.x_ticks = [Tick(across(share), f"{share:.0%}") for share in marks]
    picture.y_ticks = [Tick(up(share), f"{share:.0%}") for share in marks]
    return picture
