"""A model of leases in plain Python: pages, host queues and the instants at which they open."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

import numpy as np

from service.leases.due import RETRY_S
from service.model.outcomes import NO_CONTENT_AFTER, Outcome
from service.model.unfinished import SET_ASIDE_AFTER
from service.storage.pages.links import GONE_CHECKS
from support.crawl_cases import UNTIL
from support.store_cases import DAY, T0

GROUPED = {"a.example": "cdn", "b.example": "cdn"}
HOST_QUEUES = {
    "plain.example": (1.0, 1),
    "slow.example": (5.0, 1),
    "wide.example": (0.0, 2),
    "cdn": (3.0, 2),
}
"""Initial delay and concurrency of each host queue; the first has none of its own."""


@dataclass
class HostQueue:
    """The queue of a host or a group."""

    delay_s: float
    concurrency: int
    ready_at: datetime | None = None
    blocked_until: datetime = T0
    paused_until: datetime = T0
    paused_at: datetime | None = None

    @property
    def waits_until(self):
        return max(self.ready_at or T0, self.blocked_until, self.paused_until)


@dataclass
class Page:
    """A page in the state that `service.ingest.record` and the schedule produce."""

    host: str
    created_at: datetime
    place: int = 0
    """Which URL of its host."""
    last_crawl_at: datetime | None = None
    last_ping_at: datetime | None = None
    requested_at: datetime | None = None
    renewed_at: datetime | None = None
    """Time of the newest request, which may be the first."""
    interval_factor: float = 1.0
    gone: bool = False
    absent_since: datetime | None = None
    retry_rate: float = 0.0
    n_failures: int = 0
    outcome: Outcome = Outcome.content
    rate: float | None = None
    token: int = 0
    leased_at: datetime = T0
    expires_at: datetime = T0
    n_unfinished: int = 0
    """Leases in a row that ended without a report, as the store has counted them."""
    until: datetime = T0
    """End of the wait after the last of them."""
    expired_at: datetime = T0 - DAY
    """End of the last lease, if it expired and the store has counted it."""
    ended_at: datetime = T0 - DAY
    """The same, though a crawl without the lease was reported."""

    @property
    def host_queue(self):
        return GROUPED.get(self.host, self.host)

    @property
    def requested(self):
        return self.requested_at is not None and not self._crawled_since()

    def _crawled_since(self):
        return self.last_crawl_at is not None and self.last_crawl_at >= self.requested_at

    def look(self, at):
        """Find the page absent; a look long enough after the first one makes the page gone."""
        hour = timedelta(seconds=RETRY_S)
        rate = self.rate or self.retry_rate
        wait = min(hour, DAY * (self.interval_factor / rate)) if rate else hour
        confirms = self.absent_since is not None and at - self.absent_since >= wait
        self.n_failures = 2 if confirms and not self.gone else self.n_failures + 1
        self.gone |= confirms
        self.absent_since = self.absent_since or at
        self.outcome = Outcome.absent

    def unreported(self):
        """Return whether no crawl since the start of the last lease was reported."""
        return self.last_crawl_at is None or self.last_crawl_at < self.leased_at

    def adopt(self, old):
        """Take the open lease of a deleted page with the same URL."""
        self.token, self.leased_at, self.expires_at = old.token, old.leased_at, old.expires_at
        self.n_unfinished = old.n_unfinished

    def counted(self, ended_at, returned=False):
        """Return the number of unfinished leases after one more, and the end of the wait."""
        n = self.n_unfinished + 1
        interval = DAY * (self.interval_factor / self.rate) if self.rate else DAY
        wait = min(timedelta(seconds=RETRY_S), interval) * n if n < SET_ASIDE_AFTER else DAY
        asked = self.requested_at is not None and self.renewed_at > self.leased_at
        at_once = (asked and n < SET_ASIDE_AFTER) or (returned and n == 1)
        return n, T0 if at_once else ended_at + wait

    def count(self, ended_at, returned=False):
        """Count a lease that ended without a report."""
        if self.unreported():
            self.n_unfinished, self.until = self.counted(ended_at, returned)
        else:
            self.n_unfinished, self.until = 0, T0
        self.token = 0

    def reported(self):
        """Count anew: a report was accepted, or has ended the lease."""
        self.token, self.n_unfinished, self.until, self.expired_at = 0, 0, T0, T0 - DAY

    def count_report(self):
        """Count anew after an accepted report; another lease stays."""
        if self.token:
            self.n_unfinished = 0
        else:
            self.reported()

    def waits_until(self, now):
        """Return the end of the wait after unfinished leases; T0: none."""
        if self.token and self.expires_at <= now and self.unreported():
            return self.counted(self.expires_at)[1]
        return self.until if not self.token and self.unreported() else T0

    def free_at(self, now):
        """Return the instant at which the page is due and waits no more; None: never."""
        due_at = self.due_at()
        return None if due_at is None else max(due_at, self.waits_until(now))

    def due_at(self):
        """Return the instant at which the page is due; None: never."""
        times = [self.requested_at] if self.requested else []
        if self.last_crawl_at is None:
            times.append(self.created_at)
        elif (wait := self._wait()) is not None:
            times.append(self.last_crawl_at + wait)
        return min(times, default=None)

    def _wait(self):
        """Return the time from its last crawl until the page is due by itself; None: never."""
        has_request, n = self.requested_at is not None, self.n_failures
        own = self.retry_rate and (not self.rate or (n >= NO_CONTENT_AFTER and not self.gone))
        rate = self.retry_rate if own else self.rate
        if self.gone:
            rests = n > GONE_CHECKS and (not has_request or self.requested)
            return None if rests else DAY * 2 ** (min(n, GONE_CHECKS) - 2)
        interval = DAY * (self.interval_factor / rate) if rate else DAY
        if n:
            doublings = 0 if self.outcome is Outcome.absent else min(n, 30) - 1
            return min(min(timedelta(seconds=RETRY_S), interval) * 2**doublings, 30 * DAY)
        return interval if rate else None

    def urgency(self, now):
        # a page with content and a share has a rate to retry by once its pings earned a crawl
        earned = self.rate and not (self.gone or self.n_failures) and self.retry_rate
        if self.requested and not earned:
            return np.inf
        since = self.last_crawl_at or self.created_at
        late = (self.n_failures or self.gone) and self.last_crawl_at is not None
        rate = DAY / self._wait() if late and self._wait() else earned or self.rate or 1.0
        return (now - since) / DAY * rate + (self.last_crawl_at is None)


@dataclass
class Model:
    """State of all leases."""

    now: datetime = T0
    pages: dict[int, Page] = field(default_factory=dict)
    deleted: dict[int, Page] = field(default_factory=dict)
    """Deleted pages, whose leases run on."""
    host_queues: dict[str, HostQueue] = field(
        default_factory=lambda: {name: HostQueue(*limits) for name, limits in HOST_QUEUES.items()}
    )
    filled_at: datetime | None = T0
    """Instant of the last filling of the queue; None if an epoch was published since."""

    @property
    def every_page(self):
        """Return all pages, with those that were deleted."""
        return self.pages | self.deleted

    def live(self, page):
        return page.token and page.expires_at > self.now

    def n_live(self, host_queue):
        """Return the number of leases that run."""
        return sum(
            bool(self.live(page))
            for page in self.every_page.values()
            if page.host_queue == host_queue
        )

    def running(self, host_queue, latest=False):
        """Return the ends of the leases that count, in ascending order.

        A worker whose lease expired may have crawled at the last instant of the lease. The delay
        therefore counts from there. Where a crawl without the lease was reported, it counts until
        the store forgets the lease, which is known by the `latest` end only.
        """
        delay = timedelta(seconds=self.host_queues[host_queue].delay_s)
        here = [page for page in self.every_page.values() if page.host_queue == host_queue]
        ends = [page.expires_at + delay for page in here if page.token]
        ended = [page.ended_at if latest else page.expired_at for page in here if not page.token]
        ends += [end + delay for end in ended]
        return sorted(end for end in ends if end > self.now)

    def opens_at(self, name, latest=False):
        """Return the instant at which a host queue opens if no report arrives."""
        host_queue, running = self.host_queues[name], self.running(name, latest)
        opens = max(self.now, host_queue.waits_until)
        if host_queue.concurrency and len(running) >= host_queue.concurrency:
            opens = max(opens, running[len(running) - host_queue.concurrency])
        return opens

    def next_ready_at(self, hosts=()):
        """Return the instant at which the first page can be leased without reports; None: never."""
        times = []
        for page in self.pages.values():
            due_at = page.free_at(self.now)
            if due_at is None or (hosts and page.host not in hosts):
                continue
            free_at = page.expires_at if self.live(page) else self.now
            times.append(max(due_at, free_at, self.opens_at(page.host_queue, latest=True)))
        return min(times, default=None)

    def knows(self, at):
        """Return whether the queue must contain the pages that fall due at an instant."""
        return self.filled_at is not None and at < self.filled_at + UNTIL
