"""Signs of crawlers, and of their troubles: the contract, and the SQL that both databases share.

Each server writes at most once a minute when a crawler asked it last (`status.asked`). Entries of
`meta` have these instants, because the metrics of one server do not know the others.
"""

from abc import abstractmethod
from datetime import datetime
from typing import NamedTuple

from typing_extensions import override

from service.model.arrays import INSTANT, Instants
from service.model.unfinished import Ending
from service.storage.dialect import Dialect, Subject
from service.storage.queue.unfinished import EXPIRED


class Asked(NamedTuple):
    """The last request of a crawler."""

    at: datetime
    until: datetime
    """End of the wait that the answer asks for; `at` after any other answer."""


class PausedQueue(NamedTuple):
    """A host, or a group of hosts, that pauses after trouble."""

    name: str
    is_group: bool
    since: datetime
    """Start of the pause in force."""
    until: datetime
    n_failures: int
    """Reports of trouble in a row."""
    status: int | None = None
    """Status of the crawl that caused the pause; None: not known."""


AGAIN = 2
"""Returns in a row; a single one is usual where a crawler ends."""


class ReturnedPages(NamedTuple):
    """Pages that wait because a worker has returned their leases again."""

    worker: str
    n: int
    since: datetime
    """End of the oldest of their last leases."""


LEASES, SCHEDULE = "asked_leases", "asked_schedule"
"""Names of the entries: requests for leases, and readings of the schedule."""


class SignStatements(Subject):
    """The part of a transaction that reads signs of crawlers."""

    @abstractmethod
    def last_asked(self, name: str) -> Asked | None:
        """Return the last request that any server has written; None: none was."""

    @abstractmethod
    def save_asked(self, name: str, asked: Asked) -> None:
        """Write the last request at a server."""

    @abstractmethod
    def leases_end(self) -> datetime | None:
        """Return the latest end of leases that run, or expired uncounted; None: there are none."""

    @abstractmethod
    def pauses(self, now: datetime, limit: int) -> list[PausedQueue]:
        """Return pauses after trouble in force, at most `limit`, most failures first.

        Hosts that an operator pauses too are left out.
        """

    @abstractmethod
    def lost_at(self, worker: str, now: datetime, limit: int) -> Instants:
        """Return when a worker's lost leases ended, the newest first, at most `limit`.

        A lost lease is one of `UnfinishedStatements.workers`.
        """

    @abstractmethod
    def returned_again(self, limit: int) -> list[ReturnedPages]:
        """Return the workers that returned pages `AGAIN` times in a row, at most `limit`."""


PAUSES = """
SELECT coalesce(hosts.host, host_groups.name) AS name, queue_id < 0 AS is_group, paused_at,
    paused_until, n_failures, paused_status
FROM host_queues
LEFT JOIN hosts ON hosts.host_id = queue_id
LEFT JOIN host_groups ON host_groups.group_id = -queue_id
WHERE paused_until > %(now)s AND paused_at IS NOT NULL
    AND (blocked_until IS NULL OR blocked_until <= %(now)s)
    AND coalesce(hosts.host, host_groups.name) IS NOT NULL
ORDER BY n_failures DESC, paused_until DESC, queue_id LIMIT %(limit)s
"""
LEASES_END = """
SELECT max(expires_at) AS expires_at FROM due_pages WHERE worker IS NOT NULL AND token IS NOT NULL
"""
LOST_AT = f"""
SELECT expires_at FROM due_pages
WHERE worker = %(worker)s AND ({EXPIRED} OR token IS NULL AND ending IS NOT NULL)
ORDER BY expires_at DESC LIMIT %(limit)s
"""
RETURNED_AGAIN = f"""
SELECT worker, count(*) AS n, min(expires_at) AS expires_at FROM due_pages
WHERE n_unfinished >= {AGAIN} AND ending = {Ending.returned.value} AND token IS NULL
GROUP BY worker ORDER BY n DESC, worker LIMIT %(limit)s
"""
"""Statement for the index of rows with a count, which are few."""


class SignsSql(Dialect, SignStatements):
    """The statements on signs that Postgres and SQLite share."""

    @override
    def last_asked(self, name: str) -> Asked | None:
        at, _, until = self.get_meta(name).partition(" ")
        return Asked(*map(datetime.fromisoformat, (at, until))) if at else None

    @override
    def save_asked(self, name: str, asked: Asked) -> None:
        self.put_meta(name, " ".join(instant.isoformat() for instant in asked))

    @override
    def leases_end(self) -> datetime | None:
        (row,) = self.read(LEASES_END)
        end: datetime | None = row["expires_at"]
        return end

    @override
    def pauses(self, now: datetime, limit: int) -> list[PausedQueue]:
        return [PausedQueue(*row.values()) for row in self.read(PAUSES, now=now, limit=limit)]

    @override
    def lost_at(self, worker: str, now: datetime, limit: int) -> Instants:
        kinds = {"expires_at": "M8[us]"}
        read = self.arrays(LOST_AT, kinds, worker=worker, now=now, limit=limit)
        return read["expires_at"].astype(INSTANT)

    @override
    def returned_again(self, limit: int) -> list[ReturnedPages]:
        return [ReturnedPages(*row.values()) for row in self.read(RETURNED_AGAIN, limit=limit)]
