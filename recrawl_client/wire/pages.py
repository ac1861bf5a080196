"""Pages: the bodies of registrations, and the answer of GET /pages."""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from recrawl_client.wire.change_hours import ChangeHoursAnswer
from recrawl_client.wire.common import END, Counts, Instant, Item, Note, Url

Importance = Annotated[
    float, Meta(ge=1e-9, le=1e9, description="a positive number up to 1e9", examples=[1.0])
]

MinRate = Annotated[
    float, Meta(ge=0, le=1e6, description="a number of crawls a day, 0 to 1,000,000")
]

MaxRate = Annotated[
    float, Meta(ge=1e-9, le=1e6, description="a positive number of crawls a day, up to 1,000,000")
]

Watched = Annotated[
    Literal["incomplete", "complete", "auto"],
    Meta(description="one of incomplete, complete, auto"),
]


Kind = Annotated[
    Literal["page", "feed"],
    Meta(description="one of page, feed", examples=["feed"]),
]

Tag = Annotated[
    str,
    Meta(
        pattern=rf"^[a-z0-9][a-z0-9._:-]{{0,49}}{END}",
        description="1 to 50 lower-case letters, digits and . _ : -, a letter or digit first",
        examples=["news"],
    ),
]

MOST_TAGS = 16
"""Maximum number of tags of a page."""

Tags = Annotated[
    list[Tag],
    Meta(
        max_length=MOST_TAGS,
        description="a list of at most 16 tags: each of 1 to 50 lower-case letters, digits and "
        ". _ : -, a letter or digit first",
    ),
]


class Page(Item, frozen=True, kw_only=True):
    """A page to register, or changes to a page that is registered."""

    url: Url
    """URL of the page, its key."""
    importance: Importance | UnsetType = UNSET
    """Cost of a stale moment of this page relative to other pages; a new page has 1."""
    observability: Watched | UnsetType = UNSET
    """Source of changes. `incomplete`: only crawls show changes. `complete`: a ping announces
    every change. `auto`, for new pages: crawls show how far pings can be trusted."""
    min_crawl_rate: MinRate | UnsetType = UNSET
    """Minimum crawl rate, 1/day. The minimum wins over a `max_crawl_rate` of the host. A complete
    page with fewer pings is crawled less."""
    max_crawl_rate: MaxRate | UnsetType = UNSET
    """Maximum crawl rate, 1/day."""
    tags: Tags | UnsetType = UNSET
    """Tags of the page, all of them; an empty list removes them."""
    note: Note = UNSET
    """Note of the crawler, any JSON value of at most 1,024 bytes, which leases return; null removes
    the stored note."""
    note_if_new: bool | UnsetType = UNSET
    """True: only a page that is new to the service gets the `note`."""
    kind: Kind | UnsetType = UNSET
    """`feed` for a feed, which `recrawl watch` reads and no other worker gets; `page`, for new
    pages: any other page."""


class PagePatchBody(Item, frozen=True, kw_only=True):
    """Changes to a page; fields left out keep their value."""

    importance: Importance | UnsetType = UNSET
    """Cost of a stale moment of this page relative to other pages."""
    observability: Watched | UnsetType = UNSET
    """Source of changes: `incomplete` (crawls), `complete` (pings) or `auto` (learnt)."""
    min_crawl_rate: MinRate | UnsetType | None = UNSET
    """Minimum crawl rate, 1/day; null removes the bound."""
    max_crawl_rate: MaxRate | UnsetType | None = UNSET
    """Maximum crawl rate, 1/day; null removes the bound."""
    tags: Tags | UnsetType = UNSET
    """Tags of the page, all of them; an empty list removes them."""
    add_tags: Tags | UnsetType = UNSET
    """Tags to add."""
    remove_tags: Tags | UnsetType = UNSET
    """Tags to remove."""


class Registered(Counts, frozen=True, kw_only=True):
    """Outcomes of the pages of a batch."""

    created: int
    """Number of pages that are new to the service."""
    page_ids: list[int | None]
    """The service's number of each page, by position in the request; null for a rejected item."""


class Interval(Struct, frozen=True, kw_only=True):
    """A range of change rates, 1/day."""

    low: float
    """Lower end, 1/day."""
    high: float
    """Upper end, 1/day."""


