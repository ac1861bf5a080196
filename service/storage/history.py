"""The contract of the history: events of commits, parts of steps, and rows of steps.

A store hands the events of a transaction to its counter after the commit. The counter appends parts
of steps about once a second, and waits for nobody. The process that runs epochs merges parts, and
makes rows of the steps that have ended.
"""

from abc import abstractmethod
from datetime import datetime
from typing import Any, NamedTuple

from service.model.freshness import MeasuredPages
from service.model.history import Calibrations, Gauges, HistoryStep, Part, Tally, step_of
from service.model.host_loads import MeasuredLoads
from service.storage.dialect import Subject


class PausedQueues(NamedTuple):
    """Hosts whose host queue is blocked."""

    by_trouble: set[int]
    """host_ids of queues that pause after trouble."""
    by_operator: set[int]
    """host_ids of queues that somebody blocked."""


class StepCalibration(NamedTuple):
    """Predictions of one step and epoch."""

    at: datetime
    epoch: int
    calibrations: Calibrations


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
    def take_parts(self, before: datetime, limit: int) -> list[Part]:
        """Remove and return the oldest parts of the steps that begin before an instant."""

    @abstractmethod
    def add_part(self, part: Part) -> None:
        """Append merged parts."""

    @abstractmethod
    def parts_from(self, since: datetime, limit: int) -> list[Part]:
        """Return parts of the steps from `since` on, at most `limit`, without removing them."""

    @abstractmethod
    def add_to_step(
        self, host_id: int, at: datetime, epoch: int | None, tally: Tally, gauges: Gauges | None
    ) -> None:
        """Add the counts of all hosts of a tally to the row of a host, and replace its gauges."""

    @abstractmethod
    def add_calibrations(self, at: datetime, epoch: int, calibrations: Calibrations) -> None:
        """Add predictions to those of a step and epoch; one process at a time calls this."""

    @abstractmethod
    def steps(
        self, host_id: int, since: datetime, until: datetime, limit: int
    ) -> list[HistoryStep]:
        """Return rows of a host with since <= at < until, ascending, at most `limit`."""

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
