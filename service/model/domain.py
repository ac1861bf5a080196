"""Single pages, hosts and epochs, and their enumerations.

In single values "none" is None. Instants are UTC, rates are per day.
"""

from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum, StrEnum
from typing import Any

from service.core.open_hours import OpenHours
from service.model.amounts import CRAWLS
from service.model.incidents import Incident
from service.model.outcomes import NO_CONTENT_AFTER, ROBOTS_DENIED, Outcome

MOST_FAILURES = 1_000
"""Maximum count of failures in a row; delays reach their bounds long before."""

MOST_COUNTED = 2**31 - 1
"""Maximum count of observations, changes or pings."""


class Observability(IntEnum):
    """The way in which changes of a page become known (K19's W- and W°)."""

    incomplete = 0
    """Crawls alone show changes."""
    complete = 1
    """A ping announces every change."""
    auto = 2
    """Pings may announce changes; crawls show how many of them do."""


class Kind(IntEnum):
    """The source of an entry of the observation log."""

    crawl = 0
    ping = 1


class ItemVerdict(IntEnum):
    """The outcome of one item of a batch."""

    accepted = 0
    duplicate = 1
    """The page's newest entry has the same instant; nothing changed."""
    late = 2
    """The page has a newer entry; nothing changed."""
    unknown = 3
    """No such page."""
    elsewhere = 4
    """The item's URL names another page than its lease."""
    unavailable = 5
    """The database of the item's page is away; the item may be sent again."""
    locked = 6
    """Another session holds the page's row; the item may be sent again."""
    lost = 7
    """No such page: its id was handed out before the database was restored."""
    refused = 8
    """The item was refused before; the end of its lease is recorded."""


class PingReason(StrEnum):
    """The reason why a ping causes a crawl now, or does not."""

    held = "held"
    never_crawled = "never_crawled"
    credit = "credit"
    may_be_back = "may_be_back"
    window_closed = "window_closed"
    later = "later"
    saving = "saving"
    unscheduled = "unscheduled"
    crawled_since = "crawled_since"
    not_trusted = "not_trusted"
    not_newer = "not_newer"
    unknown_page = "unknown_page"


class Timing(StrEnum):
    """The rule for times of crawls (see `service.core.waits`)."""

    periodic = "periodic"
    poisson = "poisson"


class EpochStatus(StrEnum):
    """The state of a run of the scheduler."""

    requested = "requested"
    running = "running"
    published = "published"
    failed = "failed"


@dataclass(frozen=True, slots=True)
class ScheduleFilter:
    """Filter of rows of the schedule that a caller requests; None: all rows."""

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
    """HTTP status, or `outcomes.ROBOTS_DENIED`; None: not reported."""
    weight: float | None = None
    """Weight of the change, below 1; None: 1, or no change."""

    @property
    def robots_denied(self) -> bool:
        """True if robots.txt forbade the crawl."""
        return self.status == ROBOTS_DENIED


@dataclass(frozen=True, slots=True)
class Page:
    """One page with its state and its row of the schedule in force."""

    page_id: int
    url: str
    host: str
    host_id: int
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
    recent_pings: float
    """As in `PageStates`."""
    ping_credit: float
    """As in `PageStates`."""
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
    shift: int | None
    """As in `ScheduleColumns`, minutes; None for a page without change hours. The move is part of
    `urgency`."""
    requested_at: datetime | None
    interval_factor: float
    due_rate: float | None
    """Crawl rate times urgency, 1/day; None before an epoch has scheduled the page."""
    redirects_to: int | None
    redirects_to_url: str | None
    """URL of the page that `redirects_to` names; None if there is none, or it was deleted."""
    etag: str | None = None
    last_modified: datetime | None = None
    note: str | None = None
    """JSON of the note."""
    outcome: Outcome = Outcome.content
    """Outcome of the last crawl."""
    feed: bool = False
    """True for a feed, which only `recrawl watch` leases."""
    hops: int = 0
    """Redirects from a page that was asked for; 0: asked for; negative: as in `PageStates`."""
    n_targets: int = 0
    """New pages that were registered because this page redirects to them."""
    doubted: bool = False
    """True if the next request goes without validators (`leases.conditional`)."""
    false_304_at: datetime | None = None
    """Time of the proof that a 304 of the host was wrong; None: no proof."""
    retry_rate: float = 0.0
    """Crawl rate by which the page is due without a share, 1/day; 0: none (`PageStates`)."""
    held: bool = False
    """True if the page must wait until it is worth its first crawl (`budget.admission`)."""
    born_at: datetime | None = None
    """Birth of the page, if it was born after its host was known; None: not known."""
    cost: float | None = None
    """Mean cost of its crawls in the unit of the budget, or the price that its site asks; None:
    none is known."""
    hours: OpenHours | None = None
    """Open hours of the host; None: it is always open."""

    @property
    def no_content(self) -> bool:
        """True if the page has no share in the allocation for want of content."""
        return not self.gone and self.n_failures >= NO_CONTENT_AFTER


