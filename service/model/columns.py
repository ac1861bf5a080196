"""Columns of pages, crawls and schedules, which HTTP, use cases, core and store share."""

from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from service.model.arrays import (
    ATTACHED,
    NO_TIME,
    UNSPECIFIED,
    Bools,
    Codes,
    Columns,
    Floats,
    Instants,
    Ints,
    Keys,
    Marks,
    Numbers,
    Texts,
    UrlGroups,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PageColumns(Columns):
    """(N,) pages as a caller describes them, each page once."""

    key: Keys
    url: NDArray[np.object_]
    host: NDArray[np.object_]
    importance: Floats
    """Importance; NaN: keep the stored one, or 1 for a new page."""
    observability: Codes
    """Observability; UNSPECIFIED: keep the stored one, or auto for a new page."""
    min_crawl_rate: Floats
    max_crawl_rate: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPages(Columns):
    """(N,) pages as the store has them, by ascending page_id, without their states."""

    page_id: Ints
    url: NDArray[np.object_]
    importance: Floats
    min_crawl_rate: Floats
    max_crawl_rate: Floats
    created_at: Instants
    born_at: Instants
    """As in `EpochColumns`."""
    feed: Bools
    """True for feeds (`storage.pages.kinds`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CrawlColumns(Columns):
    """(N,) crawl results in the caller's order."""

    page_id: Ints
    """Id of the page; 0: no such page; UNSPECIFIED: the URL names another page than the lease."""
    observed_at: Instants
    changed: Codes
    """1 or 0 as the caller reported; UNSPECIFIED: no report."""
    digest: Ints
    """Hash of the caller's content digest; 0: none."""
    status: Codes
    """HTTP status; 0: the host did not answer; UNSPECIFIED: none."""
    leased_page_id: Ints
    """Page of the lease under which the crawl was done; 0: no lease."""
    token: Ints
    """Token of the lease."""
    retry_after_s: Floats
    """Pause that the host requested, seconds; NaN: none."""
    redirects_to: Ints
    """Target of the redirect; 0: no redirect; UNSPECIFIED: the target is not registered."""
    leads: Codes
    """End of the redirect (`model.outcomes.Leads`)."""
    last_modified: Instants
    """Last modification of the page as the site reports; NaT: no report."""
    etag: Texts = None
    """Entity tag of the answer; "": none."""
    note: Texts = None
    """JSON of the crawler's note; "": none."""
    own_hosts: Texts = None
    """Set of the hosts that the report may pause, by the limits of its key; "": no limits."""
    cost: Numbers = None
    """Cost of the crawl in the unit of the budget, or the price that the site asks for one
    (`outcomes.OFFERED`); NaN: no report."""
    seconds: Numbers = None
    """Time that the crawl took, seconds; NaN: no report."""
    weight: Numbers = None
    """Weight of the change that the crawler has computed, in [0, 1); NaN: 1, or no report."""
    verdict: Marks = None
    """Verdict (`ItemVerdict`) of a refused item, which is recorded only as the end of its lease;
    UNSPECIFIED: the item is judged yet."""

    @property
    def refused(self) -> Bools:
        """(N,) True for an item that only ends its lease."""
        if self.verdict is None:
            return np.zeros(len(self), np.bool_)
        refused: Bools = self.verdict != UNSPECIFIED
        return refused


@dataclass(frozen=True, slots=True, kw_only=True)
class PingColumns(Columns):
    """(N,) pings in the caller's order."""

    page_id: Ints
    changed_at: Instants
    """Time of the change that the ping reports, which identifies the ping. A date without a time
    counts as its first instant."""
    changed_by: Instants
    """Latest possible time of the change: `changed_at`, or the end of a date without a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageStates(Columns):
    """(N,) pages as ingest reads and writes them, by ascending page_id.

    The fields from `observability` on are read with the state, but not written with it. The rates
    are NaN for a page that no epoch has scheduled.
    """

    page_id: Ints
    last_crawl_at: Instants
    """Time of the newest reported crawl, with or without an answer."""
    last_observed_at: Instants
    """Time of the newest crawl with an answer: the start of the running interval."""
    digest: Ints
    gone: Bools
    """True if two looks have found the page absent, or permanently moved, since its content."""
    n_observations: Ints
    n_changes: Ints
    n_pings: Ints
    recent_pings: Floats
    """Number of pings as they weigh in the ping rate at `last_ping_at` (`core.pings`)."""
    last_ping_at: Instants
    pings_since: Instants
    """Time at which counting of pings began."""
    ping_credit: Floats
    """Share of a crawl that pings, and the time since the last crawl, have earned."""
    pings_since_crawl: Ints
    """Pings since the start of the running interval."""
    real_pings: Floats
    """Evidence of the pings' precision beyond its prior, real pings; may be negative."""
    false_pings: Floats
    """Evidence of the pings' precision beyond its prior, false pings; may be negative."""
    trust: Floats
    """Log-likelihood ratio of "pings announce nearly all changes" (`core.pings`)."""
    requested_at: Instants
    """Time of the first request, by a ping or by an operator, since the last crawl, which is the
    page's place in the queue; NaT: every request is answered. A request before the last crawl is
    one that the crawl did not answer (`ingest.requests`)."""
    renewed_at: Instants
    """Time of the newest request; NaT where that is `requested_at`."""
    interval_factor: Floats
    """Time from the last crawl to the next, in units of 1 / (crawl_rate * urgency). A store may
    keep seven digits."""
    last_interval: Floats
    """Interval that the newest answered crawl ended, days; negative if the page had not changed in
    it; 0 where it is no evidence. A store may keep seven digits."""
    last_age: Floats
    """Days from the modification that the site reported with the newest answered crawl to that
    crawl; NaN: no report. A store may keep seven digits."""
    n_failures: Ints
    """Crawls in a row without content; for a page that is gone, those that found it absent."""
    outcome: Codes
    """Outcome of the last crawl (`model.outcomes`)."""
    absent_since: Instants
    """Time of the first crawl since the last content that found the page absent, or of the first of
    the doubtful crawls in a row; NaT: none."""
    retry_rate: Floats
    """Crawl rate of the page's last share in the allocation, 1/day, if it lacks content or has just
    come back. If pings have earned the next crawl, the crawls of the plan, by which the page ranks
    (`leases.due`). 0: none. A store may keep seven digits."""
    cost: Floats
    """Mean cost of the page's crawls in the unit of the budget (`core.prices`), or the price that
    its site asks; 0: none is known."""
    redirects_to: Ints
    """Page to which the last answer redirected; 0: none, or not registered."""
    hops: Codes
    """Redirects from a page that was asked for to this page, which is known only as their target;
    0: asked for; negative: no page redirects to it any more (`ingest.redirects`)."""
    n_targets: Codes
    """New pages that were registered because this page redirects to them."""
    estimate: Floats
    """(N, width) states of the estimator."""
    observability: Codes
    host_id: Ints
    held: Ints
    """Last level of the page's ladder (`model.ladder`) if the page must wait for its first crawl;
    minus the level if it may be crawled and has no answer yet; 0: neither (`budget.admission`)."""
    crawl_rate: Floats
    crawl_probability: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class LogColumns(Columns):
    """(N,) entries of the observation log."""

    page_id: Ints
    observed_at: Instants
    kind: Codes
    changed: Codes
    """1, 0, or UNSPECIFIED where the entry is no evidence of either."""
    interval: Floats
    """Days since the previous observation; NaN where the entry is no evidence."""
    crawl_rate: Floats
    """Crawl rate in force over the interval, 1/day; NaN: none."""
    status: Codes
    """HTTP status of the crawl; UNSPECIFIED: not reported."""
    weight: Numbers = None
    """Weight of the change, below 1 (`core.weights`); NaN: 1, or the entry has no change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceColumns(Columns):
    """(N,) entries of the observation log that are evidence, without their times."""

    page_id: Ints
    interval: Floats
    """Days since the previous observation."""
    changed: Codes
    """1 or 0."""
    weight: Numbers = None
    """As in `LogColumns`."""


LoggedT = TypeVar("LoggedT", LogColumns, EvidenceColumns)
"""Columns that are read from the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochColumns(Columns):
    """(N,) pages as an epoch reads them, by ascending page_id."""

    page_id: Ints
    importance: Floats
    observability: Codes
    host_id: Ints
    url_group: UrlGroups
    """URL group of each page (`urls.url_groups`)."""
    last_observed_at: Instants
    last_interval: Floats
    n_observations: Ints
    interval_factor: Floats
    estimate: Floats
    min_crawl_rate: Floats
    max_crawl_rate: Floats
    n_pings: Ints
    recent_pings: Floats
    """As in `PageStates`."""
    pings_since: Instants
    """Time at which counting of pings began; a store may return NaT for a page without pings whose
    changes are not announced."""
    last_ping_at: Instants
    real_pings: Floats
    false_pings: Floats
    trust: Floats
    last_age: Floats
    last_failure_at: Instants
    """Time of the last crawl, if it had no content; NaT: it had, or there was none."""
    cost: Floats
    """As in `PageStates`."""
    born_at: Instants
    """Birth of the page, if it was born after its host was known; NaT: not known."""


NOT_SHIFTED = np.iinfo(np.int16).min
"""Shift of a page without change hours."""
OUT_OF_TURN = NOT_SHIFTED + 1
"""Shift of a page whose next crawl follows a pace, or is an extra crawl to find the hour."""

RARE: dict[str, np.generic] = {
    "min_crawl_rate": np.float64("nan"),
    "max_crawl_rate": np.float64("nan"),
    "n_pings": np.int64(0),
    "recent_pings": np.float64(0),
    "pings_since": NO_TIME,
    "last_ping_at": NO_TIME,
    "real_pings": np.float64(0),
    "false_pings": np.float64(0),
    "trust": np.float64(0),
    "last_age": np.float64("nan"),
    "last_failure_at": NO_TIME,
    "cost": np.float64(0),
    "born_at": NO_TIME,
}
"""Usual values of the last `EpochColumns`, in which most pages have no value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapColumns(Columns):
    """(H,) hosts with a cap on crawls a day, of their own or of their group, by host_id."""

    host_id: Ints
    host: NDArray[np.object_]
    max_crawl_rate: Floats
    """Cap of the host, crawls a day; NaN where only the group has a cap."""
    group_id: Ints
    """Group with a cap; 0: none."""
    group: NDArray[np.object_]
    group_max_crawl_rate: Floats
    first_share: Numbers = None
    """Maximum share of the host's cap for first crawls; NaN: that of the settings; None: the same
    for all hosts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostDelays(Columns):
    """(H,) hosts with the delays of their host queues, by host_id; NaN: not set."""

    host_id: Ints
    host: NDArray[np.object_]
    queue_id: Ints
    """As in `HostQueues`."""
    min_delay_s: Floats
    robots_delay_s: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleColumns(Columns):
    """(N,) rows of a schedule as an epoch publishes them, by ascending page_id."""

    page_id: Ints
    change_rate: Floats
    """Change rate, 1/day. A store may keep seven digits, from 1e-37 to 1e38."""
    crawl_rate: Floats
    crawl_probability: Floats
    urgency: Floats
    """Factor on the crawl rate until the next epoch (`epochs.solve`). A store may keep seven
    digits."""
    shift: Codes
    """Minutes from the instant by the crawl rate to the next crawl, at a better hour
    (`core.change_hours`); `NOT_SHIFTED` for pages without change hours."""
    carried: Codes
    """`shift` of the crawl that began the running interval; `NOT_SHIFTED` like `shift`."""
    observed_ratio: Numbers = None
    """Ratio of observed to expected changes since the page's last crawl, by its siblings, where the
    urgency hides it: a bound, a cap or a shift set the urgency. NaN or 0 where the urgency shows
    it. A store may keep seven digits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShiftColumns(Columns):
    """(N,) pages whose crawls an epoch shifted, by ascending page_id; as in `ScheduleColumns`."""

    page_id: Ints
    shift: Codes
    carried: Codes


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeHours(Columns):
    """(H,) evidence of the hours at which the pages of hosts change, by ascending host_id."""

    host_id: Ints
    learnt_at: Instants
    """Time until which crawls are part of the evidence."""
    evidence: Floats
    """(H, WIDTH) as packed by `core.change_hours.evidence`. A store may keep seven digits."""
    profile: Floats
    """(H, 1 + TERMS) weight and coefficients of `core.change_hours.profile`. A store may keep seven
    digits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostHours(Columns):
    """(H,) hosts with change hours, by ascending host_id."""

    host_id: Ints
    profile: Floats
    """As in `ChangeHours`; the weight is positive."""
    delay_s: Floats
    """Delay between two crawls of the host, seconds; NaN: none is set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupScreens(Columns):
    """(G,) URL groups without evidence of their own, by ascending host_id, then url_group."""

    host_id: Ints
    url_group: UrlGroups
    seen_at: Instants
    """Time of the last lesson with a crawl of the group."""
    numbers: Floats
    """(G, NUMBERS) as packed by `core.change_hours.screens`. A store may keep seven digits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupHours(Columns):
    """(G,) URL groups with evidence of their own, by ascending host_id, then url_group."""

    host_id: Ints
    url_group: UrlGroups
    seen_at: Instants
    """As in `GroupScreens`."""
    page_id: Ints
    """A page of the group, by which the group is shown."""
    in_force: Bools
    """True if the pages of the group follow this profile, flat or not; False: that of the host."""
    has_own: Bools
    """True if the group probably keeps hours of its own, so that it does not teach its host."""
    certain: Floats
    """Certainty of the hours, by which extra crawls are decided, 0 to 1; seven digits."""
    evidence: Floats
    """As in `ChangeHours`."""
    profile: Floats
    """As in `ChangeHours`; averaged over the kinds of groups (`core.change_hours.pooling`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupProfiles(Columns):
    """(G,) URL groups with a profile in force, by ascending host_id, then url_group."""

    host_id: Ints
    url_group: UrlGroups
    certain: Floats
    profile: Floats
    """As in `ChangeHours`; the weight is 0 for a group whose crawls are not shifted."""
    delay_s: Floats
    """As in `HostHours`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DueColumns(Columns):
    """(N,) values that decide when pages are due (`leases.due`); instants of deleted pages: NaT."""

    page_id: Ints
    created_at: Instants
    last_crawl_at: Instants
    requested_at: Instants
    gone: Bools
    n_failures: Ints
    outcome: Codes
    """Outcome of the last crawl (`model.outcomes`)."""
    hops: Codes
    """As in `PageStates`."""
    retry_rate: Floats
    """Crawl rate by which a page without a share is due, 1/day; 0: none (`PageStates`)."""
    interval_factor: Floats
    due_rate: Floats
    """Crawl rate times urgency, 1/day; NaN for a page that no epoch has scheduled."""
    held: Marks = None
    """1 for a page that must wait for its first crawl (`budget.admission`); None: none must."""
    hours: Texts = field(default=None, metadata=ATTACHED)
    """`OpenHours` of the host of each page, "" for one that is always open; None: all are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledPages(DueColumns):
    """(N,) rows of a published schedule by ascending page_id, with the pages' present values."""

    url: NDArray[np.object_]
    importance: Floats
    change_rate: Floats
    crawl_rate: Floats
    crawl_probability: Floats


@dataclass(frozen=True, slots=True)
class SchedulePart:
    """Result of one reading of a schedule."""

    pages: ScheduledPages
    after: int | None
    """page_id after which the next reading begins; None at the end."""


@dataclass(frozen=True, slots=True)
class ScheduleChanges(SchedulePart):
    """Changes of a schedule since an earlier epoch."""

    removed: Ints
    """Pages of the earlier epoch that the schedule no longer has, by ascending page_id."""
