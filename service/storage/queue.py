"""What every database promises of pages due soon and of hosts: queue, host queues and leases.

**Queue.** A page due before the horizon has a row with a bound of the instant from which it can be
leased: maybe too early, never too late. Whoever leases locks the rows, reads what decides
(`lock_pages`, rule: `leases.due`) and mends the bounds (`requeue`). A request's bound is `EPOCH`.
**Host queues.** A host (its id) or a group of hosts that share a server (minus its id); the rules
are in `leases.politeness`. A host in a group is crawled in the group's host queue; its own settings
hold again when it leaves. Only the holder of a host queue's lock leases its pages.
**Leases.** A page has at most one lease that runs; only the lease's token ends it before its time.
**Locks.** Page states or hosts, then rows of the queue, then host queues, each by ascending id;
a lease locks host queues first and passes over rows that others have locked.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.model.arrays import Bools, Columns, Floats, Instants, Ints, instant
from service.model.columns import DueColumns
from service.model.domain import Host, HostGroup, HostPages


@dataclass(frozen=True, slots=True, kw_only=True)
class HostQueues(Columns):
    """(N,) host queues by ascending queue_id; delays are NaN where none is set."""

    queue_id: Ints
    """A host's id, or minus a group's."""
    min_delay_s: Floats
    robots_delay_s: Floats
    max_concurrency: Ints
    """0: the default."""
    n_failures: Ints
    """Reports of trouble in a row."""
    blocked_until: Instants
    paused_at: Instants
    """When a pause after trouble began; NaT: blocked by hand, or not at all."""
    ready_at: Instants
    """The delay after the last crawl is over."""
    next_at: Instants
    """Nothing can be leased before; NaT: nothing is queued."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostQueueBounds(Columns):
    """(N,) host queues by ascending queue_id, and the earliest bound that was queued in each."""

    queue_id: Ints
    next_at: Instants

    @classmethod
    def of(cls, queue_id: int, next_at: datetime) -> "HostQueueBounds":
        """Return the bound of one host queue."""
        return cls(queue_id=np.array([queue_id]), next_at=np.array([instant(next_at)]))


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRows(Columns):
    """(N,) rows of the queue as they are written."""

    page_id: Ints
    next_at: Instants
    """The bound; NaT: no row."""
    last_crawl_at: Instants
    crawl_rate: Floats
    """1/day, times the page's urgency; NaN where no epoch has scheduled the page."""
    requested: Bools
    """Whether a ping has requested a crawl."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedPages(QueueRows):
    """(N,) rows of the queue as they are read, by host queue and bound."""

    queue_id: Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class DuePages(DueColumns):
    """(N,) pages as they are, in the order of the request."""

    url: NDArray[np.object_]
    host: NDArray[np.object_]


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
    """(N,) leases that are locked, in the order of their tokens."""

    queue_id: Ints
    """The host queue of each page; 0 where there is no such page."""
    held: Bools
    """Whether the token is in force."""
    leased_at: Instants
    """When the lease was given; NaT where none is in force."""
    due_rate: Floats
    """As in `DueColumns`."""


class FillMark(NamedTuple):
    """How far the queue was filled last."""

    epoch: int
    """The epoch whose schedule was in force; 0: never filled."""
    until: datetime
    """The instant before which the pages are due."""


@dataclass(frozen=True, slots=True)
class LeaseFilter:
    """Which pages a worker wants to crawl."""

    hosts: tuple[str, ...] = ()
    """Those of these hosts; empty: of all."""
    shard: int = 0
    shards: int = 1
    """Those of host queues whose id leaves `shard` over when divided by `shards`."""


ALL_PAGES = LeaseFilter()


def share(n_rows: int, n_host_queues: int) -> int:
    """Return how many rows of each host queue to read, for `n_rows` of all together."""
    return n_rows // n_host_queues + 2


class QueueStatements(ABC):
    """The part of a transaction that works on the queue."""

    # -- what decides

    @abstractmethod
    def due_columns(self, page_id: Ints) -> DueColumns:
        """Return (N,) what decides when these pages are due, in this order."""

    @abstractmethod
    def due_block(self, after: int, last: int) -> DueColumns:
        """Return what decides for the pages after < page_id <= last, ascending."""

    # -- rows

    @abstractmethod
    def enqueue(self, rows: QueueRows) -> HostQueueBounds:
        """Insert rows by ascending page_id or lower their bounds, but not those of leased pages.

        Return the host queues of the rows that were written.
        """

    @abstractmethod
    def waiting(self, after: int, last: int) -> Ints:
        """Return the pages after < page_id <= last that have a row without a lease, ascending."""

    @abstractmethod
    def lock_pages(self, page_id: Ints, now: datetime) -> tuple[DuePages, Bools]:
        """Lock rows on which no lease runs and that nobody else has locked.

        Return (N,) all these pages as they are after that, and whether each row was locked.
        """

    @abstractmethod
    def requeue(self, rows: QueueRows) -> None:
        """Write locked rows anew, without a lease; without a bound, delete them."""

    @abstractmethod
    def filled(self) -> FillMark:
        """Return how far the queue was filled last."""

    @abstractmethod
    def set_filled(self, filled: FillMark) -> None:
        """Write how far the queue has been filled."""

    # -- host queues

    @abstractmethod
    def lower_host_queues(self, bounds: HostQueueBounds) -> None:
        """Have host queues looked at no later than `bounds`, no earlier than their gates allow."""

    @abstractmethod
    def ready(
        self, now: datetime, n_host_queues: int, n_rows: int, of: LeaseFilter = ALL_PAGES
    ) -> tuple[HostQueues, QueuedPages]:
        """Lock at most `n_host_queues` that may have something now, the longest ready first.

        Return with them the rows of each host queue that can be leased first, `share(n_rows, …)`
        each.
        """

    @abstractmethod
    def lock_reported(self, queue_id: Ints, changes: Bools) -> HostQueues:
        """Lock those of (N,) host queues that a report `changes`, or that have limits or failures.

        Other host queues may be leased from meanwhile.
        """

    @abstractmethod
    def save_host_queues(self, host_queues: HostQueues) -> None:
        """Write back what changes of locked host queues: failures, pauses and times."""

    @abstractmethod
    def next_host_queues(self, after: int, limit: int) -> HostQueues:
        """Lock the next host queues with queue_id > after, ascending."""

    @abstractmethod
    def next_ready_at(self, of: LeaseFilter = ALL_PAGES) -> datetime | None:
        """Return a lower bound of when anything can be leased; None: nothing is queued."""

    # -- leases

    @abstractmethod
    def running(self, queue_id: Ints, after: Instants) -> tuple[Ints, Instants]:
        """Return how many leases of each host queue end after an instant, and the first end."""

    @abstractmethod
    def lease(self, leases: Leases, now: datetime) -> None:
        """Write leases of pages whose rows and host queues are locked."""

    @abstractmethod
    def lock_leases(self, tokens: LeaseTokens) -> LockedLeases:
        """Lock the rows that have these tokens, waiting for others; return them in this order."""

    @abstractmethod
    def leased_at(self, tokens: LeaseTokens) -> Instants:
        """Return when the leases with these tokens were given; NaT where one has ended."""

    @abstractmethod
    def extend_lease(self, page_id: int, token: int, now: datetime, until: datetime) -> bool:
        """End a lease that still runs at `until`, sooner or later; return whether it runs."""

    # -- a clock that was set

    @abstractmethod
    def redate_leases(self, now: datetime) -> None:
        """Shift leases that were given later than now, so that they run from now on."""

    @abstractmethod
    def redate_pages(self, after: int, last: int, now: datetime) -> None:
        """Date the crawls and pings of a range of pages no later than now."""


MOST_SUMMED = 1_000_000
"""Maximum pages of a host that are summed up; of a larger host this many."""


class HostStatements(ABC):
    """The part of a transaction that works on hosts."""

    @abstractmethod
    def hosts(self, after: int, limit: int) -> list[Host]:
        """Return hosts with host_id > after, ascending, at most `limit`."""

    @abstractmethod
    def host(self, host: str) -> Host:
        """Return one host; raises `HostNotFound`."""

    @abstractmethod
    def host_pages(self, host: Host, now: datetime) -> HostPages:
        """Return the sums of a host's pages; pings and rates of at most `MOST_SUMMED`."""

    @abstractmethod
    def group(self, group: str) -> HostGroup:
        """Return one group; raises `GroupNotFound`."""

    @abstractmethod
    def members(self, group_id: int, limit: int) -> list[str]:
        """Return the hosts of a group by name, at most `limit`."""

    @abstractmethod
    def host_ids(self, names: Sequence[str]) -> Ints:
        """Return the ids of hosts by name; new names are inserted in their order."""

    @abstractmethod
    def group_id(self, group: str) -> int:
        """Return the id of a group by name; a new name is inserted."""

    @abstractmethod
    def member_ids(self, group_id: int) -> Ints:
        """Return the ids of a group's hosts."""

    @abstractmethod
    def lock_hosts(self, host_id: Ints) -> Ints:
        """Lock hosts, ascending, and return the host queue that each is crawled in."""

    @abstractmethod
    def move_hosts(self, host_id: Ints, queue_id: Ints) -> Ints:
        """Move locked hosts and their rows of the queue; return the host queues that got rows."""

    @abstractmethod
    def lock_host_queues(self, queue_id: Ints) -> HostQueues:
        """Lock host queues, ascending; a missing one is inserted."""

    @abstractmethod
    def robots_delays(self, queue_id: Ints) -> tuple[Ints, Floats]:
        """Return (M,) the `robots_delay_s` of members of groups that have one, and their groups.

        `queue_id` and the first array that is returned are the host queues of groups.
        """

    @abstractmethod
    def save_settings(self, locked: HostQueues) -> None:
        """Write the delays and the concurrency of locked host queues."""

    @abstractmethod
    def save_cap(self, queue_id: int, max_crawl_rate: float | None) -> None:
        """Write the cap of the host or group of a host queue, crawls a day; None: no cap."""
