"""What GET /pages/{page_id} says: what is known of a page, when it is crawled, and why."""

from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta, Struct

from service.api.schemas import Watched


class Interval(Struct, kw_only=True):
    """A range of change rates, 1/day."""

    low: float
    high: float


class EstimateAnswer(Struct, kw_only=True):
    """What is known of a page's change rate."""

    change_rate: float
    credible_interval: Annotated[
        Interval | None,
        Meta(
            description="holds the change rate with probability 0.9 given the crawls (estimators "
            "gamma, lognormal and complete), or in about 90 % of repetitions: a confidence "
            "interval (mle, binned_mle); null where that cannot be told"
        ),
    ]
    section_change_rate: Annotated[
        float | None,
        Meta(
            description="mean change rate of the pages of its section, the directory of its URL: "
            "what is believed of the page before its first crawl; null where siblings have no "
            "part in the estimate"
        ),
    ]
    estimator: str
    n_observations: int
    n_changes: int
    n_pings: int
    last_observed_at: datetime | None
    last_ping_at: datetime | None


class PageScheduleAnswer(Struct, kw_only=True):
    """A page's row of the schedule in force."""

    epoch: int
    change_rate: float
    crawl_rate: float
    crawl_probability: float
    pace: float
    """Its next crawl comes so many times as soon as its crawl rate says, by what its siblings have
    shown since its last one."""
    next_crawl_at: datetime | None


class WhyAnswer(Struct, kw_only=True):
    """Why the page is crawled as often as it is."""

    sentence: str
    multiplier: float | None
    """What one more crawl a day is worth everywhere, in units of importance."""
    crawled_more_often_than: float | None
    """The share of all pages, 0 to 1, that are crawled less often."""
    next_change_expected_in_days: float


class CrawlAnswer(Struct, kw_only=True):
    """One entry of a page's log."""

    observed_at: datetime
    kind: Literal["crawl", "ping"]
    changed: bool | None
    interval: float | None
    status: int | None


class RedirectAnswer(Struct, kw_only=True):
    """The page that another one redirected to when it answered last."""

    page_id: int
    url: str | None
    """null: that page was deleted."""


class PageAnswer(Struct, kw_only=True):
    """One page: what it is, what is known of it, and what follows."""

    page_id: int
    url: str
    host: str
    importance: float
    observability: Watched
    min_crawl_rate: float | None
    max_crawl_rate: float | None
    created_at: datetime
    gone: bool
    """It answered 404 or 410 when it answered last, or has moved for good."""
    n_failures: int
    """Crawls in a row that got no answer; of a page that is gone, that found it gone."""
    retired: bool
    """Gone for so long that only a change notice or its registration has it crawled."""
    redirects_to: RedirectAnswer | None = None
    last_crawl_at: datetime | None
    estimate: EstimateAnswer
    schedule: PageScheduleAnswer | None
    why: WhyAnswer | None
    last_crawls: list[CrawlAnswer]
