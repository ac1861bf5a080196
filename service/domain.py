"""The values that travel between HTTP, the use cases, the core and the store.

Sets of pages are columns: one array per field, aligned by position. In arrays, "none" is
NaT for an instant, NaN for a number, 0 for an id or digest; in single values it is None.
Instants are UTC in microseconds, rates are per day, intervals are days.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from enum import IntEnum, StrEnum
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

Instants = NDArray[np.datetime64]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Codes = NDArray[np.int16]
Bools = NDArray[np.bool_]
Sections = NDArray[np.int32]
SectionRates = NDArray[np.float32]
Keys = NDArray[np.void]

INSTANT = np.dtype("M8[us]")
KEY = np.dtype("V16")
DAY = np.timedelta64(86_400_000_000, "us")
NEVER = np.datetime64("NaT", "us")
UNSAID = -1
"""In a column of codes: the caller did not say."""

COLUMN: dict[Any, np.dtype[Any]] = {
    Instants: INSTANT,
    Floats: np.dtype(np.float64),
    Ints: np.dtype(np.int64),
    Codes: np.dtype(np.int16),
    Bools: np.dtype(np.bool_),
    Sections: np.dtype(np.int32),
    Keys: KEY,
    NDArray[np.object_]: np.dtype(object),
}
"""The element type behind each annotation."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


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


def instant(moment: datetime) -> np.datetime64:
    """One aware datetime as an array element.

    >>> instant(datetime(2026, 5, 1, tzinfo=UTC))
    np.datetime64('2026-05-01T00:00:00.000000')
    """
    delta = moment - EPOCH
    return np.datetime64(
        (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds, "us"
    )


def moment(value: np.datetime64) -> datetime | None:
    """Give one array element back as an aware datetime; NaT is None."""
    if np.isnat(value):
        return None
    plain = value.astype(INSTANT).item()
    return plain.replace(tzinfo=UTC) if isinstance(plain, datetime) else None


def days(span: NDArray[np.timedelta64]) -> Floats:
    """Give (N,) time spans as float days; NaT is NaN."""
    return np.asarray(span / DAY, np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Arrays of one length, one per field; `None` fields are absent."""

    def __len__(self) -> int:
        return len(getattr(self, next(iter(self.__dataclass_fields__))))

    @classmethod
    def empty(cls, **shapes: tuple[int, ...]) -> Self:
        """Give no rows; `shapes` names the fields that have further dimensions."""
        return cls(
            **{f.name: np.zeros((0, *shapes.get(f.name, ())), COLUMN[f.type]) for f in fields(cls)}
        )

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        """Give the rows of all parts, one after the other."""
        if not parts:
            return cls.empty()
        names = cls.__dataclass_fields__
        return cls(**{name: np.concatenate([getattr(p, name) for p in parts]) for name in names})

    def take(self, where: NDArray[Any] | slice) -> Self:
        """Give the rows that a mask, an index array or a slice selects."""
        names = self.__dataclass_fields__
        return type(self)(**{name: getattr(self, name)[where] for name in names})


@dataclass(frozen=True, slots=True, kw_only=True)
class PageColumns(Columns):
    """(N,) pages as a caller describes them, each once."""

    key: Keys
    url: NDArray[np.object_]
    host: NDArray[np.object_]
    importance: Floats
    """NaN: keep what is stored, or 1 for a new page."""
    observability: Codes
    """UNSAID: keep what is stored, or auto for a new page."""
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
    observed_at: Instants
    changed: Codes
    """1 or 0 as the caller judged; UNSAID where it did not."""
    digest: Ints
    """Hash of the caller's content digest; 0: none given."""
    status: Codes
    """HTTP status, 0 where the host did not answer; UNSAID where none was given."""
    leased_page_id: Ints
    """The page of the lease under which the crawl was done; 0: there is none."""
    token: Ints
    """The token of that lease."""
    retry_after_s: Floats
    """How long the host asked to be left alone; NaN: it did not."""
    redirects_to: Ints
    """The page that this one redirected to; 0: it did not, UNSAID: to one nobody registered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PingColumns(Columns):
    """(N,) change notices in the caller's order."""

    page_id: Ints
    changed_at: Instants


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
    recent_pings: Ints
    """Pings since the start of the running interval."""
    real_pings: Floats
    """Evidence of the pings' precision beyond its prior: real ones; may be negative."""
    false_pings: Floats
    """The same: false ones."""
    trust: Floats
    """Log-likelihood ratio of "pings announce nearly all changes" (`core.trust`)."""
    wanted_at: Instants
    """The ping that asked for a crawl which has not been reported yet."""
    gap: Floats
    """The next crawl is due `gap / crawl_rate` days after the last one; a store may keep seven
    digits of it."""
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
    """1, 0, or UNSAID where the entry is no evidence of either."""
    interval: Floats
    """Days since the observation it was compared with; NaN where it is no evidence."""
    crawl_rate: Floats
    """The rate in force over the interval; NaN where none was."""
    status: Codes
    """HTTP status of the crawl; UNSAID where none was told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochColumns(Columns):
    """(N,) what an epoch reads of every page, by ascending page_id."""

    page_id: Ints
    importance: Floats
    observability: Codes
    min_crawl_rate: Floats
    max_crawl_rate: Floats
    host_id: Ints
    n_pings: Ints
    pings_since: Instants
    last_ping_at: Instants
    real_pings: Floats
    false_pings: Floats
    trust: Floats
    section: Sections
    """Which pages are believed to be alike, see `sections`."""
    estimate: Floats


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
    crawl_rate: Floats
    crawl_probability: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledPages(Columns):
    """(N,) rows of a published schedule by ascending page_id, their due times as of now."""

    page_id: Ints
    url: NDArray[np.object_]
    importance: Floats
    change_rate: Floats
    crawl_rate: Floats
    crawl_probability: Floats
    next_crawl_at: Instants
    """NaT where only a ping makes the page due."""


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


@dataclass(frozen=True, slots=True)
class ScheduleFilter:
    """Which rows of the schedule a caller asks for; None asks for all."""

    host: str | None = None
    page_id: int | None = None
    observability: Observability | None = None
    due_before: datetime | None = None


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
    section: int
    estimate: tuple[float, ...]
    change_rate: float | None
    crawl_rate: float | None
    crawl_probability: float | None
    next_crawl_at: datetime | None
    redirects_to: int | None
    redirects_to_url: str | None
    """None too where that page was deleted."""

    @property
    def retired(self) -> bool:
        """Gone for so long that it is never due by itself."""
        return self.gone and self.next_crawl_at is None


@dataclass(frozen=True, slots=True)
class PagePatch:
    """What PATCH changes of a page; a field in `cleared` is set to none."""

    importance: float | None = None
    observability: Observability | None = None
    min_crawl_rate: float | None = None
    max_crawl_rate: float | None = None
    cleared: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Lane:
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
    """One host: its own settings, and the lane it is crawled in."""

    host_id: int
    host: str
    group: str | None
    min_delay_s: float | None
    robots_delay_s: float | None
    max_concurrency: int | None
    max_crawl_rate: float | None
    lane: Lane
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
    lane: Lane
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
