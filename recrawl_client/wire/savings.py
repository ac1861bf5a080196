"""Savings: what the fleet gained against crawling every page equally often."""

from msgspec import Struct

from recrawl_client.wire.common import Instant


class ComparedStaleness(Struct, frozen=True, kw_only=True):
    """A mean over time and pages, of this fleet and of uniform crawling; 0 is always fresh."""

    fleet: float
    """Mean under the crawls of the log."""
    uniform: float
    """Mean if every page had been crawled equally often, for the same amount of the budget, as far
    as the hosts allow it."""
    saved: float
    """Share of `uniform` that the fleet saved; below 0 uniform crawling would have been better."""
    low: float
    """Lower end of an interval of 90 % for `saved`: chance in the choice of pages."""
    high: float
    """Upper end of this interval."""


class SavingsAnswer(Struct, frozen=True, kw_only=True):
    """The gain of this fleet against uniform crawling, by its log and its change rates."""

    sentence: str
    """Sentence for people: the gain and by what it is estimated, or what the log lacks."""
    at: Instant
    """End of the window, at which the log was read."""
    since: Instant
    """Start of the window."""
    n_pages: int
    """Number of pages that count; of a sample those in it."""
    n_crawls: int
    """Number of their crawls in the window that showed content, without the first of each page."""
    n_changes: int
    """Number of these crawls that found a change."""
    crawl_interval: float | None
    """Mean time between two crawls of a page under uniform crawling, days; null without a crawl."""
    unit: str
    """Unit of the budget, in which both sides spend the same: `crawls`, `bytes`, `seconds`, or a
    currency."""
    spent: float
    """Amount that the crawls of each side take, at the present costs of their pages."""
    n_uniform: int
    """Number of crawls of uniform crawling."""
    n_cut: int
    """Number of pages whose hosts allow fewer crawls, by their delays, windows and caps."""
    equal_importance: bool
    """True if all pages have the same importance; else the means weigh by it."""
    sampled_share: float
    """Share of the pages that were read, 0 to 1."""
    harmonic: ComparedStaleness | None
    """Harmonic staleness: a copy with n changes since its crawl costs 1 + 1/2 + … + 1/n. Null while
    the log lacks something."""
    stale: ComparedStaleness | None
    """Share of the time in which a copy is stale; null while the log lacks something."""
    missing: str | None
    """Evidence that the log lacks for a comparison; null if none."""
