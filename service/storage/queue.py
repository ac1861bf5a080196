"""The contract of the queue of due pages, of host queues, leases and hosts.

**Queue.** A page that is due before the horizon has a row with a lower bound of its due time. The
bound may be too early, but never too late. A transaction that leases locks the rows, reads the
present values (`lock_pages`, rule: `leases.due`) and corrects the bounds (`requeue`). The bound of
a requested page is a century before its request.
**Host queues.** A host queue belongs to a host, or to a group of hosts that share a server. Its id
is that of the host, or minus that of the group. The rules are in `leases.politeness`. A host in a
group uses the group's host queue. A host that leaves a group uses its own settings again. Only the
holder of a host queue's lock leases its pages.
**Leases.** A page has at most one lease that runs; only the lease's token ends it before its time.
**Locks.** The order is page states or hosts, then rows of the queue, then host queues, each by
ascending id. A transaction that leases locks host queues first and skips rows that others have
locked. After a report in the same transaction, it skips the locked host queues too (`ready`).
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.model.arrays import EPOCH, Bools, Columns, Floats, Instants, Ints, instant
from service.model.columns import DueColumns
from service.model.domain import Host, HostGroup, HostPages
from service.storage.dialect import Subject


@dataclass(frozen=True, slots=True, kw_only=True)
class HostQueues(Columns):
    """(N,) host queues by ascending queue_id; delays are NaN where none is set."""

    queue_id: Ints
    """Id of a host, or minus the id of a group."""
    min_delay_s: Floats
    robots_delay_s: Floats
    max_concurrency: Ints
    """Leases that may run at a time; 0: the default."""
    n_failures: Ints
    """Reports of trouble in a row."""
    blocked_until: Instants
    paused_at: Instants
    """Start of a pause after trouble; NaT: blocked by an operator, or not at all."""
    ready_at: Instants
    """End of the delay after the last crawl."""
    next_at: Instants
    """Lower bound of the next lease; NaT: nothing is queued."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostQueueBounds(Columns):
    """(N,) host queues by ascending queue_id, and the earliest bound queued in each."""

    queue_id: Ints
    next_at: Instants

    @classmethod
    def of(cls, queue_id: int, next_at: datetime) -> "HostQueueBounds":
        """Return the bounds of a single host queue."""
        return cls(queue_id=np.array([queue_id]), next_at=np.array([instant(next_at)]))


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRows(Columns):
    """(N,) rows of the queue to write."""

    page_id: Ints
    next_at: Instants
    """Lower bound of the due time; NaT: no row."""
    last_crawl_at: Instants
    crawl_rate: Floats
    """Crawl rate times urgency, 1/day; NaN where no epoch has scheduled the page."""
    requested: Bools
    """True if a ping has requested a crawl."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedPages(QueueRows):
    """(N,) rows of the queue that were read, by host queue and bound."""

    queue_id: Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class DuePages(DueColumns):
    """(N,) pages with their present values, in the order of the request."""

    host_id: Ints
    url: NDArray[np.object_]
    host: NDArray[np.object_]
    etag: NDArray[np.object_]
    last_modified: Instants
    note: NDArray[np.object_]
    """Validators and note as in `ValidatorColumns`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTokens(Columns):
    """(N,) pages, and tokens of leases on them; token 0: no lease."""

    page_id: Ints
    token: Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class Leases(LeaseTokens):
    """(N,) leases to write."""

    worker: NDArray[np.object_]
    expires_at: Instants


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedLeases(Columns):
    """(N,) locked leases, in the order of their tokens."""

    queue_id: Ints
    """Host queue of each page; 0: no such page."""
    held: Bools
    """True if the token is in force."""
    leased_at: Instants
    """Start of the lease; NaT: no lease in force."""
    due_rate: Floats
    """As in `DueColumns`."""
    limited: Bools
    """True if the host queue may have limits or failures, so that each report changes it."""


class FillMark(NamedTuple):
    """The last fill of the queue."""

    epoch: int
    """Epoch that was in force; 0: never filled."""
    until: datetime
    """End of the due times of the queued pages."""