@dataclass(frozen=True, slots=True)
class PagePatch:
    """Changes of a page by PATCH; a field in `cleared` becomes None."""

    importance: float | None = None
    observability: Observability | None = None
    min_crawl_rate: float | None = None
    max_crawl_rate: float | None = None
    cleared: frozenset[str] = frozenset()

    @property
    def bounds(self) -> bool:
        """True if the patch sets a bound of the crawl rate."""
        return self.min_crawl_rate is not None or self.max_crawl_rate is not None

    def values(self) -> dict[str, Any]:
        """Return the new values by name."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        cleared = fields.pop("cleared")
        values = {name: value for name, value in fields.items() if value is not None}
        return values | dict.fromkeys(cleared)


@dataclass(frozen=True, slots=True)
class HostQueue:
    """The queue of a host, or of hosts that share a server: its pages are crawled in sequence."""

    min_delay_s: float | None
    robots_delay_s: float | None
    """Delay that robots.txt requests, seconds; for a group the longest of its members."""
    max_concurrency: int | None
    n_failures: int
    """Reports of trouble in a row."""
    blocked_until: datetime | None
    """End of the pause by an operator."""
    paused_until: datetime | None
    """End of the pause by the site."""
    ready_at: datetime | None
    """End of the delay after the last crawl."""
    next_at: datetime | None
    """Earliest time of the next lease; None: nothing is queued."""
    latency_factor: float | None = None
    """Delay over the latency, while that is higher than usual; None: the default."""
    max_delay_s: float | None = None
    """Maximum delay by latency, seconds; None: the default."""
    latency_s: float | None = None
    """Present latency, seconds; None: none is known."""
    usual_latency_s: float | None = None
    """Usual latency, seconds; None: none is known."""
    n_latencies: int = 0
    """Crawls whose latency was learnt."""
    windows: tuple[str, ...] | None = None
    """Windows of the host, or of its group; None: those of all hosts."""
    blackouts: tuple[str, ...] | None = None
    """Blackouts of the host, or of its group; None: none beside those of all hosts."""
    queue_id: int = 0
    """Id of the host, or minus that of the group."""


@dataclass(frozen=True, slots=True)
class Host:
    """One host: its own settings, and its host queue."""

    host_id: int
    host: str
    group: str | None
    min_delay_s: float | None
    robots_delay_s: float | None
    max_concurrency: int | None
    max_crawl_rate: float | None
    host_queue: HostQueue
    """The host's own queue, or that of its group."""
    false_304_at: datetime | None = None
    """Time of the proof that a 304 of the host was wrong; None: no proof."""
    first_share: float | None = None
    """Maximum share of the cap for first crawls; None: that of the settings."""
    incident: Incident | None = None
    """The last incident that no content has ended; None: none."""
    latency_factor: float | None = None
    """Delay over the latency, while that is higher than usual; None: the default."""
    max_delay_s: float | None = None
    """Maximum delay by latency, seconds; None: the default."""
    windows: tuple[str, ...] | None = None
    """Windows of its own; None: those of its group, or of all hosts."""
    blackouts: tuple[str, ...] | None = None
    """Blackouts of its own, beside those of its group and of all hosts; None: none."""


