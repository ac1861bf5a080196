"""Pages in lists, acts on many pages, and the answers of other lists."""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

from recrawl_client.wire.common import Instant, Item, PageId, Rejection, Url
from recrawl_client.wire.hosts import HostQueueAnswer
from recrawl_client.wire.pages import CrawlAnswer, HoldKind, Watched

MOST_NAMED = 10_000
"""Maximum number of pages that one request names."""

State = Literal["never_crawled", "retired", "gone", "no_content", "failing", "active"]

StateFilter = Literal[
    "active",
    "failing",
    "no_content",
    "gone",
    "retired",
    "never_crawled",
    "overdue",
    "moved",
    "refused",
    "unfinished",
    "set_aside",
]
"""Words that select pages: the states, and five words for pages of any state."""


PageOutcome = Literal[
    "content",
    "moved",
    "absent",
    "elsewhere",
    "refused",
    "empty",
    "failed",
    "unfinished",
    "doubtful",
    "offered",
]
"""Meanings of a crawl for its page."""


class ListedPage(Struct, frozen=True):
    """One page of a list; its due time is as of now."""

    page_id: int
    """The service's number of the page."""
    url: str
    """Normalised URL of the page."""
    state: State
    """State of the page: `never_crawled`, `active`, `failing`, `no_content`, `gone` or `retired`.
    `failing`: no content in the last crawl or two, or a price in its place. `no_content`: none in
    three or more, so no share of the budget. `retired`: long gone, so only a ping or a request
    leads to a crawl."""
    tags: list[str]
    """Tags of the page, in alphabetical order."""
    importance: float
    """Cost of a stale moment of this page relative to other pages."""
    observability: Watched
    """Source of changes: `incomplete` (crawls), `complete` (pings) or `auto` (learnt)."""
    min_crawl_rate: float | None
    """Minimum crawl rate, 1/day; null for none."""
    max_crawl_rate: float | None
    """Maximum crawl rate, 1/day; null for none."""
    change_rate: float | None
    """Change rate in the schedule in force, 1/day; null before the first epoch with this page."""
    crawl_rate: float | None
    """Crawl rate in the schedule in force, 1/day; of a page without a copy, from its first crawl
    on. Null before the first epoch with this page."""
    n_observations: int
    """Number of intervals between crawls that count as evidence."""
    n_changes: int
    """Number of changes that crawls found, within the intervals that count as evidence."""
    created_at: Instant
    """Instant of the registration."""
    last_crawl_at: Instant | None
    """Instant of the last crawl; null before the first."""
    next_crawl_at: Instant | None
    """Instant of the next crawl; null when only a ping leads to one."""
    redirect_url: str | None
    """URL of the page to which the last answer redirected; null for none."""
    n_unfinished: int = 0
    """Number of leases in a row that ended without a report; from 3 on the page is set aside."""
    outcome: PageOutcome | None = None
    """Outcome of the last crawl, such as `content`, `refused` or `failed`; null before the first
    one."""


class PagesAnswer(Struct, frozen=True, kw_only=True):
    """A part of the list of pages, by ascending page_id."""

    items: list[ListedPage]
    """Pages of this part; fewer than `limit`, even none, do not mean the end."""
    count: int | UnsetType = UNSET
    """Number of pages that the filters select; only with the parameter `count`."""
    count_is: Literal["exact", "estimate"] | UnsetType = UNSET
    """Kind of `count`: `exact`, or an `estimate` from samples; only with the parameter."""
    next_cursor: str | None
    """`cursor` of the next part; null at the end."""


class BulkAnswer(Struct, frozen=True, kw_only=True):
    """Outcome of an act on many pages."""

    dry_run: bool
    """True if nothing was changed."""
    matched: int
    """Number of pages that the filters select, or that the request names."""
    changed: int
    """Number of pages that differ now; 0 after a dry run."""
    n_rejected: int
    """Number of pages that the act leaves as they are."""
    rejected: list[Rejection]
    """First 1,000 of these pages, each with the reason."""
    next_cursor: str | None
    """`cursor` with which to send the request again, because it took too long for one answer; null
    when all pages are done."""


class RecrawlBody(Item, frozen=True, kw_only=True):
    """Pages to crawl as soon as politeness allows."""

    page_ids: Annotated[
        list[PageId],
        Meta(max_length=MOST_NAMED, description="a list of at most 10,000 numbers of pages"),
    ] = field(default_factory=list)
    """The service's numbers of pages; empty by default."""
    urls: Annotated[
        list[Url], Meta(max_length=MOST_NAMED, description="a list of at most 10,000 URLs")
    ] = field(default_factory=list)
    """URLs of pages; empty by default."""


