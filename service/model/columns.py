"""Sets of pages, crawls and schedules that travel between HTTP, use cases, core and store."""

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from service.model.arrays import (
    NO_TIME,
    Bools,
    Codes,
    Columns,
    Floats,
    Instants,
    Ints,
    Keys,
    UrlGroups,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PageColumns(Columns):
    """(N,) pages as a caller describes them, each once."""

    key: Keys
    url: NDArray[np.object_]
    host: NDArray[np.object_]
    importance: Floats
    """NaN: keep what is stored, or 1 for a new page."""
    observability: Codes
    """UNSPECIFIED: keep what is stored, or auto for a new page."""
    min_crawl_rate: Floats
    max_crawl_rate: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPages(Columns):
    """(N,) pages as they are stored, by ascending page_id; beside their states."""

    page_id: Ints
    url: NDArray[np.object_]
    importance: Floats
    min_crawl_rate: Floats
    max_crawl_rate: Floats
    created_at: Instants


@dataclass(frozen=True, slots=True, kw_only=True)
class CrawlColumns(Columns):
    """(N,) crawl results in the caller's order."""

    page_id: Ints
    """0: there is no such page; UNSPECIFIED: by its URL it is another than was leased."""
    observed_at: Instants
    changed: Codes
    """1 or 0 as the caller judged; UNSPECIFIED where it did not."""
    digest: Ints
    """Hash of the caller's content digest; 0: none given."""
    status: Codes
    """HTTP status, 0 where the host did not answer; UNSPECIFIED where none was given."""
    leased_page_id: Ints
    """The page of the lease under which the crawl was done; 0: there is none."""
    token: Ints
    """The token of that lease."""
    retry_after_s: Floats
    """How long the host asked to be left alone; NaN: it did not."""
    redirects_to: Ints
    """Page redirected to; 0: no redirect, UNSPECIFIED: to a page that is not registered."""
    last_modified: Instants
    """When the site says that the page was last modified; NaT: it does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PingColumns(Columns):
    """(N,) change notices in the caller's order."""

    page_id: Ints
    changed_at: Instants
    """What the notice says, by which it is known again; where it names a day, the day's beginning.
    """
    changed_by: Instants
    """The last instant at which the page can have changed: the same, but where it names a day."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageStates(Columns):
    """(N,) pages as ingest reads and writes them, by ascending page_id.

    `observability`, `crawl_rate` and `crawl_probability` are read with the state and never
    written through it; the rates are NaN for a page that no epoch has scheduled.
    """

    page_id: Ints
    last_crawl_at: Instants
    """The newest reported crawl, whether it answered or not."""
    last_observed_at: Instants
    """The newest crawl that could be compared with: the start of the running interval."""
    digest: Ints
    gone: Bools
    """Its last answer was that it is not there any more, or has moved for good."""
    n_observations: Ints
    n_changes: Ints
    n_pings: Ints
    last_ping_at: Instants
    pings_since: Instants
    """When counting pings began."""
    ping_credit: Floats
    pings_since_crawl: Ints
    """Pings since the start of the running interval."""
    real_pings: Floats
    """Evidence of the pings' precision beyond its prior: real ones; may be negative."""
    false_pings: Floats
    """The same: false ones."""
    trust: Floats
    """Log-likelihood ratio of "pings announce nearly all changes" (`core.pings`)."""
    requested_at: Instants
    """The ping that asked for a crawl which has not been reported yet."""
    interval_factor: Floats
    """The next crawl is due `interval_factor / (crawl_rate * urgency)` days after the last one; a
    store may keep seven digits of it."""
    last_interval: Floats
    """Days of the interval that the newest answered crawl closed, negative if the page had not
    changed in it; 0 where it is no evidence. A store may keep seven digits."""
    n_failures: Ints
    """Crawls in a row that got no answer; of a page that is gone, that found it so."""
    redirects_to: Ints
    """The page that it redirected to when it answered last; 0: none that is known."""
    estimate: Floats
    """(N, width) the estimator's state."""
    observability: Codes
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
    """Days since the observation it was compared with; NaN where it is no evidence."""
    crawl_rate: Floats
    """The rate in force over the interval; NaN where none was."""
    status: Codes
    """HTTP status of the crawl; UNSPECIFIED where none was reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceColumns(Columns):
    """(N,) entries of the observation log that tell of a change or of none, without their times."""

    page_id: Ints
    interval: Floats
    """Days since the observation it was compared with."""
    changed: Codes
    """1 or 0."""


LoggedT = TypeVar("LoggedT", LogColumns, EvidenceColumns)
"""What is read of the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochColumns(Columns):
    """(N,) what an epoch reads of every page, by ascending page_id."""

    page_id: Ints
    importance: Floats
    observability: Codes
    host_id: Ints
    url_group: UrlGroups
    """Which pages are believed to be alike, see `urls.url_groups`."""
    last_observed_at: Instants
    last_interval: Floats
    interval_factor: Floats
    estimate: Floats
    min_crawl_rate: Floats
    max_crawl_rate: Floats
    n_pings: Ints
    pings_since: Instants
    """A store may leave it out (NaT) of pages without pings whose changes are not announced."""
    last_ping_at: Instants
    real_pings: Floats
    false_pings: Floats
    trust: Floats


RARE: dict[str, np.generic] = {
    "min_crawl_rate": np.float64("nan"),
    "max_crawl_rate": np.float64("nan"),
    "n_pings": np.int64(0),
    "pings_since": NO_TIME,
    "last_ping_at": NO_TIME,
    "real_pings": np.float64(0),
    "false_pings": np.float64(0),
    "trust": np.float64(0),
}
"""The last of the `EpochColumns`: what most pages have there, namely nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapColumns(Columns):
    """(H,) hosts whose crawls a day are capped, alone or with their group, by ascending host_id."""

    host_id: Ints
    host: NDArray[np.object_]
    max_crawl_rate: Floats
    """NaN where only the group is capped."""
    group_id: Ints
    """0 where no group caps the host."""
    group: NDArray[np.object_]
    group_max_crawl_rate: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleColumns(Columns):
    """(N,) what an epoch publishes for every page, by ascending page_id."""

    page_id: Ints
    change_rate: Floats
    """A store may keep seven digits of it, from 1e-37 to 1e38."""
    crawl_rate: Floats
    crawl_probability: Floats
    urgency: Floats
    """How fast the page's clock runs until the next epoch, see `epochs.solve`. A store may keep
    seven digits of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DueColumns(Columns):
    """(N,) what decides when pages are due, see `leases.due`; a deleted page has no instant."""

    page_id: Ints
    created_at: Instants
    last_crawl_at: Instants
    requested_at: Instants
    gone: Bools
    n_failures: Ints
    interval_factor: Floats
    due_rate: Floats
    """1/day, the crawl rate times the urgency; NaN of a page that no epoch has scheduled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledPages(DueColumns):
    """(N,) rows of a published schedule by ascending page_id; the rest as of now."""

    url: NDArray[np.object_]
    importance: Floats
    change_rate: Floats
    crawl_rate: Floats
    crawl_probability: Floats


@dataclass(frozen=True, slots=True)
class SchedulePart:
    """What one reading of a schedule gives."""

    pages: ScheduledPages
    after: int | None
    """Where the next reading goes on; None at the end."""


@dataclass(frozen=True, slots=True)
class ScheduleChanges(SchedulePart):
    """What became of a schedule since an earlier epoch."""

    removed: Ints
    """Pages of the earlier epoch that are no longer there, by ascending page_id."""
