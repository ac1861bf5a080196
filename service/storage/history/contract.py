"""The history: events of commits, parts of steps, rows of steps, and the shared SQL.

A store hands the events of a transaction to its counter after the commit. The counter appends parts
of steps about once a second, and waits for nobody. The process that runs epochs merges parts, and
makes rows of the steps that have ended.
"""

from abc import abstractmethod
from dataclasses import fields
from datetime import datetime
from typing import Any, NamedTuple

from typing_extensions import override

from service.model.freshness import MeasuredPages
from service.model.history import (
    ALL_HOSTS,
    COUNTS,
    Calibrations,
    Gauges,
    HistoryStep,
    StepSums,
    Tally,
    merged_calibrations,
    packed,
    packed_calibration,
    step_of,
    unpacked,
    unpacked_calibration,
)
from service.model.host_loads import MeasuredLoads, packed_loads, unpacked_loads
from service.storage.dialect import HOST_QUEUE, IS_HELD, Dialect, Subject
from service.storage.epochs.schedule import BETWEEN, DUE_RATE


class PausedQueues(NamedTuple):
    """Hosts whose host queue is paused, each in one set."""

    by_trouble: set[int]
    """host_ids of queues that only their site pauses."""
    by_operator: set[int]
    """host_ids of queues that an operator pauses."""


class StepCalibration(NamedTuple):
    """Predictions of one step and epoch."""

    at: datetime
    epoch: int
    calibrations: Calibrations


class SummedSteps(NamedTuple):
    """Sums of the rows of a host."""

    first_at: datetime | None
    """Start of the first row; None: there are no rows."""
    counts: tuple[int, ...]
    """Numbers in the order of `COUNTS`."""


class Counted(NamedTuple):
    """Events of one commit."""

    at: datetime
    """Start of their step."""
    events: Any
    """Events in a form that the counter knows."""


class Counter:
    """A receiver of events that keeps none."""

    n_not_compared: int = 0
    """Crawls that no prediction could be compared with, in this process."""

    def add(self, counted: list[Counted]) -> None:
        """Count the events of a transaction that was committed; never wait, never raise."""

    def write(self) -> None:
        """Write what was counted; raise an outage, after which the next call writes it."""

    def close(self) -> None:
        """Write what was counted, if the database answers, before the connections are closed."""


class HistoryStatements(Subject):
    """The statements of the history."""

    counted: list[Counted]
    """Events for the store's counter."""

    def count(self, events: Any) -> None:
        """Count events in the step of the store's time if this transaction commits."""
        self.counted.append(Counted(step_of(self.now()), events))

    @abstractmethod
    def n_parts(self, before: datetime) -> int:
        """Return the number of parts of the steps that begin before an instant."""

    @abstractmethod
    def take_parts(self, before: datetime, limit: int) -> list[StepSums]:
        """Remove and return the oldest parts of the steps that begin before an instant."""

    @abstractmethod
    def add_part(self, part: StepSums) -> None:
        """Append merged parts."""

    @abstractmethod
    def parts_from(self, since: datetime, limit: int) -> list[StepSums]:
        """Return parts of the steps from `since` on, at most `limit`, without removing them."""

    @abstractmethod
    def add_to_step(
        self, host_id: int, at: datetime, epoch: int | None, tally: Tally, gauges: Gauges | None
    ) -> None:
        """Add the counts of all hosts of a tally to the row of a host, and replace its gauges.

        A row keeps its first epoch, because crawls may be reported days later.
        """

    @abstractmethod
    def add_calibrations(self, at: datetime, epoch: int, calibrations: Calibrations) -> None:
        """Add predictions to those of a step and epoch; one process at a time calls this."""

    @abstractmethod
    def steps(
        self, host_id: int, since: datetime, until: datetime, limit: int
    ) -> list[HistoryStep]:
        """Return rows of a host with since <= at < until, ascending, at most `limit`."""

    @abstractmethod
    def sum_steps(self, host_id: int, since: datetime, until: datetime) -> SummedSteps:
        """Return the sums of the rows of a host with since <= at < until."""

    @abstractmethod
    def newest_measured(self) -> HistoryStep | None:
        """Return the newest row of all pages that has gauges."""

    @abstractmethod
    def calibrations(self, since: datetime, until: datetime) -> list[StepCalibration]:
        """Return the predictions of the steps with since <= at < until, ascending."""

    @abstractmethod
    def calibrations_of(self, epoch: int) -> Calibrations:
        """Return the predictions that were made under an epoch, without those of parts."""

    @abstractmethod
    def cut_history(self, before: datetime) -> None:
        """Delete rows of steps before an instant."""

    @abstractmethod
    def measured_pages(self, after: int, last: int) -> MeasuredPages:
        """Return the pages with after < page_id <= last that are not gone, ascending."""

    @abstractmethod
    def save_host_loads(self, measured: MeasuredLoads, cut_before: datetime) -> None:
        """Save loads of all hosts, and delete those that were measured before an instant."""

    @abstractmethod
    def host_loads(self, measured_at: datetime | None = None) -> MeasuredLoads | None:
        """Return the loads measured at an instant, None: the newest; None if there are none."""

    @abstractmethod
    def paused_queues(self, now: datetime) -> PausedQueues:
        """Return the hosts whose host queue is blocked now."""


