"""What every store promises of the crawls that are due soon: the queue, its lanes and its leases.

**Queue.** A page that is due before the horizon has a row, with a lower bound of the instant
from which it can be taken; a leased one from when its lease ends. Bounds may be too early, never
too late: whoever takes a row looks the truth up (`due_pages`) and mends the bound (`requeue`). A
row that a ping asked for has `EPOCH` for a bound, which puts it and its lane before all others.

**Lanes.** What is crawled politely, one after the other, is a lane: a host, or a group of hosts
that share a server. Only who holds a lane's lock leases its pages. A lane's `next_at` is a lower
bound as well.

**Leases.** A page has at most one lease that runs, whatever publishes, restarts and late reports
come between; each has a token of its own, and only its token ends it before its time.

**Locks.** Page states, then rows of the queue, then lanes, each by ascending id; who leases locks
lanes first and passes over rows that others have locked.
"""

from abc import abstractmethod
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.arrays import Bools, Columns, Floats, Instants, Ints, instant
from service.storage.base import Store, Transaction

UNSCHEDULED_RATE = 1.0
"""Crawls a day of a page that no epoch has scheduled yet, where it waits among others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lanes(Columns):
    """(N,) lanes by ascending lane_id; times to wait are NaN where nobody has told one."""

    lane_id: Ints
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
class Lowered(Columns):
    """(N,) lanes by ascending lane_id, and the first of what was queued in each."""

    lane_id: Ints
    next_at: Instants

    @classmethod
    def of(cls, lane_id: int, next_at: datetime) -> "Lowered":
        """Give one lane."""
        return cls(lane_id=np.array([lane_id]), next_at=np.array([instant(next_at)]))


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedCrawls(Columns):
    """(N,) rows of the queue by lane and time."""

    page_id: Ints
    lane_id: Ints
    next_at: Instants
    last_crawl_at: Instants
    crawl_rate: Floats
    """1/day, times the page's pace."""
    wanted: Bools
    """A ping has asked for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DuePages(Columns):
    """(N,) pages as they are, in the order asked for; one that was deleted is never due."""

    page_id: Ints
    url: NDArray[np.object_]
    host: NDArray[np.object_]
    due_at: Instants
    """NaT where only a ping makes the page due."""
    created_at: Instants
    last_crawl_at: Instants
    crawl_rate: Floats
    """1/day, times the page's pace; NaN where no epoch has scheduled the page."""
    wanted: Bools


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens(Columns):
    """(N,) pages, and tokens of leases on them."""

    page_id: Ints
    token: Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class Leases(Columns):
    """(N,) leases to give, by ascending page_id."""

    page_id: Ints
    token: Ints
    worker: NDArray[np.object_]
    expires_at: Instants


class Filled(NamedTuple):
    """How the queue was filled last."""

    epoch: int
    """By the schedule of this one; 0: never."""
    until: datetime
    """With what is due before."""


@dataclass(frozen=True, slots=True)
class Reach:
    """Which pages somebody wants to crawl."""

    hosts: tuple[str, ...] = ()
    """Those of these hosts; empty: of all."""
    shard: int = 0
    shards: int = 1
    """Those of lanes whose id leaves `shard` over when divided by `shards`."""


EVERYWHERE = Reach()


def share(n_rows: int, n_lanes: int) -> int:
    """Give how many rows of each lane to look at, so that of all lanes there are `n_rows`."""
    return n_rows // n_lanes + 2


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of N tokens."""

    lane_id: Ints
    """The lane of each page; 0 where there is no such page."""
    held: Bools
    """Whether the token was in force."""
    next_at: Instants
    """When the page can be leased again; NaT where that is not before the horizon."""
    leased_at: Instants
    """When the lease was given; NaT where none was in force."""
    lanes: Lanes
    """Those that were locked."""


class QueueTransaction(Transaction):
    """The statements; see the module for what they promise together."""

    @abstractmethod
    def enqueue(self, page_id: Ints, until: datetime) -> Lowered:
        """Queue those of these pages that are due before `until`; tells their lanes."""

    @abstractmethod
    def fill_queue(self, after: int, last: int, until: datetime) -> Lowered:
        """Queue the pages of a range due before `until`, and those alone, but for leased ones."""

    @abstractmethod
    def filled(self) -> Filled:
        """Tell by which epoch the queue was filled last, and how far ahead."""

    @abstractmethod
    def set_filled(self, filled: Filled) -> None:
        """Note that the queue has been filled."""

    @abstractmethod
    def lower_lanes(self, lowered: Lowered) -> None:
        """Have these lanes looked at no later than said, and no earlier than their gates allow."""

    @abstractmethod
    def ready(
        self, now: datetime, n_lanes: int, n_rows: int, of: Reach = EVERYWHERE
    ) -> tuple[Lanes, QueuedCrawls]:
        """Lock the lanes that may have something now, at most `n_lanes`, the longest ready first.

        Gives with them the rows of each lane that can be taken first, `share(n_rows, …)` each.
        """

    @abstractmethod
    def save_lanes(self, lanes: Lanes) -> None:
        """Write back what changes of locked lanes: failures, pauses and times."""

    @abstractmethod
    def next_lanes(self, after: int, limit: int) -> Lanes:
        """Lock the next lanes with lane_id > after, ascending."""

    @abstractmethod
    def redate_leases(self, now: datetime) -> None:
        """Let leases that were handed out later than now run from now on."""

    @abstractmethod
    def redate_pages(self, after: int, last: int, now: datetime) -> None:
        """Date nothing of the pages of a range later than now: neither crawls nor pings."""

    @abstractmethod
    def running(self, lane_id: Ints, after: Instants) -> tuple[Ints, Instants]:
        """Tell how many leases of each lane end after an instant, and when the first of them."""

    @abstractmethod
    def lease(self, given: Leases, now: datetime) -> tuple[DuePages, Bools]:
        """Lease pages of locked lanes: those that are truly due and at whose row nobody else is.

        Gives the truth of all of them, and which were leased.
        """

    @abstractmethod
    def requeue(self, page_id: Ints, next_at: Instants) -> None:
        """Mend the bounds of rows that no lease runs on; NaT takes the row out."""

    @abstractmethod
    def settle(self, held: Tokens, heard: Bools, until: datetime) -> Settled:
        """End the leases with these tokens, and queue their pages again if due before `until`.

        Locks lanes, those of pages without a lease (token 0) too: where a page is queued again,
        where a report is to be `heard`, and those with limits or failures of their own. Of other
        lanes nothing changes, so that they may be leased from meanwhile.
        """

    @abstractmethod
    def leased_at(self, held: Tokens) -> Instants:
        """Tell when the leases with these tokens were given; NaT where one has ended."""

    @abstractmethod
    def extend_lease(self, page_id: int, token: int, now: datetime, until: datetime) -> bool:
        """Let a lease that still runs end at `until`, sooner or later; tell whether it does."""

    @abstractmethod
    def next_ready_at(self, of: Reach = EVERYWHERE) -> datetime | None:
        """Give a lower bound of when anything can be leased; None: nothing is queued."""


class QueueStore(Store):
    """A store that hands out crawls: a database. The simulator's reads the schedule itself."""

    @abstractmethod
    def begin(self, *, write: bool = True) -> AbstractContextManager[QueueTransaction]:
        """Open a transaction: committed when the block is left, rolled back by an exception."""
