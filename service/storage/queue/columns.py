"""Rows of the queue, host queues and leases as columns."""

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.model.arrays import UNIX_ZERO, Bools, Columns, Floats, Instants, Ints, instant
from service.model.columns import DueColumns

NO_STATUS = -1


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
    """End of the pause by an operator; no report changes it."""
    paused_until: Instants
    """End of the pause by the site: after trouble, or by its Retry-After."""
    paused_at: Instants
    """Start of the pause by the site."""
    ready_at: Instants
    """End of the delay after the last crawl."""
    next_at: Instants
    """Lower bound of the next lease; NaT: nothing is queued."""
    latency_factor: Floats
    """Delay over the latency, while that is higher than usual; 0: none; NaN: the default."""
    max_delay_s: Floats
    """Maximum delay by latency, seconds; NaN: the default."""
    latency_s: Floats
    """Present latency (`core.latency`), seconds; NaN: none is known."""
    usual_latency_s: Floats
    """Usual latency, seconds; NaN: none is known."""
    n_latencies: Ints
    """Crawls whose latency was learnt, up to `core.latency.MEMORY`."""
    first_credit: Floats
    """Turns that first crawls have earned beside others, in [0, 1] (`leases.turns`)."""
    first_share: Floats
    """Share of the turns for first crawls; NaN: that of the settings."""
    paused_status: Ints
    """Status of the crawl that caused the pause by the site; `NO_STATUS`: not known."""


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
    """Rate that ranks the page (`leases.due.ranking_rates`), 1/day; NaN where there is none."""
    requested: Bools
    """True if a ping or an operator has requested a crawl."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedPages(QueueRows):
    """(N,) rows of the queue that were read, by host queue and bound."""

    queue_id: Ints
    leased: Bools
    """True if a lease is open: it runs, or has expired without being counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DuePages(DueColumns):
    """(N,) pages with their present values, in the order of the request."""

    host_id: Ints
    url: NDArray[np.object_]
    host: NDArray[np.object_]
    etag: NDArray[np.object_]
    last_modified: Instants
    note: NDArray[np.object_]
    doubted: Bools
    false_304_at: Instants
    """Validators, note and doubts as in `ValidatorColumns`."""
    urgency: Floats
    """Factor on the crawl rate by the crawls of its URL group; 1 for pages shifted by hours."""
    max_crawl_rate: Floats
    """Maximum crawl rate of the page's settings; inf: none."""
    cost: Floats
    """As in `PageStates`."""
    asked_at: Instants
    """Newest request of an operator; NaT: none."""


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
    n_unfinished: Ints
    """Leases of the page in a row that ended without a report, whatever the token."""
    idle: Bools
    """True if the page has such a count, and a row without an open lease."""


class LockedPages(NamedTuple):
    """(N,) pages whose rows were locked, where no other transaction had."""

    pages: DuePages
    locked: Bools
    ended: Bools
    """True if the row is locked, and its last lease ended without a report."""


class FillMark(NamedTuple):
    """The last fill of the queue."""

    epoch: int
    """Epoch that was in force; 0: never filled."""
    until: datetime
    """End of the due times of the queued pages."""
    at: datetime | None = None
    """Begin of the fill; None: not known."""


NEVER_FILLED = FillMark(0, UNIX_ZERO)


@dataclass(frozen=True, slots=True)
class QueueCensus:
    """Numbers of pages in the queue, of leases and of shut host queues, as of one instant."""

    n_queued: int
    """Pages that are due before the horizon, leased or not."""
    n_due: int
    """Pages without a running lease that are due now (`reach.IS_DUE`), other than feeds."""
    n_leased: int
    """Leases that run."""
    n_expired: int
    """Leases that ended by time and are not counted yet, because nobody leased from the host."""
    n_unfinished: int
    """Pages whose last lease ended without a report."""
    n_set_aside_expired: int
    """Pages with `SET_ASIDE_AFTER` such leases in a row, by the end of the last one."""
    n_set_aside_returned: int
    n_set_aside_refused: int
    n_host_queues: int
    """Host queues of hosts and groups."""
    n_blocked: int
    """Host queues that an operator has paused."""
    n_paused: int
    """Host queues that only their site pauses, after trouble."""
    n_incidents: int = 0
    """Hosts with an incident in force."""
    n_held: int = 0
    """New pages that wait until their URL group is worth a first crawl."""
    n_stopped: int = 0
    """Levels of URLs whose first crawls brought too little."""


@dataclass(frozen=True, slots=True)
class LeaseFilter:
    """Filter of the pages that a worker wants to crawl."""

    hosts: tuple[str, ...] = ()
    """Hosts of the pages; empty: all hosts."""
    slice: int = 0
    slices: int = 1
    """Number of slices: a host queue is in the slice of its id modulo `slices`."""
    feeds: bool = False
    """True for feeds alone, false for all other pages."""


ALL_PAGES = LeaseFilter()


def share(n_rows: int, n_host_queues: int) -> int:
    """Return the number of rows to read of each host queue, for `n_rows` in total."""
    return n_rows // n_host_queues + 2