GAUGES = tuple(f.name for f in fields(Gauges) if f.name != "n_assumed")
ROW = ("host_id", "at", "epoch", *COUNTS, *GAUGES)

ADD_PART = "INSERT INTO history_parts (at, epoch, sums) VALUES (%(at)s, %(epoch)s, %(sums)s)"
N_PARTS = "SELECT count(*) FROM history_parts WHERE at < %(before)s"
TAKE_PARTS = """
DELETE FROM history_parts WHERE part IN (
    SELECT part FROM history_parts WHERE at < %(before)s ORDER BY part LIMIT %(limit)s
)
RETURNING at, epoch, sums
"""
PARTS_FROM = """
SELECT at, epoch, sums FROM history_parts WHERE at >= %(since)s ORDER BY part LIMIT %(limit)s
"""
ADD_TO_STEP = f"""
INSERT INTO history ({", ".join(ROW)}) VALUES ({", ".join(f"%({name})s" for name in ROW)})
ON CONFLICT (host_id, at) DO UPDATE SET
    {", ".join(f"{name} = history.{name} + excluded.{name}" for name in COUNTS)},
    epoch = coalesce(history.epoch, excluded.epoch),
    {", ".join(f"{n} = coalesce(excluded.{n}, history.{n})" for n in GAUGES)}
"""
STEPS = f"""
SELECT {", ".join(ROW)} FROM history
WHERE host_id = %(host_id)s AND at >= %(since)s AND at < %(until)s ORDER BY at LIMIT %(limit)s
"""
# on Postgres a sum of bigint is numeric
SUMS = ", ".join(f"CAST(coalesce(sum({name}), 0) AS bigint) AS {name}" for name in COUNTS)
SUM_STEPS = f"""
SELECT min(at) AS at, {SUMS}
FROM history WHERE host_id = %(host_id)s AND at >= %(since)s AND at < %(until)s
"""
NEWEST_MEASURED = f"""
SELECT {", ".join(ROW)} FROM history WHERE host_id = {ALL_HOSTS} AND measured_at IS NOT NULL
ORDER BY at DESC LIMIT 1
"""
CALIBRATIONS = """
SELECT at, epoch, estimator, sums FROM calibrations WHERE at >= %(since)s AND at < %(until)s
ORDER BY at, epoch
"""
CALIBRATIONS_OF = """
SELECT at, epoch, estimator, sums FROM calibrations WHERE epoch = %(epoch)s ORDER BY at
"""
STORED_CALIBRATION = """
SELECT sums FROM calibrations
WHERE at = %(at)s AND epoch = %(epoch)s AND estimator = %(estimator)s
"""
SAVE_CALIBRATION = """
INSERT INTO calibrations (at, epoch, estimator, sums)
VALUES (%(at)s, %(epoch)s, %(estimator)s, %(sums)s)
ON CONFLICT (at, epoch, estimator) DO UPDATE SET sums = excluded.sums
"""
CUT = "DELETE FROM {table} WHERE at < %(before)s"
SAVE_LOADS = """
INSERT INTO host_loads (measured_at, loads) VALUES (%(measured_at)s, %(loads)s)
ON CONFLICT (measured_at) DO UPDATE SET loads = excluded.loads
"""
CUT_LOADS = "DELETE FROM host_loads WHERE measured_at < %(before)s"
LOADS = "SELECT measured_at, loads AS content FROM host_loads"
LOADS_AT = f"{LOADS} WHERE measured_at = %(measured_at)s"
NEWEST_LOADS = f"{LOADS} ORDER BY measured_at DESC LIMIT 1"
PAUSED = f"""
SELECT hosts.host_id, coalesce(host_queues.blocked_until > %(now)s, false) FROM hosts
JOIN host_queues ON host_queues.queue_id = {HOST_QUEUE}
WHERE host_queues.blocked_until > %(now)s OR host_queues.paused_until > %(now)s
"""
MEASURED = f"""
SELECT page_states.page_id, created_at, last_crawl_at, requested_at, gone,
    coalesce(n_failures, 0) AS n_failures, coalesce(outcome, 0) AS outcome,
    coalesce(hops, 0) AS hops, coalesce(retry_rate, 0.0) AS retry_rate, interval_factor,
    {DUE_RATE} AS due_rate, {IS_HELD} AS held, observability,
    page_states.host_id, url_group, {{observed_at}} AS last_observed_at, last_interval,
    n_observations, n_changes, coalesce(n_pings, 0) AS n_pings,
    coalesce(recent_pings, 0.0) AS recent_pings, pings_since,
    coalesce(pings_since_crawl, 0) AS pings_since_crawl, last_ping_at,
    coalesce(real_pings, 0.0) AS real_pings, coalesce(false_pings, 0.0) AS false_pings,
    coalesce(trust, 0.0) AS trust, estimate, born_at,
    CASE WHEN shift IS NULL THEN urgency END AS urgency,
    coalesce(observed_ratio, 0.0) AS observed_ratio, importance
FROM page_states
JOIN pages ON pages.page_id = page_states.page_id AND {BETWEEN.format(table="pages")}
{{schedule_between: schedule, page_states.page_id, %(epoch)s}}
WHERE {BETWEEN.format(table="page_states")} AND NOT gone
ORDER BY page_states.page_id
"""


