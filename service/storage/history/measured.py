"""Counts of all pages by steps, with the budget of each: the contract, and the shared SQL."""

from abc import abstractmethod
from datetime import datetime
from typing import NamedTuple

from typing_extensions import override

from service.model.history import ALL_HOSTS
from service.storage.dialect import Dialect, Subject


class MeasuredStep(NamedTuple):
    """A step of the history of all pages; None where nobody measured at its end."""

    at: datetime
    """Start of the step."""
    n_leased: int
    n_reported: int
    n_failed: int
    """Accepted crawls that failed."""
    spent: int
    """Costs of the accepted crawls, in fine units."""
    measured_at: datetime | None
    n_pages: int | None
    n_overdue: int | None
    n_no_content: int | None
    budget: float | None
    """Amount a day of the epoch in force; None before the first."""
    unit: str | None
    """Unit of the budget; None: crawls."""
    n_never_crawled: int | None = None
    n_late: int = 0
    """Crawls that were reported in the step beyond `n_reported` (`model.history.COUNTS`)."""


class MeasuredStatements(Subject):
    """The statement that reads steps."""

    @abstractmethod
    def measured_steps(self, since: datetime) -> list[MeasuredStep]:
        """Return the steps of all pages that begin at an instant or later, ascending."""


MEASURED_STEPS = f"""
SELECT at, n_leased, n_reported, n_failed, spent, measured_at, history.n_pages, n_overdue,
    n_no_content, epochs.bandwidth AS budget, epochs.unit, n_never_crawled, n_late
FROM history LEFT JOIN epochs ON epochs.epoch = history.epoch
WHERE host_id = {ALL_HOSTS} AND at >= %(since)s ORDER BY at
"""


class MeasuredSql(Dialect, MeasuredStatements):
    """The statement that Postgres and SQLite share."""

    @override
    def measured_steps(self, since: datetime) -> list[MeasuredStep]:
        return [MeasuredStep(**row) for row in self.read(MEASURED_STEPS, since=since)]
