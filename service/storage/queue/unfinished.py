"""Leases that ended without a report: the contract, and the SQL that both databases share.

A row of the queue counts the leases in a row that ended without a report (`n_unfinished`). The row
keeps the worker, the start, the end and the kind of end (`ending`) of the last one. In a row that
`waits`, `next_at` is no lower bound but the earliest next lease. `enqueue` lowers it only if the
page was crawled since the last lease began (`leased_at`), or after `lift_waits`. The rule is in
`leases.unfinished`.

An index has the rows with a count alone, which are few. Another has the rows with a worker: their
leases run, or ended without a report.
"""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from service.model.arrays import INSTANT, NO_TIME, Bools, Codes, Columns, Instants, Ints, instant
from service.model.unfinished import SET_ASIDE_AFTER
from service.storage.dialect import Dialect, Subject
from service.storage.epochs.schedule import MOST_PAGE_ID, MOST_SCANNED
from service.storage.queue.columns import LeaseTokens


@dataclass(frozen=True, slots=True, kw_only=True)
class LastLeases(Columns):
    """(N,) last leases of pages, by ascending page_id: of those that run, or ended unreported."""

    page_id: Ints
    n_unfinished: Ints
    """Leases in a row that ended without a report, as counted so far."""
    ending: Codes
    """End of the last one that was counted (`Ending`); 0: none."""
    leased_at: Instants
    ends_at: Instants
    next_at: Instants
    """Earliest next lease, where none is open."""
    wanted_at: Instants
    """Newest request of the page; NaT: none."""
    is_open: Bools
    """True if the lease runs, or has expired without being counted."""
    worker: NDArray[np.object_]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnfinishedRows(Columns):
    """(N,) rows of the queue to write, whose leases ended without a report."""

    page_id: Ints
    next_at: Instants
    n_unfinished: Ints
    ending: Codes
    ended_at: Instants
    requested: Bools
    """True if the page comes before the others of its host, as a requested page does."""
    waits: Bools
    """True if `next_at` is the end of a wait."""


class WorkerLeases(NamedTuple):
    """Running leases of a worker, by ascending page_id."""

    tokens: LeaseTokens
    url: list[str]


class WorkerCounts(NamedTuple):
    """A worker in the queue."""

    worker: str
    n_running: int
    """Leases that run."""
    n_expired: int
    """Pages whose last lease this worker let expire, and that nobody has reported since."""
    n_returned: int
    n_refused: int

    @property
    def n_lost(self) -> int:
        """Pages whose last lease this worker lost, in whatever way."""
        return self.n_expired + self.n_returned + self.n_refused


class UnfinishedStatements(Subject):
    """The part of a transaction that works on leases that ended without a report."""

    @abstractmethod
    def last_leases(self, page_id: Ints) -> LastLeases:
        """Return the last leases of those of these pages that have one in the queue."""

    @abstractmethod
    def save_unfinished(self, rows: UnfinishedRows) -> None:
        """End the leases of locked rows without a report, and write their counts."""

    @abstractmethod
    def forget_unfinished(self, page_id: Ints) -> None:
        """Set the counts of locked rows to 0; open leases stay."""

    @abstractmethod
    def ask_waiting(self, page_id: Ints) -> Callable[[], Ints]:
        """Return a function that returns those of these pages with a count, ascending.

        The transaction locks the states of the same pages before it calls the function: Postgres
        reads the answer with them.
        """

    @abstractmethod
    def lift_waits(self, page_id: Ints) -> None:
        """Let `enqueue` lower the bounds of pages with a request newer than their last lease.

        Pages that are set aside wait on.
        """

    @abstractmethod
    def leases_of(self, worker: str, after: int, now: datetime) -> tuple[WorkerLeases, int | None]:
        """Return the running leases of a worker on the next pages, and where to go on.

        The method scans at most `MOST_SCANNED` rows of the queue; None is the end.
        """

    @abstractmethod
    def workers(self, now: datetime, limit: int) -> list[WorkerCounts]:
        """Return workers of the queue, at most `limit`, those first that lost most leases."""


