"""The facts that decide what holds a page: plain values, as of one instant."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, NamedTuple

from service.leases.unfinished import UnfinishedPage
from service.model.domain import Page
from service.status.slow_hosts import SlowHost

Pauser = Literal["site", "operator"]
ALL_HOSTS = "the crawl of all hosts"
"""Noun for the whole fleet in a sentence about its pause."""
OF_GROUP = "the group "
"""Begin of the noun for a group of hosts."""


class Pause(NamedTuple):
    """A pause of a host, of a group or of all hosts."""

    until: datetime
    by: Pauser
    """`site`: its answers asked for the pause; `operator`: a person did."""
    of: str
    """Host, group or fleet that is paused, as a noun for a sentence."""
    in_incident: bool = False
    """True if most pages of the host suddenly show the same."""
    status: int | None = None
    """Status of the crawl that caused a pause by the site; None: not known."""


class Cap(NamedTuple):
    """A cap that has had its crawls of the running UTC day."""

    of: str
    """The host or group, as a noun for a sentence."""
    crawls_a_day: float
    until: datetime
    """Begin of the next day."""
    of_first: bool = False
    """True if only its share for first crawls is used up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostNow:
    """The host queue of a page: that of its host, or of the group of its host."""

    name: str
    """The host or group, as a noun for a sentence."""
    delay_s: float = 0.0
    """Delay in force between two crawls, seconds."""
    by_robots: bool = False
    """True if robots.txt asks for that delay."""
    latency_s: float | None = None
    """Present latency, seconds, if it is so high that it slows the crawls; None: it is not."""
    usual_latency_s: float = 0.0
    """Usual latency, seconds."""
    delayed: bool = False
    """True if the latency causes the delay in force."""
    opens_at: datetime | None = None
    """End of the delay after the last crawl; None: no crawl."""
    concurrency: int = 0
    """Leases that may run at a time; 0: any number."""
    n_running: int = 0
    """Leases that run."""
    lease: "LeaseNow | None" = None
    """The one of them that ends first; None: none runs, or it was not read."""
    pauses: tuple[Pause, ...] = ()
    """Pauses, also those that have ended."""
    closed_until: datetime | None = None
    """Opening of the next window; None: the host is open."""
    closed_by: str = "windows"
    """The rules that close the host: windows, blackouts, or both, as a noun."""
    is_never_open: bool = False
    """True if no window opens within a year."""
    cap: Cap | None = None
    """A cap without room; None: none is set, or it has room."""
    n_before: int = 0
    """Due pages of the host queue that come before the page."""
    n_before_is_least: bool = False
    """True if there may be more of them."""

    @property
    def room(self) -> int | None:
        """Crawls that may begin at once where no crawl is held; None: any number."""
        if self.delay_s > 0:
            return 1
        return max(self.concurrency - self.n_running, 1) if self.concurrency else None


class CrawlersNow(NamedTuple):
    """The signs of crawlers at all servers."""

    seen_at: datetime | None = None
    """Newest request for leases, lease or reading of the schedule; None: none ever."""
    missed_from: datetime | None = None
    """Time from which a crawler is missed; None: from the start."""
    unasked_host: str = ""
    """Host that no crawler asks for, while some ask for others; "": none."""
    unasked_since: datetime | None = None


class Standstill(NamedTuple):
    """A standstill of what runs epochs and fills the queue of due pages."""

    since: datetime
    """End of the due times in the queue, or time at which an epoch was due."""
    queue_ended: bool
    """True if pages that are due since then are not in the queue."""
    in_server: bool
    """True where the server itself runs epochs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """Everything outside of a page that may hold it."""

    now: datetime
    host: HostNow
    crawlers: CrawlersNow
    spent_until: datetime | None = None
    """Time until which the budget is spent; None: it has room, or none is set."""
    each_s: float | None = None
    """Time in which the budget has the income of a crawl, seconds; None: not known."""
    first_spent_until: datetime | None = None
    """Time until which first crawls have had their part of the budget; None: they have room, or the
    page was crawled."""
    slow: SlowHost | None = None
    """The host of the page, if its delay costs much freshness by the plan; None: it does not."""
    standstill: Standstill | None = None
    """None: epochs and the queue are in time."""


class LeaseNow(NamedTuple):
    """A lease that runs."""

    worker: str
    until: datetime
    since: datetime | None = None
    """Begin of the lease; None: it was not read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageNow:
    """A page with its due time, its lease and its last crawl."""

    page: Page
    due_at: datetime | None
    """Due time by the rules (`leases.due`); None: only a ping or a request makes it due."""
    in_queue: bool = True
    """False if the queue of due pages lacks it."""
    retired: bool
    status: int | None = None
    """Status of the last crawl in the log (`LogEntry.status`); None: not known."""
    behind_wall: bool = False
    """True if many pages redirect where the page does (`links.MANY`)."""
    lease: LeaseNow | None = None
    unfinished: UnfinishedPage | None = None
    """Leases in a row that ended without a report; None: none."""
    stopped_at: str | None = None
    """URL group that stops the first crawl of the page; None: none does."""
    stop_by_rule: bool = False
    """True if a rule of an operator stops this group."""
    stop_forbidden: bool = False
    """True if robots.txt forbids most of the first crawls of this group."""
    admits_at: datetime | None = None
    """Time of the next round that admits pages that wait; None: crawls under way admit some."""
    planned_at: datetime | None = None
    """Start of the epoch in force; None: there is none."""
    all_have_shares: bool = False
    """True if a plan leaves no page without a share that has a copy and some importance."""
    unit: str = field(default="crawls")
    """Unit of the budget."""
