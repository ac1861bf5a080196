"""The history of a range of time: its rows, and their series for charts."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from itertools import pairwise
from typing import NamedTuple

from recrawl_client.wire.history import HistoryAnswer, HistoryRow
from recrawl_client.wire.status import StatusAnswer
from service.api.responses.history import encode_row
from service.api.routes import history
from service.console.series import SeriesLine, TimeSeries
from service.console.visit import Visit
from service.history.reading import floor, read_rows
from service.model.history import ALL_HOSTS, Calibrations, merged_calibrations

DAY_S = 86_400
MOST_ROWS = 200
ENOUGH = 0.25
"""Share of the rows of a range of time from which the range makes a chart."""

Value = str | Callable[[HistoryRow], float | None]
"""A field of a row, or a function of a row."""


class Range(NamedTuple):
    """A range of time until now, and its rows."""

    words: str
    length: timedelta
    step_s: int
    """Length of a row, seconds."""
    step: str
    """The same in words."""


RANGES = {
    "1d": Range("a day", timedelta(days=1), 600, "ten minutes"),
    "7d": Range("a week", timedelta(days=7), 3_600, "hour"),
    "30d": Range("a month", timedelta(days=30), DAY_S, "day"),
}


class Achieved(NamedTuple):
    """Rows of all pages, oldest first, and the predictions of their time."""

    rows: list[HistoryRow]
    forecasts: Calibrations


def achieved(visit: Visit, chosen: str) -> Achieved:
    """Return the rows of all pages in a range of time, and their predictions.

    The endpoint would merge the bins of the predictions, from which other errors follow.
    """
    wanted = RANGES[chosen]
    until, step = visit.now + timedelta(microseconds=1), timedelta(seconds=wanted.step_s)
    with visit.service.store.begin(write=False) as tx:
        rows, _ = read_rows(tx, ALL_HOSTS, visit.now - wanted.length, until, step, MOST_ROWS)
        unit_since = tx.pace_unit_since()
    unit = visit.service.budget.unit
    forecasts = merged_calibrations(row.calibrations for row in rows)
    return Achieved([encode_row(row, unit, unit_since) for row in rows], forecasts)


def fitting(visit: Visit) -> tuple[str, Achieved]:
    """Return the shortest range of time with enough rows, else the one with most, and its rows.

    A fleet that reports once a day, or a demo in days, has a few rows in a day.
    """
    by_name: dict[str, Achieved] = {}
    for name, each in RANGES.items():
        by_name[name] = achieved(visit, name)
        if len(by_name[name].rows) >= ENOUGH * each.length.total_seconds() / each.step_s:
            return name, by_name[name]
    best = max(by_name, key=lambda name: len(by_name[name].rows))
    return best, by_name[best]


def rows_of(visit: Visit, chosen: str, host: str, step_s: int) -> list[HistoryRow]:
    """Return the rows of a host in a range of time, oldest first."""
    answer = visit.ask(
        HistoryAnswer,
        history.get_history,
        request=visit.request,
        since=visit.now - RANGES[chosen].length,
        step_s=step_s,
        host=host,
        limit=MOST_ROWS,
    )
    return answer.items


def counts(
    rows: Sequence[HistoryRow], title: str, *lines: tuple[str, str, Value], nothing: str
) -> TimeSeries:
    """Return the series of sums over the rows; a row that still runs is left out.

    While no other row has any, the first crawls show at once.
    """
    whole = [row for row in rows if row.complete]
    counted = [field for *_, field in lines if isinstance(field, str)]  # not the budget
    if not any(getattr(row, field) for row in whole for field in counted):
        whole = list(rows)
    return _series(whole, [row.at for row in whole], title, lines, nothing=nothing)


def gauges(
    rows: Sequence[HistoryRow],
    state: StatusAnswer,
    title: str,
    *lines: tuple[str, str, str],
    unit: str = "",
    nothing: str,
) -> TimeSeries:
    """Return the series of what was measured at the end of each row, the running one included.

    The last point is the present state, if it was counted now: so charts and cards agree.
    """
    is_now = state.counted == "now"
    measured = [row for row in rows if row.measured_at is not None]
    if is_now:
        measured = [row for row in measured if row.measured_at != state.at]
    at = [row.measured_at or row.at for row in measured]
    series = _series(measured, at, title, lines, unit=unit, nothing=nothing)
    if not is_now:
        return series
    own = [
        one._replace(values=[*one.values, getattr(state, field)])
        for one, (*_, field) in zip(series.lines, lines, strict=True)
    ]
    return replace(series, at=[*at, state.at], lines=own)


def _series(
    rows: Sequence[HistoryRow],
    at: Sequence[datetime],
    title: str,
    lines: Sequence[tuple[str, str, Value]],
    *,
    unit: str = "",
    nothing: str,
) -> TimeSeries:
    own = [SeriesLine(name, colour, [_value(row, f) for row in rows]) for name, colour, f in lines]
    pairs = zip(at[1:], pairwise(rows), strict=True)
    began = [each for each, (old, new) in pairs if new.epoch != old.epoch]
    return TimeSeries(title=title, at=at, unit=unit, lines=own, epochs=began, nothing=nothing)


def _value(row: HistoryRow, value: Value) -> float | None:
    number: float | None = value(row) if callable(value) else getattr(row, value)
    return number


def bars_of(
    rows: Sequence[HistoryRow],
    title: str,
    *lines: tuple[str, str, str],
    since: datetime,
    until: datetime,
    step_s: int,
) -> TimeSeries:
    """Return counts of each step between two instants as bars; a step without a row has 0."""
    step = timedelta(seconds=step_s)
    by_start = {row.at: row for row in rows}
    start = floor(since, step) + step
    at = [start + i * step for i in range((until - start) // step + 1)]
    shown = [by_start.get(each) for each in at]
    own = [
        SeriesLine(name, colour, [0 if row is None else getattr(row, field) for row in shown])
        for name, colour, field in lines
    ]
    return TimeSeries(title=title, at=at, lines=own, step_s=step_s)


def budget_of(chosen: str) -> Callable[[HistoryRow], float | None]:
    """Return a function that returns the crawls that the bandwidth allows in a row.

    `n_asked` would count the measured steps of a row alone.
    """
    days = RANGES[chosen].step_s / DAY_S
    return lambda row: None if row.bandwidth is None else row.bandwidth * days


def charts(rows: Sequence[HistoryRow], chosen: str, state: StatusAnswer) -> list[TimeSeries]:
    """Return the series of the overview: freshness first, then the budget, then what is behind."""
    each = RANGES[chosen].step
    counted, measured = partial(counts, rows), partial(gauges, rows, state)
    shown = [
        measured(
            "Fresh copies",
            ("by importance", "a", "fresh_share"),
            ("each page alike", "c", "fresh_share_plain"),
            unit="%",
            nothing="Not known yet: the shares begin when a page is crawled a second time.",
        ),
        counted(
            f"Crawls, each {each}",
            ("allowed by the budget", "c", budget_of(chosen)),
            ("leased", "a", "n_leased"),
            ("reported", "d", "n_reported"),
            ("found no change", "b", "n_wasted"),
            nothing="No crawl in this time.",
        ),
        measured(
            "Pages behind",
            ("overdue", "b", "n_overdue"),
            ("never crawled", "c", "n_never_crawled"),
            ("without content", "d", "n_no_content"),
            nothing="No page is behind.",
        ),
    ]
    if any(row.spent for row in rows):
        unit = ("by the reports of crawls", "a", "spent")
        shown.append(counted(f"Spent, each {each}", unit, nothing=""))
    if any(row.n_pings or row.n_missed for row in rows):
        shown.append(
            counted(
                f"Pings, each {each}",
                ("announced a change", "d", "n_true_pings"),
                ("false", "b", "n_false_pings"),
                ("changes that none announced", "c", "n_missed"),
                nothing="No ping was judged in this time.",
            )
        )
    return shown
