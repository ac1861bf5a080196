"""Pages: what is registered, and what GET /pages shows of one."""

from datetime import datetime
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from recrawl_client.wire.common import Counts, Item, Url

Importance = Annotated[
    float,
    Meta(
        ge=1e-9,
        le=1e9,
        description="a positive number: what a stale moment of this page costs, relative to others",
        examples=[1.0],
    ),
]

MinRate = Annotated[
    float,
    Meta(
        ge=0,
        le=1e6,
        description="a number of crawls a day that is never undercut, but by a complete page whose "
        "pings are fewer; it wins over a max_crawl_rate below it",
    ),
]

MaxRate = Annotated[
    float, Meta(ge=1e-9, le=1e6, description="a positive number of crawls a day, never exceeded")
]

Watched = Annotated[
    Literal["incomplete", "complete", "auto"],
    Meta(
        description="incomplete: changes are seen only by crawling; complete: every change is "
        "announced by a ping; auto: crawls teach how far the page's pings can be trusted"
    ),
]


class Page(Item, frozen=True, kw_only=True):
    """A page to register, or what to change of a known one."""

    url: Url
    importance: Importance | UnsetType = UNSET
    observability: Watched | UnsetType = UNSET
    min_crawl_rate: MinRate | UnsetType = UNSET
    max_crawl_rate: MaxRate | UnsetType = UNSET


class PagePatchBody(Item, frozen=True, kw_only=True):
    """What to change of a page; null clears a bound."""

    importance: Importance | UnsetType = UNSET
    observability: Watched | UnsetType = UNSET
    min_crawl_rate: MinRate | UnsetType | None = UNSET
    max_crawl_rate: MaxRate | UnsetType | None = UNSET


class Registered(Counts, frozen=True, kw_only=True):
    """What became of the pages of a batch."""

    created: int
    page_ids: list[int | None]
    """By position in the request; null where the item was rejected."""


class Interval(Struct, frozen=True, kw_only=True):
    """A range of change rates, 1/day."""

    low: float
    high: float


class EstimateAnswer(Struct, frozen=True, kw_only=True):
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
    url_group_change_rate: Annotated[
        float | None,
        Meta(
            description="mean change rate of the pages of its URL group, the directory of its URL: "
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


class PageScheduleAnswer(Struct, frozen=True, kw_only=True):
    """A page's row of the schedule in force."""

    epoch: int
    change_rate: float
    crawl_rate: float
    crawl_probability: float
    urgency: float
    """Its next crawl comes so many times as soon as its crawl rate says, by what its siblings have
    shown since its last one."""
    next_crawl_at: datetime | None


class WhyAnswer(Struct, frozen=True, kw_only=True):
    """Why the page is crawled as often as it is."""

    sentence: str
    multiplier: float | None
    """What one more crawl a day is worth everywhere, in units of importance."""
    crawled_more_often_than: float | None
    """The share of all pages, 0 to 1, that are crawled less often."""
    next_change_expected_in_days: float


class CrawlAnswer(Struct, frozen=True, kw_only=True):
    """One entry of a page's log."""

    observed_at: datetime
    kind: Literal["crawl", "ping"]
    changed: bool | None
    interval: float | None
    status: int | None


class RedirectAnswer(Struct, frozen=True, kw_only=True):
    """The page that another one redirected to when it answered last."""

    page_id: int
    url: str | None
    """null: that page was deleted."""


class PageAnswer(Struct, frozen=True, kw_only=True):
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