class EstimateAnswer(Struct, frozen=True, kw_only=True):
    """The estimate of a page's change rate, and its evidence."""

    change_rate: float
    """Estimated change rate, 1/day."""
    assumed: bool = False
    """True if the page has no evidence of its own yet, so that the change rate is assumed."""
    credible_interval: Interval | None
    """Range that holds the change rate with probability 0.9; of the estimators mle and binned_mle
    a 90 % confidence interval. Null when the estimator has none."""
    url_group_change_rate: float | None
    """Mean change rate of the pages in the directory of this URL, 1/day. The estimate starts from
    this rate. Null when the estimate does not use other pages."""
    estimator: str
    """Name of the estimator."""
    n_observations: int
    """Number of intervals between crawls that count as evidence."""
    n_changes: int
    """Number of changes that crawls found, within the intervals that count as evidence."""
    n_pings: int
    """Number of pings."""
    last_observed_at: Instant | None
    """Instant of the last crawl that counts as evidence; null before the first."""
    last_ping_at: Instant | None
    """Instant of the last ping; null before the first."""


class PageScheduleAnswer(Struct, frozen=True, kw_only=True):
    """A page's row of the schedule in force."""

    epoch: int
    """Number of the epoch that published the schedule."""
    change_rate: float
    """Change rate that the epoch used, 1/day."""
    crawl_rate: float
    """Crawl rate, 1/day; of a page without a copy, from its first crawl on."""
    crawl_probability: float
    """Share of the page's pings that lead to a crawl, 0 to 1."""
    urgency: float
    """Factor on the crawl rate since the page's last crawl, by the changes in its URL group and
    by a shift of its next crawl; 1 means no effect."""
    shift_s: float | None = None
    """Time by which the next crawl was shifted to a better hour, seconds; negative for an earlier
    crawl. Null when the host has no change hours, or the page was crawled after the epoch."""
    next_crawl_at: Instant | None
    """Instant of the next crawl; null when only a ping leads to one."""


HoldKind = Literal[
    "leased",
    "unreported",
    "set_aside",
    "retired",
    "stopped",
    "waits_for_group",
    "unscheduled",
    "host_paused",
    "window_closed",
    "not_due",
    "cap",
    "budget",
    "income",
    "no_worker",
    "no_crawler",
    "host_busy",
    "ready",
]
"""Reasons why a page is not crawled now."""


class WhyAnswer(Struct, frozen=True, kw_only=True):
    """Why the page is crawled when it is: what holds it now, and what drives its crawl rate."""

    sentence: str
    """Sentences for people; the first begins with what to do."""
    hold: HoldKind
    """Reason why the page is not crawled now. `leased`: a worker crawls it. `unreported`,
    `set_aside`: its leases ended without a report. `retired`: never due by itself. `stopped`,
    `waits_for_group`: first crawls of its URL group. `unscheduled`: no due time. `not_due`: due
    later. `host_paused`, `window_closed`, `cap`, `budget`: as named. `income`: the
    budget has spent what the day has brought so far, and comes in shares. `no_worker`: nothing has
    queued it. `no_crawler`: nobody asks for leases. `host_busy`: other pages of its host come
    first. `ready`: the next request for leases gets it."""
    until: Instant | None
    """Earliest instant of the crawl by this reason; null when it is not known."""
    by: str | None
    """Worker of the lease, `site` or `operator` of a pause, host, group or URL group that holds it;
    null for none of these."""
    moved_to: str | None = None
    """URL to which the page has moved for good; null for a page that has not moved."""
    n_before: int = 0
    """Number of pages of its host that come before it; counted up to 10,000."""
    multiplier: float | None
    """Price of a crawl by which the optimum is found, in units of importance: one more crawl a day,
    at random times, saves it. Null when not recorded."""
    crawled_more_often_than: float | None
    """Share of all pages with lower crawl rates, 0 to 1; null when not recorded."""
    next_change_expected_in_days: float | None
    """Mean time until the next change, days; null when no change is expected."""