NEVER_FILLED = FillMark(0, EPOCH)
READY_QUEUES = 100
"""Number of host queues whose first page shows how long crawls have waited."""


@dataclass(frozen=True, slots=True)
class QueueCensus:
    """Numbers of pages in the queue, of leases and of shut host queues, as of one instant."""

    n_queued: int
    """Pages that are due before the horizon, leased or not."""
    n_due: int
    """Pages without a lease that are due now, by the lower bounds of their due times."""
    n_leased: int
    """Leases that run."""
    n_expired: int
    """Leases that ended by time, whose pages no worker has leased again."""
    n_host_queues: int
    """Host queues of hosts and groups."""
    n_blocked: int
    """Host queues that an operator has blocked."""
    n_paused: int
    """Host queues that pause after trouble."""


@dataclass(frozen=True, slots=True)
class LeaseFilter:
    """Filter of the pages that a worker wants to crawl."""

    hosts: tuple[str, ...] = ()
    """Hosts of the pages; empty: all hosts."""
    shard: int = 0
    shards: int = 1
    """Number of shards: a host queue is in the shard of its id modulo `shards`."""


ALL_PAGES = LeaseFilter()


def share(n_rows: int, n_host_queues: int) -> int:
    """Return the number of rows to read of each host queue, for `n_rows` in total."""
    return n_rows // n_host_queues + 2


class QueueStatements(Subject):
    """The part of a transaction that works on the queue."""

    # -- what decides

    @abstractmethod
    def due_columns(self, page_id: Ints) -> DueColumns:
        """Return the (N,) values that decide when these pages are due, in this order."""

    @abstractmethod
    def due_block(self, after: int, last: int) -> DueColumns:
        """Return the values that decide when the pages after < page_id <= last are due."""

    # -- rows

    @abstractmethod
    def enqueue(self, rows: QueueRows) -> HostQueueBounds:
        """Insert rows by ascending page_id, or lower their bounds, except for leased pages.

        Return the host queues of the written rows.
        """

    @abstractmethod
    def waiting(self, after: int, last: int) -> Ints:
        """Return the pages after < page_id <= last that have a row without a lease, ascending."""

    @abstractmethod
    def lock_pages(self, page_id: Ints, now: datetime) -> tuple[DuePages, Bools]:
        """Lock the rows without a running lease that no other transaction has locked.

        Return all (N,) pages with their values after that, and whether each row was locked.
        """

    @abstractmethod
    def requeue(self, rows: QueueRows) -> None:
        """Write locked rows without a lease; delete rows without a bound."""

    @abstractmethod
    def filled(self) -> FillMark:
        """Return the last fill of the queue."""

    @abstractmethod
    def set_filled(self, filled: FillMark) -> None:
        """Write the last fill of the queue."""

    # -- host queues

    @abstractmethod
    def lower_host_queues(self, bounds: HostQueueBounds) -> None:
        """Lower `next_at` of host queues to `bounds`, but not below the opening of their gates."""

    @abstractmethod
    def ready(
        self,
        now: datetime,
        n_host_queues: int,
        n_rows: int,
        of: LeaseFilter = ALL_PAGES,
        *,
        wait: bool = True,
    ) -> tuple[HostQueues, QueuedPages]:
        """Lock at most `n_host_queues` that may have a page now, the longest ready first.

        Return the host queues, and the rows of each that can be leased first, `share(n_rows, …)`
        each. Without `wait`, leave out the host queues that another transaction has locked.
        """

    @abstractmethod
    def lock_reported(self, queue_id: Ints) -> HostQueues:
        """Lock host queues (ascending, unique) that reports change, and return those that exist."""

    @abstractmethod
    def save_host_queues(self, host_queues: HostQueues) -> None:
        """Write the failures, pauses and times of locked host queues."""

    @abstractmethod
    def next_host_queues(self, after: int, limit: int) -> HostQueues:
        """Lock the next host queues with queue_id > after, ascending."""

    @abstractmethod
    def next_ready_at(self, of: LeaseFilter = ALL_PAGES) -> datetime | None:
        """Return a lower bound of the time of the next lease; None: nothing is queued."""

    @abstractmethod
    def ready_since(self) -> datetime | None:
        """Return the time since when a crawl waits, or when the next will; None: nothing is queued.

        A requested page waits since the request. The first page of each of the `READY_QUEUES` host
        queues that are ready first counts.
        """

    @abstractmethod
    def queue_census(self, now: datetime) -> QueueCensus:
        """Return the numbers of the queue; the method reads all rows of the queue."""

    # -- leases

    @abstractmethod
    def running(self, queue_id: Ints, after: Instants) -> tuple[Ints, Instants]:
        """Return (N,) numbers of leases that end after an instant, and the first end of each."""

    @abstractmethod
    def lease(self, leases: Leases, now: datetime) -> None:
        """Write leases of pages whose rows and host queues are locked."""

    @abstractmethod
    def lock_leases(self, tokens: LeaseTokens) -> LockedLeases:
        """Lock the rows with these tokens, after waiting for others; return them in this order."""

    @abstractmethod
    def extend_lease(self, page_id: int, token: int, now: datetime, until: datetime) -> bool:
        """Set the end of a lease that still runs to `until`; return whether the lease runs."""

    # -- a clock that was set

    @abstractmethod
    def redate_leases(self, now: datetime) -> None:
        """Shift leases with a start after now, so that they start now."""

    @abstractmethod
    def redate_pages(self, after: int, last: int, now: datetime) -> None:
        """Set later times of crawls and pings of a range of pages to now."""


