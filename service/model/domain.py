"""Single pages, hosts and epochs, and what may be said of them.

In single values "none" is None. Instants are UTC, rates are per day.
"""

from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum, StrEnum

MOST_FAILURES = 1_000
"""Largest count of failures in a row; delays have reached their bounds long before."""

MOST_COUNTED = 2**31 - 1
"""Largest count of observations, changes or pings; more are not counted."""


class Observability(IntEnum):
    """How changes of a page come to be known (K19's W- and W°)."""

    incomplete = 0
    """Only by crawling it."""
    complete = 1
    """Every change is announced by a ping."""
    auto = 2
    """Pings may come; each page's crawls teach how far they can be trusted."""


class Kind(IntEnum):
    """What an entry of the observation log is evidence from."""

    crawl = 0
    ping = 1


class Verdict(IntEnum):
    """What became of one item of a batch."""

    accepted = 0
    duplicate = 1
    """The page's newest entry has the same instant; nothing changed."""
    late = 2
    """The page has a newer entry; nothing changed."""
    unknown = 3
    """No such page."""
    elsewhere = 4
    """Its URL is of another page than its lease."""


class PingReason(StrEnum):
    """Why a ping leads to a crawl now, or does not."""

    never_crawled = "never_crawled"
    credit = "credit"
    may_be_back = "may_be_back"
    saving = "saving"
    unscheduled = "unscheduled"
    crawled_since = "crawled_since"
    not_trusted = "not_trusted"
    not_newer = "not_newer"
    unknown_page = "unknown_page"


class Timing(StrEnum):
    """How rates become crawls (see `service.core.timing`)."""

    periodic = "periodic"
    poisson = "poisson"


class EpochStatus(StrEnum):
    """Where a run of the scheduler stands."""

    requested = "requested"
    running = "running"
    published = "published"
    failed = "failed"


@dataclass(frozen=True, slots=True)
class ScheduleFilter:
    """Which rows of the schedule a caller asks for; None asks for all."""

    host: str | None = None
    page_id: int | None = None
    observability: Observability | None = None


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One entry of a page's log."""

    observed_at: datetime
    kind: Kind
    changed: bool | None
    interval: float | None
    status: int | None


@dataclass(frozen=True, slots=True)
class Page:
    """One page with its state and its row of the schedule in force."""

    page_id: int
    url: str
    host: str
    importance: float
    observability: Observability
    min_crawl_rate: float | None
    max_crawl_rate: float | None
    created_at: datetime
    last_crawl_at: datetime | None
    last_observed_at: datetime | None
    gone: bool
    n_failures: int
    n_observations: int
    n_changes: int
    n_pings: int
    last_ping_at: datetime | None
    pings_since: datetime
    real_pings: float
    false_pings: float
    trust: float
    url_group: int
    estimate: tuple[float, ...]
    change_rate: float | None
    crawl_rate: float | None
    crawl_probability: float | None
    urgency: float | None
    requested_at: datetime | None
    interval_factor: float
    due_rate: float | None
    """1/day, the crawl rate times the urgency; None before an epoch has scheduled the page."""
    redirects_to: int | None
    redirects_to_url: str | None
    """None too where that page was deleted."""


@dataclass(frozen=True, slots=True)
class PagePatch:
    """What PATCH changes of a page; a field in `cleared` is set to none."""

    importance: float | None = None
    observability: Observability | None = None
    min_crawl_rate: float | None = None
    max_crawl_rate: float | None = None
    cleared: frozenset[str] = frozenset()

    @property
    def bounds(self) -> bool:
        """Whether it sets a bound of the crawl rate."""
        return self.min_crawl_rate is not None or self.max_crawl_rate is not None


@dataclass(frozen=True, slots=True)
class HostQueue:
    """What is crawled politely, one after the other: a host, or hosts that share a server."""

    min_delay_s: float | None
    robots_delay_s: float | None
    """What robots.txt asks for; of a group the longest of its members'."""
    max_concurrency: int | None
    n_failures: int
    """Reports of trouble in a row."""
    blocked_until: datetime | None
    ready_at: datetime | None
    """The delay after the last crawl is over."""
    next_at: datetime | None
    """Nothing can be leased before; None: nothing is queued."""


@dataclass(frozen=True, slots=True)
class Host:
    """One host: its own settings, and the host queue it is crawled in."""

    host_id: int
    host: str
    group: str | None
    min_delay_s: float | None
    robots_delay_s: float | None
    max_concurrency: int | None
    max_crawl_rate: float | None
    host_queue: HostQueue
    """The host's own, or its group's."""


@dataclass(frozen=True, slots=True)
class HostPages:
    """What the pages of one host add up to; of pings those of `auto` pages count."""

    n_pages: int
    n_queued: int
    """Due soon, and not leased."""
    n_leased: int
    crawl_rate: float | None
    """Crawls a day as scheduled, on the clock and on pings; None of a host too large to sum up."""
    n_pinged: int
    """Pages that have had a ping."""
    n_pings: int
    ping_rate: float
    """Pings a day."""
    real_pings: float
    false_pings: float
    trust: float | None
    """Mean over the pages with pings."""
    last_ping_at: datetime | None


@dataclass(frozen=True, slots=True)
class HostGroup:
    """Hosts that share a server."""

    group_id: int
    group: str
    max_crawl_rate: float | None
    host_queue: HostQueue
    n_members: int


@dataclass(frozen=True, slots=True)
class Certificate:
    """What a published epoch says of itself, so that anyone can check it."""

    bandwidth: float
    bandwidth_used: float
    multiplier: float
    harmonic_cost: float
    binary_cost: float
    kkt_residual: float
    passes: int
    n_pages: int
    prior: dict[str, float]
    crawl_rate_quantiles: tuple[float, ...]
    """101 of them, from the least to the most often crawled page."""
    budget_factor: float
    """How many times as fast all clocks run, so that the bandwidth is used up."""
    seconds: dict[str, float]


@dataclass(frozen=True, slots=True)
class Epoch:
    """One run of the scheduler."""

    epoch: int
    status: EpochStatus
    requested_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    reason: str | None = None
    """Why it failed."""
    certificate: Certificate | None = field(default=None)


@dataclass(frozen=True, slots=True)
class Subscription:
    """A subscription to a topic at a WebSub hub."""

    id: str
    topic: str
    """As the publisher names it: hubs compare it letter by letter."""
    secret: str | None = field(repr=False)
    """What the hub signs with."""
    hub: str
    requested_at: datetime
    verified_at: datetime | None = None
    expires_at: datetime | None = None