class HistorySql(Dialect, HistoryStatements):
    """The statements of the history."""

    @override
    def n_parts(self, before: datetime) -> int:
        return int(self.scalar(N_PARTS, before=before))

    @override
    def take_parts(self, before: datetime, limit: int) -> list[StepSums]:
        return list(map(_part, self.read(TAKE_PARTS, before=before, limit=limit)))

    @override
    def add_part(self, part: StepSums) -> None:
        self.run(ADD_PART, at=part.at, epoch=part.epoch, sums=packed(part.tally))

    @override
    def parts_from(self, since: datetime, limit: int) -> list[StepSums]:
        return list(map(_part, self.read(PARTS_FROM, since=since, limit=limit)))

    @override
    def add_to_step(
        self, host_id: int, at: datetime, epoch: int | None, tally: Tally, gauges: Gauges | None
    ) -> None:
        values = {name: getattr(gauges, name, None) for name in GAUGES}
        counts = dict(zip(COUNTS, tally.counts.sum(axis=0).tolist(), strict=True))
        self.run(ADD_TO_STEP, host_id=host_id, at=at, epoch=epoch, **counts, **values)

    @override
    def add_calibrations(self, at: datetime, epoch: int, calibrations: Calibrations) -> None:
        for estimator, sums in calibrations.items():
            place: dict[str, Any] = {"at": at, "epoch": epoch, "estimator": estimator}
            stored = self.scalar(STORED_CALIBRATION, **place)
            both = sums if stored is None else sums.plus(unpacked_calibration(stored))
            self.run(SAVE_CALIBRATION, **place, sums=packed_calibration(both))

    @override
    def steps(
        self, host_id: int, since: datetime, until: datetime, limit: int
    ) -> list[HistoryStep]:
        rows = self.read(STEPS, host_id=host_id, since=since, until=until, limit=limit)
        return list(map(_step, rows))

    @override
    def sum_steps(self, host_id: int, since: datetime, until: datetime) -> SummedSteps:
        (row,) = self.read(SUM_STEPS, host_id=host_id, since=since, until=until)
        return SummedSteps(row["at"], tuple(int(row[name]) for name in COUNTS))

    @override
    def newest_measured(self) -> HistoryStep | None:
        rows = self.read(NEWEST_MEASURED)
        return _step(rows[0]) if rows else None

    @override
    def calibrations(self, since: datetime, until: datetime) -> list[StepCalibration]:
        rows = self.read(CALIBRATIONS, since=since, until=until)
        return [StepCalibration(row["at"], row["epoch"], _sums(row)) for row in rows]

    @override
    def calibrations_of(self, epoch: int) -> Calibrations:
        return merged_calibrations(map(_sums, self.read(CALIBRATIONS_OF, epoch=epoch)))

    @override
    def cut_history(self, before: datetime) -> None:
        for table in ("history", "calibrations"):
            self.run(CUT.format(table=table), before=before)

    @override
    def measured_pages(self, after: int, last: int) -> MeasuredPages:
        epoch = self.number_in_force()
        return self.read_measured(MEASURED, after=after, last=last, epoch=epoch)

    @abstractmethod
    def read_measured(self, statement: str, **parameters: Any) -> MeasuredPages:
        """Return the rows of `MEASURED` as columns."""

    @override
    def save_host_loads(self, measured: MeasuredLoads, cut_before: datetime) -> None:
        self.run(CUT_LOADS, before=cut_before)
        self.run(SAVE_LOADS, measured_at=measured.measured_at, loads=packed_loads(measured))

    @override
    def host_loads(self, measured_at: datetime | None = None) -> MeasuredLoads | None:
        values = {} if measured_at is None else {"measured_at": measured_at}
        rows = self.read(LOADS_AT if values else NEWEST_LOADS, **values)
        return unpacked_loads(**rows[0]) if rows else None

    @override
    def paused_queues(self, now: datetime) -> PausedQueues:
        paused = PausedQueues(set(), set())
        for host_id, by_operator in self.run(PAUSED, now=now):
            (paused.by_operator if by_operator else paused.by_trouble).add(host_id)
        return paused


def _part(row: dict[str, Any]) -> StepSums:
    return StepSums(row["at"], row["epoch"], unpacked(row["sums"]))


def _sums(row: dict[str, Any]) -> Calibrations:
    return {row["estimator"]: unpacked_calibration(row["sums"])}


def _step(row: dict[str, Any]) -> HistoryStep:
    counts = tuple(row[name] for name in COUNTS)
    values = {name: row[name] for name in GAUGES}
    gauges = None if row["measured_at"] is None else Gauges(**values)
    return HistoryStep(at=row["at"], epoch=row["epoch"], counts=counts, gauges=gauges)
