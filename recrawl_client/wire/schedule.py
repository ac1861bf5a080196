"""The published schedule and the epochs that published it."""

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from recrawl_client.wire.common import Instant
from recrawl_client.wire.history import Calibration


class ScheduledPage(Struct, frozen=True, omit_defaults=True):
    """One row of the published schedule; its due time is as of now."""

    page_id: int
    """The service's number of the page."""
    url: str
    """Normalised URL of the page."""
    importance: float
    """Cost of a stale moment of this page relative to other pages."""
    change_rate: float
    """Change rate that the epoch used, 1/day."""
    crawl_rate: float
    """Crawl rate, 1/day. A page without a copy has it from its first crawl on; until the next epoch
    the budget for refreshes leaves it out."""
    crawl_probability: float
    """Share of the page's pings that lead to a crawl, 0 to 1."""
    next_crawl_at: Instant | None
    """Instant of the next crawl; null when only a ping leads to one."""
    etag: str | None = None
    """ETag of the page's last answer with content, for If-None-Match; only with `validators`."""
    last_modified: Instant | None = None
    """Last-Modified of that answer, for If-Modified-Since; only with `validators`."""
    note: Any = None
    """Note of the crawler; only with `validators`."""


class ScheduleAnswer(Struct, frozen=True, kw_only=True):
    """A part of the schedule in force, by ascending page_id."""

    epoch: int | None
    """Number of the epoch that published the schedule; null before the first."""
    published_at: Instant | None
    """Instant of the publication; null before the first epoch."""
    bandwidth: float | None
    """Crawls a day that the schedule may spend; null before the first epoch."""
    items: list[ScheduledPage]
    """Rows of this part; fewer than `limit`, even none, do not mean the end."""
    removed: list[int] | UnsetType = UNSET
    """Numbers of the pages that are no longer scheduled; only with `since_epoch`."""
    next_cursor: str | None
    """`cursor` of the next part; null at the end."""


class Epoch(Struct, frozen=True, kw_only=True):
    """One run of the scheduler; missing results are null."""

    epoch: int
    """Number of the epoch."""
    status: Literal["requested", "running", "published", "failed"]
    """State of the run."""
    requested_at: Instant
    """Instant of the request."""
    started_at: Instant | None = None
    """Instant of the start."""
    finished_at: Instant | None = None
    """Instant of the publication or of the failure."""
    reason: str | None = None
    """Reason of a failure."""
    bandwidth: float | None = None
    """Budget of all requests a day, in `unit`."""
    planned: float | None = None
    """Part of the bandwidth for refreshes a day, in `unit`: the rest pays for first crawls and for
    requests that teach nothing."""
    overhead: float | None = None
    """Requests a day that teach nothing, such as retries, by those of the last seven days, in
    `unit`."""
    reserved: float | None = None
    """Part of the bandwidth that refreshes leave to first crawls a day, in `unit`: with `planned`
    and `overhead` it is the bandwidth, unless minimum crawl rates exceed their part."""
    first_crawls: float | None = None
    """Maximum of first crawls a day, above what is reserved: they come before refreshes. Null
    without a maximum, because no bandwidth is set."""
    bandwidth_used: float | None = None
    """Amount that the schedule spends on refreshes a day, in `unit`."""
    unit: str | None = None
    """Unit of the budget: `crawls`, `bytes`, `seconds` or a currency such as `USD`."""
    multiplier: float | None = None
    """Price of a crawl by which the optimum is found, in units of importance: one more crawl a day,
    at random times, saves it. `GET /plan` has the `gain` on the schedule's own cost."""
    harmonic_cost: float | None = None
    """Expected harmonic staleness of all pages, in units of importance; 0 means always fresh."""
    binary_cost: float | None = None
    """Expected importance of the pages that are stale at a random moment."""
    kkt_residual: float | None = None
    """Largest relative violation of an optimality condition, without a unit, 0 to 1; 0 means
    optimal."""
    duality_gap: float | None = None
    """Upper bound of the cost above the least possible, in units of importance; null means no
    bound."""
    passes: int | None = None
    """Number of passes over all pages in the search for the multiplier."""
    n_pages: int | None = None
    """Number of scheduled pages."""
    n_assumed_costs: int | None = None
    """Number of pages whose crawls have reported no cost in `unit`: the mean of their host, else of
    all pages, else a typical cost counts. 0 under a budget of crawls."""
    min_bandwidth: float | None = None
    """Sum of the minimum crawl rates of the pages with a copy, in `unit` a day: the least bandwidth
    with which an epoch succeeds."""
    budget_factor: float | None = None
    """Factor on all crawl rates, without a unit: 1 where crawlers take leases, else the one at
    which as many crawls are due until the next epoch as the bandwidth has."""
    prior: dict[str, float] | None = None
    """Parameters of the prior distribution of change rates; the names depend on the estimator.
    `age_0` to `age_11` are the age profile, where ages matter."""
    seconds: dict[str, float] | None = None
    """Duration of each stage, seconds."""
    calibration: list[Calibration] | None = None
    """Predictions against the crawls that were reported while the epoch was in force; null in
    lists."""


class EpochsAnswer(Struct, frozen=True, kw_only=True):
    """Epochs, newest first."""

    items: list[Epoch]
    """Epochs of this part."""
    next_cursor: str | None
    """`cursor` of the next part; null at the end."""