@dataclass(frozen=True, slots=True)
class HostPages:
    """Sums over the pages of one host; pings are those of `auto` pages."""

    n_pages: int
    n_queued: int
    """Pages that are due soon and not leased."""
    n_leased: int
    crawl_rate: float | None
    """Scheduled crawls a day, on the change hours and on pings; None for a host with too many
    pages."""
    n_pinged: int
    """Pages that have had a ping."""
    n_pings: int
    ping_rate: float
    """Pings a day."""
    real_pings: float
    false_pings: float
    trust: float | None
    """Mean trust of the pages with pings."""
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
    """Figures of a published epoch, which show how near its rates are to the optimum."""

    bandwidth: float
    """Budget, crawls a day."""
    bandwidth_used: float
    multiplier: float
    harmonic_cost: float
    binary_cost: float
    kkt_residual: float
    """Largest relative violation of a condition of the optimum, in [0, 1]."""
    duality_gap: float
    """Upper bound of the objective's cost above the least cost, without the audits of pings."""
    passes: int
    n_pages: int
    prior: dict[str, float]
    crawl_rate_quantiles: tuple[float, ...]
    """101 quantiles, from the lowest crawl rate of a page to the highest, 1/day."""
    budget_factor: float
    """Factor on all crawl rates, which keeps the number of crawls at the bandwidth."""
    observed_ratios: tuple[float, ...]
    """Ratios of observed to expected changes of all pages, by age (`core.siblings`); empty: 1."""
    seconds: dict[str, float]
    """Duration of each stage, seconds."""
    planned: float | None = None
    """Part of the bandwidth for refreshes a day, in `unit`; None: the epoch is older than this."""
    overhead: float | None = None
    """Requests a day that teach nothing, such as retries, by those of the last days, in `unit`."""
    first_crawls: float | None = None
    """Maximum of first crawls a day; None: no maximum, because no bandwidth is set."""
    unit: str = CRAWLS
    """Unit of the bandwidth (`model.amounts`)."""
    age_evidence: tuple[float, ...] = ()
    """Evidence of the age profile, as packed by `core.age_evidence`; empty: none yet."""
    recalibration: tuple[float, ...] = ()
    """Numbers of `core.recalibration`; empty: none yet."""
    window_losses: tuple[tuple[str, float, float, float, float], ...] = ()
    """Hosts whose windows are too narrow (`epochs.capacities.WindowLoss`), the worst first."""
    delay_losses: tuple[tuple[str, float, float, float, float], ...] = ()
    """Hosts whose delay is too long (`epochs.delay_losses.DelayLoss`), the worst first."""
    window_demand: tuple[tuple[str, str, float], ...] = ()
    """Windows, blackouts and the planned amount a day of the hosts that have them, in `unit`.

    Hosts that are always open have empty texts. Empty: no host has windows."""
    feedback: float | None = None
    """Factor on the crawls that readers without leases should make, after their requests until now
    (`core.budget_factor`); None: the epoch is older than this."""
    still_due: float | None = None
    """Crawls that earlier epochs made due and that are still to be made when requests were counted,
    beside those of the time since; None: nobody's crawls are counted."""
    n_assumed_costs: int | None = None
    """Pages whose crawls have reported no cost in `unit`; 0 under a budget of crawls. None: the
    epoch is older than this."""
    min_bandwidth: float | None = None
    """Sum of the minimum crawl rates of pages with a copy, in `unit` a day; None: the epoch is
    older than this, or the objective leaves them out."""


@dataclass(frozen=True, slots=True)
class Epoch:
    """One run of the scheduler."""

    epoch: int
    status: EpochStatus
    requested_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    reason: str | None = None
    """Reason of a failure; None without one."""
    certificate: Certificate | None = field(default=None)