NEWEST_REQUEST = "coalesce(renewed_at, requested_at)"
LAST_LEASES = f"""
SELECT page_id, coalesce(n_unfinished, 0) AS n_unfinished, coalesce(ending, 0) AS ending,
    leased_at, expires_at, next_at, token IS NOT NULL AS is_open, coalesce(worker, '') AS worker,
    (SELECT {NEWEST_REQUEST} FROM page_states WHERE page_states.page_id = due_pages.page_id)
        AS requested_at
FROM due_pages WHERE page_id {{among_ids}}
    AND (token IS NOT NULL OR n_unfinished IS NOT NULL)
ORDER BY page_id
"""
WAITING_AMONG = """
SELECT page_id FROM due_pages WHERE n_unfinished IS NOT NULL
    AND page_id {among_ids} ORDER BY page_id
"""
"""Statement for the index that has the rows with a count alone."""
FORGET_UNFINISHED = """
UPDATE due_pages SET n_unfinished = NULL, ending = NULL, waits = NULL
WHERE page_id IN (SELECT value FROM {ids})
"""
LIFT_WAITS = f"""
WITH locked AS (
    SELECT page_id FROM due_pages WHERE page_id IN (SELECT value FROM {{ids}}) AND EXISTS (
        SELECT 1 FROM due_pages AS waiting
        WHERE n_unfinished IS NOT NULL AND waiting.page_id {{among_ids}}
    ) ORDER BY page_id {{lock_rows}}
)
UPDATE due_pages SET waits = NULL
FROM locked JOIN page_states ON page_states.page_id = locked.page_id
WHERE due_pages.page_id = locked.page_id AND waits AND token IS NULL
    AND {NEWEST_REQUEST} > due_pages.leased_at AND n_unfinished < {SET_ASIDE_AFTER}
"""
"""Statement that locks all rows where any waits, so that `enqueue` locks no row before them."""
LAST_OF_BLOCK = """
SELECT page_id FROM due_pages WHERE page_id > %(after)s ORDER BY page_id LIMIT 1 OFFSET %(n)s
"""
LEASES_OF = """
SELECT due_pages.page_id, token, url FROM due_pages
JOIN pages ON pages.page_id = due_pages.page_id
WHERE due_pages.page_id > %(after)s AND due_pages.page_id <= %(last)s
    AND token IS NOT NULL AND expires_at > %(now)s AND worker = %(worker)s
ORDER BY due_pages.page_id
"""
EXPIRED = "token IS NOT NULL AND expires_at <= %(now)s"
"""Condition of a lease that expired and was not counted."""
WORKERS = f"""
SELECT * FROM (
    SELECT worker, count(*) FILTER (WHERE token IS NOT NULL AND expires_at > %(now)s) AS n_running,
        count(*) FILTER (WHERE {EXPIRED} OR token IS NULL AND ending = 1) AS n_expired,
        count(*) FILTER (WHERE token IS NULL AND ending = 2) AS n_returned,
        count(*) FILTER (WHERE token IS NULL AND ending = 3) AS n_refused
    FROM due_pages
    WHERE worker >= '' AND (token IS NOT NULL OR n_unfinished IS NOT NULL) GROUP BY worker
) AS each_worker
ORDER BY n_expired + n_returned + n_refused DESC, worker LIMIT %(limit)s
"""
"""Statement for the index of rows with a worker, which are few; each text is `>= ''`."""


class UnfinishedSql(Dialect, UnfinishedStatements):
    """The statements on unfinished leases that Postgres and SQLite share."""

    @override
    def last_leases(self, page_id: Ints) -> LastLeases:
        if not len(page_id):
            return LastLeases.empty()
        rows = self.read(LAST_LEASES, ids=page_id)

        def column(name: str, kind: Any) -> NDArray[Any]:
            return np.array([row[name] for row in rows], kind)

        def instants(name: str) -> Instants:
            cells = (row[name] for row in rows)
            return np.array([NO_TIME if at is None else instant(at) for at in cells], INSTANT)

        return LastLeases(
            page_id=column("page_id", np.int64),
            n_unfinished=column("n_unfinished", np.int64),
            ending=column("ending", np.int16),
            leased_at=instants("leased_at"),
            ends_at=instants("expires_at"),
            next_at=instants("next_at"),
            wanted_at=instants("requested_at"),
            is_open=column("is_open", np.bool_),
            worker=column("worker", object),
        )

    @override
    def forget_unfinished(self, page_id: Ints) -> None:
        if len(page_id):
            self.run(FORGET_UNFINISHED, ids=page_id)

    @override
    def lift_waits(self, page_id: Ints) -> None:
        if len(page_id):
            self.run(LIFT_WAITS, ids=page_id)

    @override
    def leases_of(self, worker: str, after: int, now: datetime) -> tuple[WorkerLeases, int | None]:
        last = self.scalar(LAST_OF_BLOCK, after=after, n=MOST_SCANNED - 1)
        place = {"after": after, "last": last or MOST_PAGE_ID}
        rows = self.read(LEASES_OF, worker=worker, now=now, **place)
        tokens = LeaseTokens(
            page_id=np.array([row["page_id"] for row in rows], np.int64),
            token=np.array([row["token"] for row in rows], np.int64),
        )
        return WorkerLeases(tokens, [row["url"] for row in rows]), last

    @override
    def workers(self, now: datetime, limit: int) -> list[WorkerCounts]:
        return [WorkerCounts(**row) for row in self.read(WORKERS, now=now, limit=limit)]
