"""What is sent and what is answered; fields are those of the HTTP API, described at /docs."""

from datetime import datetime

from msgspec import Struct


class Crawl(Struct, frozen=True, kw_only=True):
    """A page to crawl now; report it under its lease before that ends."""

    lease: str
    page_id: int
    url: str
    host: str
    reason: str
    """due, ping or first"""
    due_at: datetime
    last_crawl_at: datetime | None
    overdue: float
    expires_at: datetime


class Leased(Struct, frozen=True, kw_only=True):
    """Crawls handed out, the most overdue first."""

    items: list[Crawl]
    retry_after_s: float | None = None
    """Where nothing was due: when to come back."""


class Page(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A page to register; of a known one, what to change."""

    url: str
    importance: float | None = None
    observability: str | None = None
    """incomplete, complete or auto"""
    min_crawl_rate: float | None = None
    max_crawl_rate: float | None = None


class Observation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a crawl saw: of a page (url, page_id or lease) its change, digest or status."""

    observed_at: datetime
    lease: str | None = None
    url: str | None = None
    page_id: int | None = None
    changed: bool | None = None
    digest: str | None = None
    status: int | None = None
    """0: no answer."""
    retry_after_s: float | None = None
    last_modified: datetime | None = None
    """When the site says that the page was last modified; with a zone."""
    redirect_url: str | None = None
    """Where a redirect led, as an absolute URL."""


class Ping(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A notice that a page (url or page_id) has changed."""

    changed_at: datetime
    url: str | None = None
    page_id: int | None = None


class Rejection(Struct, frozen=True, kw_only=True):
    """Why one item was not taken."""

    index: int
    code: str
    detail: str
    field: str | None = None


class Counts(Struct, frozen=True, kw_only=True):
    """What became of the items that were sent; `rejected` names those that were not taken."""

    accepted: int = 0
    duplicate: int = 0
    late: int = 0
    rejected: list[Rejection] = []


class Reported(Counts, frozen=True, kw_only=True):
    """What became of observations."""

    leases_ended: int = 0


class Registered(Counts, frozen=True, kw_only=True):
    """What became of pages."""

    created: int = 0
    page_ids: list[int | None] = []
    """By position; None where the page was rejected."""


class Decision(Struct, frozen=True, kw_only=True):
    """Whether a ping leads to a crawl now, and why."""

    index: int
    page_id: int
    crawl: bool
    reason: str


class Pinged(Counts, frozen=True, kw_only=True):
    """What became of pings."""

    decisions: list[Decision] = []


class SitemapChild(Struct, frozen=True, kw_only=True):
    """A sitemap that an index names, to be fetched and sent next."""

    loc: str
    lastmod: datetime | None = None


class SitemapRead(Counts, frozen=True, kw_only=True):
    """What became of a sitemap's entries."""

    kind: str
    created: int
    n_crawl_now: int
    children: list[SitemapChild]
    warnings: list[str]
    complete: bool = True
    """False: send it again later, even if the site does not change it."""


class ScheduledPage(Struct, frozen=True, kw_only=True):
    """One row of the schedule in force; rates are per day."""

    page_id: int
    url: str
    importance: float
    change_rate: float
    crawl_rate: float
    crawl_probability: float
    next_crawl_at: datetime | None


class Epoch(Struct, frozen=True, kw_only=True):
    """One run of the scheduler."""

    epoch: int
    status: str
    """requested, running, published or failed"""
    requested_at: datetime
    finished_at: datetime | None = None
    reason: str | None = None
    bandwidth: float | None = None
    bandwidth_used: float | None = None
    harmonic_cost: float | None = None
    n_pages: int | None = None
