"""Freshness of copies: which pages to fetch again."""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from recrawl_client.wire.common import Instant, Item, Moment, PageId, Rejection, Url

MOST_COPIES = 10_000
"""Maximum number of copies of one request."""
DEFAULT_MAX_STALE = 0.5
"""Tolerance of a copy without `max_stale`."""

Tolerance = Annotated[float, Meta(ge=0, le=1, description="a probability, 0 to 1")]


class Copy(Item, frozen=True, kw_only=True):
    """A copy of a page, named by `url` or `page_id`."""

    url: Url | UnsetType = UNSET
    """URL of the page."""
    page_id: PageId | UnsetType = UNSET
    """The service's number of the page."""
    fetched_at: Moment | UnsetType = UNSET
    """Instant at which the copy was fetched; the page's last crawl by default."""
    max_stale: Tolerance | UnsetType = UNSET
    """Highest probability of a stale copy that is fresh enough, 0.5 by default."""


CopyState = Literal[
    "never_crawled",
    "active",
    "failing",
    "no_content",
    "refused",
    "gone",
    "moved",
    "retired",
]
"""States of pages for those who hold copies of them."""


class Verdict(Struct, frozen=True):
    """The freshness of one copy."""

    page_id: int | None
    """The service's number of the page; null for a page that is not registered."""
    fetch: bool
    """True if the page should be fetched: `stale` is above `max_stale`, or there is no copy. A page
    without content should be fetched at `next_crawl_at`, not before. False for a page in the state
    `gone`, `moved`, `retired` or `refused`: a fetch would bring nothing."""
    stale: float | None
    """Probability that the page has changed since the copy was fetched, 0 to 1; null without a
    copy."""
    expected_changes: float | None
    """Expected number of changes since then; null without a copy."""
    fetched_at: Instant | None
    """Instant at which the copy was fetched; null without a copy."""
    last_crawl_at: Instant | None
    """Instant of the page's last crawl; null before the first."""
    next_crawl_at: Instant | None
    """Instant of the next crawl; null when only a ping leads to one, or the page is not
    registered."""
    gone: bool
    """True if the last answer was 404, 410 or a permanent redirect."""
    no_content: bool = False
    """True if the page is not gone, but had no content in three crawls in a row or more."""
    state: CopyState | None = None
    """State of the page as in `GET /pages`; or `moved`: gone, because it redirects for good; or
    `refused`: its site or robots.txt refused the last crawl. Null for a page that is not
    registered."""
    moved_to: str | None = None
    """URL to which a page in the state `moved` redirects; null for others, and where no page is
    registered there."""


class FreshnessAnswer(Struct, frozen=True, kw_only=True):
    """Verdicts about copies, by position in the request."""

    at: Instant
    """Instant of the verdicts."""
    n_fetch: int
    """Number of copies to fetch."""
    n_rejected: int
    """Number of rejected items."""
    rejected: list[Rejection]
    """Rejected items in their order."""
    verdicts: list[Verdict | None]
    """Verdict of each copy; null for a rejected item."""