class LogAnswer(Struct, frozen=True, kw_only=True):
    """A part of a page's log, newest entries first."""

    items: list[CrawlAnswer]
    """Entries of this part."""
    next_cursor: str | None
    """`cursor` of the next part; null at the end."""


class LeaseItem(Struct, frozen=True, kw_only=True):
    """A lease that runs."""

    page_id: int
    """The service's number of the page."""
    url: str
    """URL of the page."""
    host: str
    """Host of the URL."""
    worker: str
    """Name of the worker that holds the lease."""
    requested: bool
    """True if a ping or a request led to the crawl."""
    leased_at: Instant
    """Instant at which the lease began."""
    expires_at: Instant
    """Instant at which the lease ends unless the crawl is reported or the lease extended."""


class HeldPages(Struct, frozen=True, kw_only=True):
    """Due pages that one kind of hold keeps from a request for leases."""

    hold: HoldKind
    """Reason as in `why` of a page; `ready`: the next request gets them."""
    by: str | None
    """`site` or `operator` of a pause; null for the other kinds."""
    n_pages: int
    """Number of pages."""
    n_hosts: int
    """Number of hosts, or groups of hosts, that the pages belong to."""
    until: Instant | None
    """Earliest instant at which the hold of one of the hosts ends; null when it is not known."""
    sentence: str
    """Sentence for people on the host with most of the pages, which begins with what to do."""


class LeasesExplained(Struct, frozen=True, kw_only=True):
    """Why a request for leases gets nothing now."""

    sentence: str
    """Sentence for people, which begins with what to do."""
    n_due: int
    """Number of due pages within reach of the request that no lease holds, other than feeds; the
    metric `queue_due_pages` counts all such pages."""
    complete: bool
    """False if there may be more pages than were counted."""
    next_at: Instant | None
    """Earliest instant of the next lease that host and budget allow; null when nothing is queued,
    or the budget allows no crawl."""
    holds: list[HeldPages]
    """The due pages by what holds them, most pages first."""
    n_leased: int
    """Number of leases that run on the hosts within reach."""
    n_waiting: int
    """Number of pages that wait until their URL group is worth a first crawl."""
    n_unreported: int
    """Number of pages that wait after leases without a report."""


class LeasesAnswer(Struct, frozen=True, kw_only=True):
    """A part of the list of running leases, by ascending page_id."""

    items: list[LeaseItem]
    """Leases of this part; fewer than `limit`, even none, do not mean the end. Empty with
    `explain`."""
    next_cursor: str | None
    """`cursor` of the next part; null at the end."""
    explanation: LeasesExplained | None = None
    """Why a request for leases gets nothing now; null without `explain`."""


class ReturnedLeases(Struct, frozen=True, kw_only=True):
    """Leases of one worker that were returned for it."""

    worker: str
    """Name of the worker."""
    dry_run: bool
    """True if nothing was changed."""
    ended: int
    """Number of leases that ended; of a dry run, of those that would."""


class WorkerItem(Struct, frozen=True, kw_only=True):
    """A worker that holds leases, or has lost some."""

    worker: str
    """Name of the worker."""
    running: int
    """Number of leases that run."""
    lost: int
    """Number of pages whose last lease this worker lost, and that nobody has reported since."""
    expired: int
    """Number of those whose lease expired."""
    returned: int
    """Number of those whose lease was returned."""
    refused: int
    """Number of those whose report was refused by item."""


class WorkersAnswer(Struct, frozen=True, kw_only=True):
    """Workers, those first that lost most leases."""

    items: list[WorkerItem]
    """Workers; at most `limit`."""


class GroupItem(Struct, frozen=True, kw_only=True):
    """One group of hosts that share a server."""

    group: str
    """Name of the group."""
    min_delay_s: float | None
    """Minimum time from one crawl of the group to the next, seconds; null for the default."""
    max_concurrency: int | None
    """Maximum number of leases at a time; null for the default."""
    latency_factor: float | None = None
    """Delay over a high latency; null for the default."""
    max_delay_s: float | None = None
    """Maximum delay by latency, seconds; null for the default."""
    windows: list[str] | None = None
    """Windows of the group; null for those of all hosts."""
    blackouts: list[str] | None = None
    """Blackouts of the group; null for none."""
    max_crawl_rate: float | None
    """Maximum crawl rate of all pages of the group together, 1/day; null for none."""
    n_members: int
    """Number of hosts of the group."""
    host_queue: HostQueueAnswer
    """Politeness in force, and state of the group's queue."""


class GroupsAnswer(Struct, frozen=True, kw_only=True):
    """Groups of hosts, in the order of their creation."""

    items: list[GroupItem]
    """Groups of this part."""
    next_cursor: str | None
    """`cursor` of the next part; null at the end."""
