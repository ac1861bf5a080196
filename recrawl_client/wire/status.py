"""The state of a service at one instant, and what needs somebody."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from recrawl_client.wire.common import Instant, Item


class Need(Struct, frozen=True, kw_only=True):
    """Something that needs somebody."""

    kind: str
    """Kind, such as `no_crawler`; more kinds may come."""
    subject: str
    """Name of what it is about: a host, a worker, the id of a webhook; the worst of several."""
    n: int
    """Number of subjects; above 1 where many of one kind are one entry."""
    since: Instant
    """Instant at which the condition began, by what is stored."""
    sentence: str
    """The act, and the condition."""
    remedy: str
    """A command of `recrawl`, or a request: method, path and body."""


MOST_KIND, MOST_SUBJECT, MOST_REASON = 100, 2_048, 500
"""Maximum lengths of a kind, a subject and a reason, characters."""


class AcceptBody(Item, frozen=True, kw_only=True):
    """A need to accept."""

    kind: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=MOST_KIND,
            description="the kind of a need, such as window_too_narrow",
            examples=["window_too_narrow"],
        ),
    ]
    """Kind of the need, as `needs_you` of GET /status names it."""
    subject: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=MOST_SUBJECT,
            description="the subject of the need, such as a host",
            examples=["shop.example.com"],
        ),
    ]
    """Subject of the need."""
    for_s: Annotated[
        float,
        Meta(
            ge=60,
            le=7_776_000,
            description="a number of seconds from now, 60 to 7,776,000 (90 days)",
        ),
    ] = 2_592_000
    """Duration of the acceptance from now on, seconds."""
    reason: Annotated[
        str, Meta(max_length=MOST_REASON, description="a reason of at most 500 characters")
    ] = ""
    """Reason, for others who read it."""


class AcceptedNeed(Struct, frozen=True, kw_only=True):
    """A need that an operator has accepted for some time."""

    kind: str
    """Kind of the need."""
    subject: str
    """Subject of the need."""
    since: Instant | None
    """Instant at which the condition began; null while it does not hold."""
    sentence: str | None
    """The act, and the condition; null while it does not hold."""
    accepted_at: Instant
    """Instant of the acceptance."""
    until: Instant
    """Instant from which the need is shown again, if it still holds."""
    reason: str
    """Reason of the operator; empty: none was sent."""


class Today(Struct, frozen=True, kw_only=True):
    """Counts of the running UTC day, up to two seconds old."""

    n_leased: int
    """Number of leases."""
    n_reported: int
    """Number of accepted crawls."""
    n_failed: int
    """Number of accepted crawls with the outcome `failed`, `refused` or `doubtful`. `absent`
    is none of these, confirmed or not."""
    n_changed: int
    """Number of accepted crawls that found a change."""
    spent: float | None
    """Amount of the budget that crawls have taken, in its unit, as `spent_today` of GET /budget;
    null without a budget, and on the day on which its unit changed."""


class BudgetInForce(Struct, frozen=True, kw_only=True):
    """The budget that leases keep."""

    amount: float
    """Amount a day."""
    unit: str
    """Unit of the amount: crawls, bytes, seconds, or a currency."""
    loan_days: float
    """Maximum loan, in days of budget."""
    spent_until: Instant | None = None
    """Midnight to which the budget is spent; null while a crawl may come before."""
    next_at: Instant | None = None
    """Instant of the next crawl that the budget allows; null: one may come now."""


class EpochState(Struct, frozen=True, kw_only=True):
    """The epoch in force, and the newest one."""

    epoch: int | None
    """Number of the epoch in force; null before the first."""
    published_at: Instant | None
    """Instant since which it is in force."""
    newest: int | None
    """Number of the newest epoch, of any status; null: none was requested."""
    status: str | None
    """Status of the newest epoch: requested, running, published or failed."""
    reason: str | None
    """Reason why the newest epoch failed."""
    interval_s: float
    """Time from the start of one epoch to the next, seconds."""
    plan_notices: list[str] = []
    """Notices about the plan in force: that it has another budget, that minimum crawl rates exceed
    the budget, or that costs of pages are assumed."""


class StatusAnswer(Struct, frozen=True, kw_only=True):
    """The state of a service. Numbers of pages are null until they are counted."""

    at: Instant
    """Instant of the answer, by the clock of the database."""
    version: str
    """Version of the server that answers."""
    database: Literal["sqlite", "postgres"]
    """Kind of database."""
    counted: Literal["now", "last_step", "ids"]
    """`now`: all pages, at this request. `last_step`: of over 20,000 pages, as of the last step of
    the history. `ids`: by their numbers alone, so `n_pages` is an upper bound."""
    counted_at: Instant | None
    """Instant of the count."""
    n_pages: int
    """Number of pages that are not gone."""
    n_gone: int | None
    """Number of pages that are gone; null for over 20,000 pages."""
    n_never_crawled: int | None
    """Number of pages without a reported crawl."""
    n_stopped: int | None
    """Number of these that wait in a stopped URL group or by a rule: no crawl of theirs comes."""
    n_no_content: int | None
    """Number of pages without content in three crawls in a row."""
    n_overdue: int | None
    """Number of pages that were due before, also those that are leased, or that wait after leases
    without a report."""
    n_hosts_paused: int | None
    """Number of hosts that are not crawled now, after trouble or by an operator."""
    fresh_share: float | None
    """Expected share of pages whose copy is up to date, by importance. A page without a copy is not
    fresh. Null before a page is crawled a second time, because all change rates are assumed."""
    fresh_share_plain: float | None
    """The same with all pages alike."""
    n_assumed: int | None
    """Number of pages without evidence, whose change rates are assumed: as long as they are many,
    so is most of `fresh_share`. Null for over 20,000 pages."""
    harmonic_staleness: float | None
    """Expected harmonic staleness, by importance; 0 is always fresh."""
    n_leases: int
    """Number of leases that run."""
    n_waiting_items: int
    """Number of reported items that wait to be written at this server."""
    ready_since: Instant | None
    """Instant since which a page is due, its host open and budget left; null: none is."""
    leases_asked_at: Instant | None
    """Last request for leases at any server, up to a minute old; null: never."""
    schedule_read_at: Instant | None
    """Last reading of the schedule, as `leases_asked_at`."""
    today: Today
    """Counts of the running UTC day."""
    budget: BudgetInForce | None
    """Budget that leases keep; null: none is set."""
    epoch: EpochState
    """Epoch in force, and the newest one."""
    needs_you: list[Need]
    """Needs of the service, the most urgent first; empty: nothing needs somebody."""
    accepted: list[AcceptedNeed] = []
    """Needs that an operator has accepted; they are not in `needs_you`."""
    paused_until: Instant | None = None
    """End of the pause of all hosts by an operator; null: none is in force."""
