"""Reading of the history: rows of ten minutes joined to longer ones, the running step included."""

from collections import defaultdict
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import NamedTuple

from service.model.arrays import UNIX_ZERO
from service.model.history import (
    ALL_HOSTS,
    COUNTS,
    STEP,
    Calibrations,
    Gauges,
    HistoryStep,
    StepSums,
    merged_calibrations,
    step_of,
)
from service.storage import Transaction

DAY = timedelta(days=1)
MOST_STEPS = 20_000
"""Maximum number of steps that one reading joins, unless a single row has more."""
MOST_PARTS = 2_000
"""Maximum number of parts of running steps that one reading adds up, more than usual."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A row of an answer."""

    at: datetime
    """Start of the row."""
    complete: bool
    """False while the row's last step runs, or waits for its sums."""
    epoch: int | None
    counts: dict[str, int]
    gauges: Gauges | None
    """Gauges of the last step of the row that has some."""
    n_asked: float | None
    """Crawls that the budget allows within the measured steps of the row; None: none measured."""
    calibrations: Calibrations


def read_rows(
    tx: Transaction, host_id: int, since: datetime, until: datetime, step: timedelta, limit: int
) -> tuple[list[Row], datetime | None]:
    """Return the rows of a host, or of all pages, at most `limit`, and where to go on; None: end.

    Rows begin at multiples of `step` since 1970. A row without any step is left out.
    """
    begin, end = floor(since, step), ceil(until, step)
    if begin >= end:
        return [], None
    each = step // STEP
    # one step more shows whether rows follow; a single row is read whole
    most = 1 + max(min(limit * each, MOST_STEPS), each)
    stored = tx.steps(host_id, begin, end, most)
    following = None
    if len(stored) == most:  # the last row may lack steps
        following = end = floor(stored[-1].at, step)
        stored = [one for one in stored if one.at < end]
    rows = _rows(tx, host_id, stored, begin, end, step)
    if len(rows) > limit:
        following = rows[limit].at
    return rows[:limit], following


class Counts(NamedTuple):
    """Counts of all hosts within a time."""

    first_at: datetime | None
    """Start of the first step that has a row or a part; None: there is none."""
    counts: dict[str, int]


def counts_between(tx: Transaction, since: datetime, until: datetime) -> Counts:
    """Return the counts of the steps with since <= at < until, the running step included."""
    rows = tx.sum_steps(ALL_HOSTS, since, until)
    parts = [part for part in tx.parts_from(since, MOST_PARTS) if part.at < until]
    running = _running(parts, ALL_HOSTS)
    sums = (sum(column) for column in zip(rows.counts, *(s.counts for s in running), strict=True))
    at = [each.at for each in running]
    at += [] if rows.first_at is None else [rows.first_at]
    return Counts(min(at, default=None), dict(zip(COUNTS, sums, strict=True)))


def floor(at: datetime, step: timedelta) -> datetime:
    """Return the last multiple of a step that is not after an instant."""
    return at - (at - UNIX_ZERO) % step


def ceil(at: datetime, step: timedelta) -> datetime:
    """Return the first multiple of a step that is not before an instant."""
    return at + (UNIX_ZERO - at) % step


def _rows(
    tx: Transaction,
    host_id: int,
    stored: list[HistoryStep],
    begin: datetime,
    end: datetime,
    step: timedelta,
) -> list[Row]:
    """Return the rows between two multiples of a step, of stored steps and of running ones."""
    now = tx.now()
    parts = tx.parts_from(begin, MOST_PARTS)
    parts = [part for part in parts if part.at < end]
    calibrations: dict[datetime, list[Calibrations]] = defaultdict(list)
    if host_id == ALL_HOSTS:
        for each in tx.calibrations(begin, end):
            calibrations[floor(each.at, step)].append(each.calibrations)
        for part in parts:
            calibrations[floor(part.at, step)].append(part.tally.calibrations)
    by_row: dict[datetime, list[HistoryStep]] = defaultdict(list)
    for one in [*stored, *_running(parts, host_id)]:
        by_row[floor(one.at, step)].append(one)
    # a step stays open while a part of it is not in its row
    open_from, runs = min([part.at for part in parts] + [step_of(now)]), floor(now, step)
    rows = [
        _row(at, complete=at + step <= open_from, steps=steps, calibrations=calibrations[at])
        for at, steps in sorted(by_row.items())
    ]
    in_force = tx.number_in_force() or None
    return [replace(row, epoch=in_force) if row.at == runs else row for row in rows]


def _running(parts: list[StepSums], host_id: int) -> list[HistoryStep]:
    """Return steps from parts that are not in rows yet."""
    steps = []
    for part in parts:
        counts = part.tally.counts
        if host_id != ALL_HOSTS:
            counts = counts[part.tally.host_id == host_id]
        if len(counts):
            sums = tuple(counts.sum(axis=0).tolist())
            steps.append(HistoryStep(at=part.at, epoch=part.epoch or None, counts=sums))
    return steps


def _row(
    at: datetime, *, complete: bool, steps: list[HistoryStep], calibrations: list[Calibrations]
) -> Row:
    sums = (sum(column) for column in zip(*(step.counts for step in steps), strict=True))
    gauges = [step.gauges for step in steps if step.gauges is not None]
    asked = sum((_rate(each) * (STEP / DAY) for each in gauges), 0.0)
    return Row(
        at=at,
        complete=complete,
        epoch=max((step.epoch or 0 for step in steps), default=0) or None,
        counts=dict(zip(COUNTS, sums, strict=True)),
        gauges=gauges[-1] if gauges else None,
        n_asked=asked if gauges else None,
        calibrations=merged_calibrations(calibrations),
    )


def _rate(gauges: Gauges) -> float:
    return gauges.asked_rate if gauges.bandwidth is None else gauges.bandwidth


def calibrations_of(tx: Transaction, epoch: int) -> Calibrations:
    """Return the predictions that were made under an epoch, the running step included."""
    parts = tx.parts_from(UNIX_ZERO, MOST_PARTS)
    running = [part.tally.calibrations for part in parts if part.epoch == epoch]
    return merged_calibrations([tx.calibrations_of(epoch), *running])


def newest(tx: Transaction) -> Row | None:
    """Return the newest step of all pages that was measured; None: none yet."""
    step = tx.newest_measured()
    if step is None:
        return None
    read = tx.calibrations(step.at, step.at + STEP)
    return _row(step.at, complete=True, steps=[step], calibrations=[r.calibrations for r in read])