class CrawlAnswer(Struct, frozen=True, kw_only=True):
    """One entry of a page's log."""

    observed_at: Instant
    """Instant of the crawl or of the ping."""
    kind: Literal["crawl", "ping"]
    """Kind of the entry."""
    changed: bool | None
    """True if the page had changed; null when unknown."""
    interval: float | None
    """Days since the crawl before; null for the first crawl and for pings."""
    status: int | None
    """HTTP status, 0 for no answer; null when not reported."""
    robots_denied: bool = False
    """True if robots.txt forbade the crawl."""
    weight: float | None = None
    """Weight of the change as reported, if it was below 1; null otherwise."""


class RedirectAnswer(Struct, frozen=True, kw_only=True):
    """The page that another page redirected to at its last crawl."""

    page_id: int
    """The service's number of the target."""
    url: str | None
    """URL of the target; null when that page was deleted."""


class UnfinishedAnswer(Struct, frozen=True, kw_only=True):
    """Leases of a page that ended without a report, in a row."""

    n: int
    """Number of such leases; any accepted report sets it to 0."""
    ending: Literal["expired", "returned", "refused"]
    """End of the last one: it `expired`, was `returned`, or its report was `refused` by item."""
    worker: str | None
    """Name of its worker; null while a further lease runs."""
    ended_at: Instant | None
    """Instant of its end; null while a further lease runs."""
    next_crawl_at: Instant | None
    """Earliest instant of the next lease; null while one runs."""
    set_aside: bool
    """True after three such leases in a row: the page is tried once a day."""


class PageAnswer(Struct, frozen=True, kw_only=True):
    """One page: its settings, its estimate and its schedule."""

    page_id: int
    """The service's number of the page."""
    url: str
    """Normalised URL of the page."""
    host: str
    """Host of the URL."""
    importance: float
    """Cost of a stale moment of this page relative to other pages."""
    observability: Watched
    """Source of changes: `incomplete` (crawls), `complete` (pings) or `auto` (learnt)."""
    min_crawl_rate: float | None
    """Minimum crawl rate, 1/day; null for none."""
    max_crawl_rate: float | None
    """Maximum crawl rate, 1/day; null for none."""
    tags: list[str]
    """Tags of the page, in alphabetical order."""
    kind: Kind = "page"
    """`feed` for a feed, which only requests for leases of this kind get."""
    created_at: Instant
    """Instant of the registration."""
    gone: bool
    """True if two looks have found 404, 410 or a permanent redirect since the last content."""
    cost: float | None
    """Mean cost of its crawls in the unit of the budget, or the price that its site asks; null
    while none is known, and under a budget of crawls."""
    n_failures: int
    """Number of consecutive crawls without content; of a gone page, those that found it absent."""
    no_content: bool = False
    """True if the page is not gone, but had no content in three crawls in a row or more: it has no
    share of the budget, and is tried again ever more rarely."""
    retired: bool
    """True if only a ping or a registration leads to a crawl: the page was gone for long, or only
    redirects led to it."""
    hops: int = 0
    """Redirects from a page that was asked for to this page; 0 for a page that was asked for, below
    0 if no page redirects to it any more."""
    redirects_to: RedirectAnswer | None = None
    """Target of the redirect of the last answer; null for none."""
    last_crawl_at: Instant | None
    """Instant of the last crawl; null before the first."""
    etag: str | None = None
    """ETag of the last answer with content; null without one, and in doubt about the site's 304."""
    last_modified: Instant | None = None
    """Last-Modified of that answer; null like `etag`, and for a date within a minute before it."""
    note: Any = None
    """Note of the crawler; null without one."""
    estimate: EstimateAnswer
    """Estimate of the change rate."""
    schedule: PageScheduleAnswer | None
    """Row of the schedule in force; null before the first epoch with this page."""
    unfinished: UnfinishedAnswer | None = None
    """Leases that ended without a report; null if the last one was reported."""
    why: WhyAnswer
    """Reason why the page is not crawled now, and that for its crawl rate."""
    change_hours: ChangeHoursAnswer | None = None
    """Hours at which the pages of its URL group, or of its host, change; null when no such hours
    are known, or when its URL group keeps none."""
    last_crawls: list[CrawlAnswer]
    """Newest entries of the page's log, at most 10."""