MOST_SUMMED = 1_000_000
"""Maximum number of a host's pages in its sums."""


class HostStatements(Subject):
    """The part of a transaction that works on hosts."""

    @abstractmethod
    def hosts(self, after: int, limit: int) -> list[Host]:
        """Return hosts with host_id > after, ascending, at most `limit`."""

    @abstractmethod
    def host(self, host: str) -> Host:
        """Return one host; raise `HostNotFound`."""

    @abstractmethod
    def host_pages(self, host: Host, now: datetime) -> HostPages:
        """Return the sums of a host's pages; pings and rates of at most `MOST_SUMMED`."""

    @abstractmethod
    def group(self, group: str) -> HostGroup:
        """Return one group; raise `GroupNotFound`."""

    @abstractmethod
    def members(self, group_id: int, limit: int) -> list[str]:
        """Return the hosts of a group by name, at most `limit`."""

    @abstractmethod
    def host_ids(self, names: Sequence[str]) -> Ints:
        """Return the ids of hosts by name; insert new names in their order."""

    @abstractmethod
    def group_id(self, group: str, near: str | None = None) -> int:
        """Return the id of a group by name; insert a new name.

        A store of several databases inserts the group where the host `near` is.
        """

    @abstractmethod
    def member_ids(self, group_id: int) -> Ints:
        """Return the ids of a group's hosts."""

    @abstractmethod
    def lock_hosts(self, host_id: Ints) -> Ints:
        """Lock hosts, ascending, and return the host queue of each."""

    @abstractmethod
    def move_hosts(self, host_id: Ints, queue_id: Ints) -> Ints:
        """Move locked hosts and their rows of the queue; return the host queues that got rows."""

    @abstractmethod
    def lock_host_queues(self, queue_id: Ints) -> HostQueues:
        """Lock host queues, ascending; insert missing ones."""

    @abstractmethod
    def robots_delays(self, queue_id: Ints) -> tuple[Ints, Floats]:
        """Return the group and the `robots_delay_s` of each of M members that have a delay.

        `queue_id` and the first array that is returned are the host queues of groups.
        """

    @abstractmethod
    def save_settings(self, locked: HostQueues) -> None:
        """Write the delays and the concurrency of locked host queues."""

    @abstractmethod
    def save_cap(self, queue_id: int, max_crawl_rate: float | None) -> None:
        """Write the cap of the host or group of a host queue, crawls a day; None: no cap."""
