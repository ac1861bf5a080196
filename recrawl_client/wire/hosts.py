"""The wire format of hosts and groups of hosts."""

from datetime import datetime
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from recrawl_client.wire.change_hours import ChangeHoursAnswer
from recrawl_client.wire.common import END, Instant, Item

MOST_MEMBERS = 1_000

Delay = Annotated[
    float,
    Meta(
        ge=0, le=86_400, description="a number of seconds from one crawl to the next, 0 to 86,400"
    ),
]
RobotsDelay = Annotated[
    float,
    Meta(
        ge=0,
        description="a number of seconds from one crawl to the next, 0 or more; a longer time than "
        "a day counts as a day",
    ),
]
Concurrency = Annotated[
    int, Meta(ge=1, le=10_000, description="a whole number of leases at a time, 1 to 10,000")
]
LatencyFactor = Annotated[
    float,
    Meta(
        ge=0,
        le=1_000,
        description="a number from 0 to 1,000, such as 5 for a delay of five times the latency; 0 "
        "for no delay by latency",
    ),
]
MaxDelay = Annotated[
    float, Meta(ge=0.001, le=86_400, description="a number of seconds, 0.001 to 86,400, such as 30")
]
MOST_WINDOWS = 50

Windows = Annotated[
    list[str],
    Meta(
        max_length=MOST_WINDOWS,
        description='a list of at most 50 windows, such as ["Mon-Fri 22:00-06:00 Europe/Berlin"]',
    ),
]
Blackouts = Annotated[
    list[str],
    Meta(
        max_length=MOST_WINDOWS,
        description="a list of at most 50 blackouts, such as "
        '["2026-12-24/2026-12-26 Europe/Berlin"]',
    ),
]
Cap = Annotated[
    float,
    Meta(
        ge=1e-9,
        le=1e9,
        description="a positive number of crawls a day up to 1e9; to stop all crawls, send "
        "blocked_until",
    ),
]
FirstShare = Annotated[
    float, Meta(ge=0, le=1, description="a share of the crawls of the host, 0 to 1")
]
Until = Annotated[
    datetime,
    Meta(tz=True, description="an RFC 3339 instant with a zone, such as 2026-05-01T12:00:00Z"),
]
GROUP_PATTERN = "^[A-Za-z0-9._:-]{1,100}$"
GroupName = Annotated[
    str,
    Meta(
        pattern=GROUP_PATTERN.removesuffix("$") + END,
        description="1 to 100 letters, digits and . _ : -",
    ),
]


class HostBody(Item, frozen=True, kw_only=True):
    """Settings of a host; null sets a field back to its default."""

    min_delay_s: Delay | UnsetType | None = UNSET
    """Minimum time from one crawl of the host to the next, seconds."""
    robots_delay_s: RobotsDelay | UnsetType | None = UNSET
    """Crawl-delay or Request-rate of the host's robots.txt for this crawler, seconds."""
    max_concurrency: Concurrency | UnsetType | None = UNSET
    """Maximum number of leases at a time."""
    latency_factor: LatencyFactor | UnsetType | None = UNSET
    """Delay over the latency while the latency is three times the usual one or more; 0 for none.
    From twice the usual latency on, one crawl runs at a time."""
    max_delay_s: MaxDelay | UnsetType | None = UNSET
    """Maximum delay by latency, seconds."""
    windows: Windows | UnsetType | None = UNSET
    """Windows in which the host may be crawled, in place of those of its group and of all hosts; []
    for no restriction. A window past midnight belongs to the day of its opening."""
    blackouts: Blackouts | UnsetType | None = UNSET
    """Local days on which the host is not crawled, beside those of its group and of all hosts."""
    max_crawl_rate: Cap | UnsetType | None = UNSET
    """Maximum crawl rate of all pages of the host together, 1/day."""
    first_share: FirstShare | UnsetType | None = UNSET
    """Maximum share of `max_crawl_rate`, and of turns beside known pages, for first crawls."""
    group: GroupName | UnsetType | None = UNSET
    """Group of hosts that share a server; the first use creates the group, null leaves it."""
    blocked_until: Until | UnsetType | None = UNSET
    """End of the operator's pause of the host, and of all hosts of its group; null ends it now."""
    false_304_at: Until | UnsetType | None = UNSET
    """Instant from which the host's 304 is not believed for 30 days; null trusts the host again."""


class GroupBody(Item, frozen=True, kw_only=True):
    """Settings of a group of hosts that share a server; null sets a field back to its default."""

    min_delay_s: Delay | UnsetType | None = UNSET
    """Minimum time from one crawl of the group to the next, seconds."""
    max_concurrency: Concurrency | UnsetType | None = UNSET
    """Maximum number of leases at a time."""
    latency_factor: LatencyFactor | UnsetType | None = UNSET
    """Delay over the latency while the latency is three times the usual one or more; 0 for none.
    From twice the usual latency on, one crawl runs at a time."""
    max_delay_s: MaxDelay | UnsetType | None = UNSET
    """Maximum delay by latency, seconds."""
    windows: Windows | UnsetType | None = UNSET
    """Windows in which the hosts may be crawled, in place of those of all hosts; [] for no
    restriction."""
    blackouts: Blackouts | UnsetType | None = UNSET
    """Local days on which the hosts are not crawled, beside those of all hosts."""
    max_crawl_rate: Cap | UnsetType | None = UNSET
    """Maximum crawl rate of all pages of the group together, 1/day."""
    blocked_until: Until | UnsetType | None = UNSET
    """End of the operator's pause of all hosts of the group; null ends it now."""
    members: (
        Annotated[
            list[str],
            Meta(max_length=MOST_MEMBERS, description="a list of at most 1,000 host names"),
        ]
        | UnsetType
    ) = UNSET
    """All hosts of the group; if the field is left out, no host joins or leaves."""


NextReason = Literal[
    "ready",
    "due",
    "delay",
    "lease",
    "cap",
    "paused",
    "window",
    "nothing_queued",
    "never_opens",
]
"""Reason for the next lease of a host: a page is ready, or falls due then; the delay after the last
crawl, a lease that runs, the cap of the day, a pause or a closed window ends then. No page is
queued; no window opens within a year."""


class HostQueueAnswer(Struct, frozen=True, kw_only=True):
    """The queue of crawls of a host, or of a group of hosts that share a server."""

    delay_s: float
    """Time from one crawl to the next in force, seconds."""
    concurrency: int | None = None
    """Number of leases that may run at a time; null for any number."""
    blocked_until: Instant | None = None
    """End of the pause by an operator; null for none."""
    paused_until: Instant | None = None
    """End of the pause by the site, after trouble or by its Retry-After; null for none."""
    ready_at: Instant | None = None
    """End of the delay after the last crawl; null before the first crawl."""
    next_at: Instant | None = None
    """Earliest instant at which a page of the queue can be leased, by the host alone and not by the
    budget. A report may bring it forward. Null when there is none."""
    next_reason: NextReason
    """Reason for `next_at`: it ends then, or leaves no such instant."""
    n_failures: int
    """Number of consecutive reports of 429, 503, timeouts and server errors."""
    latency_s: float | None = None
    """Present latency by the `seconds` of reports; null without a `latency_factor` or reports."""
    usual_latency_s: float | None = None
    """Latency over the last 1,000 crawls, seconds; null like `latency_s`."""
    slowed: bool = False
    """True while one crawl runs at a time, or with a longer delay, because of the latency."""


class OpenStretch(Struct, frozen=True, kw_only=True):
    """A stretch of time in which a host may be crawled."""

    opens_at: Instant
    """Begin of the stretch."""
    closes_at: Instant
    """End of the stretch; no lease begins in the last 30 seconds."""


class OpenHoursAnswer(Struct, frozen=True, kw_only=True):
    """When a host may be crawled, by the windows and blackouts in force."""

    windows: list[str] | None = None
    """Windows in force; null for none."""
    blackouts: list[str]
    """Blackouts in force: those of the host, of its group and of all hosts."""
    is_open: bool
    """True if a crawl may begin now."""
    opens_at: Instant | None = None
    """Next opening; null while the host is open, and without an opening within a year."""
    closes_at: Instant | None = None
    """Next closing; null while the host is closed, and without a closing within a year."""
    share: float
    """Open share of the time, without blackouts, 0 to 1."""
    week: list[OpenStretch]
    """Stretches of the coming seven days."""


class FeedAnswer(Struct, frozen=True, kw_only=True):
    """The pings of a host's `auto` pages, and their reliability."""

    n_pages: int
    """Number of pages with at least one ping."""
    n_pings: int
    """Number of pings."""
    ping_rate: float
    """Pings of all pages, 1/day."""
    real: float
    """Share of the pings that announce a change, 0 to 1."""
    false: float
    """Share of the pings that announce no change, 0 to 1."""
    trust: float
    """Mean log-likelihood ratio for "pings announce nearly all changes"; 4.6 decides."""
    last_ping_at: Instant
    """Instant of the last ping."""
    silent_days: float
    """Time since the last ping, days."""
    silent: bool
    """True if the silence is too long to be chance; pages are then crawled as if without pings."""


HostOrder = Literal[
    "host_id",
    "-host_id",
    "host",
    "-host",
    "n_pages",
    "-n_pages",
    "n_overdue",
    "-n_overdue",
    "asked_rate",
    "-asked_rate",
]
"""Order of a list of hosts: registration, name, or a load; a minus means descending."""


class HostLoad(Struct, frozen=True, kw_only=True):
    """Load of a host at the last measurement."""

    n_pages: int
    """Number of pages that were not gone."""
    n_overdue: int
    """Number of pages that were due before."""
    asked_rate: float
    """Crawls a day at which the pages fall due."""
    measured_at: Instant
    """Instant of the measurement."""
    sampled_share: float
    """Share of the pages that were measured; below 1 the numbers are estimates."""


IncidentKind = Literal["absent", "refused", "alike", "moved"]
"""Sign that most pages of a host show in an incident: absent, refused, or of one digest."""


class IncidentAnswer(Struct, frozen=True, kw_only=True):
    """An incident of a host: within an hour most of its pages showed the same.

    Crawls that show it teach nothing. It ends with the first other content, by an
    operator, or after a day.
    """

    kind: IncidentKind
    """Sign that the pages show."""
    since: Instant
    """Instant of the first crawl that showed it."""
    until: Instant
    """Instant from which the crawls count, if no other content comes before."""
    n_pages: int
    """Number of pages that have shown it."""


class HostItem(Struct, frozen=True, kw_only=True):
    """A host: its settings and its queue."""

    host: str
    """Name of the host."""
    group: str | None = None
    """Group of hosts that share a server; null for none."""
    min_delay_s: float | None = None
    """Minimum time from one crawl to the next as set, seconds; null for the default."""
    robots_delay_s: float | None = None
    """Delay of robots.txt as reported, seconds; null for none."""
    max_concurrency: int | None = None
    """Maximum number of leases at a time as set; null for the default."""
    latency_factor: float | None = None
    """Delay over a high latency as set; null for the default."""
    max_delay_s: float | None = None
    """Maximum delay by latency as set, seconds; null for the default."""
    windows: list[str] | None = None
    """Windows as set for this host; null for those of its group or of all hosts."""
    blackouts: list[str] | None = None
    """Blackouts as set for this host; null for none."""
    max_crawl_rate: float | None = None
    """Maximum crawl rate of all pages together as set, 1/day; null for none."""
    first_share: float | None = None
    """Maximum share of `max_crawl_rate`, and of turns beside known pages, for first crawls as set;
    null for the default."""
    host_queue: HostQueueAnswer
    """Queue of the host; of a host in a group, the queue of the group."""
    incident: IncidentAnswer | None = None
    """Incident in force; null for none."""


class ListedHost(HostItem, frozen=True, kw_only=True):
    """A host: its settings, its queue and its load."""

    load: HostLoad | None = None
    """Load of the host; null when it had no page at the last measurement."""


class HostAnswer(HostItem, frozen=True, kw_only=True):
    """A host: its settings, its queue and the sums over its pages."""

    n_pages: int
    """Number of pages."""
    n_queued: int
    """Number of pages that are due soon and not leased."""
    n_leased: int
    """Number of leased pages."""
    crawl_rate: float | None = None
    """Crawls a day, on the clock and on pings, of the pages that had a copy when the epoch in force
    began; null above a million pages."""
    feed: FeedAnswer | None = None
    """Pings of the host; null when no `auto` page has had a ping since its registration."""
    change_hours: ChangeHoursAnswer | None = None
    """Hours at which the pages of the host change; null when no such hours are known."""
    url_group_hours: list[ChangeHoursAnswer] = []
    """Hours of URL groups that keep hours of their own, at most 20."""
    open_hours: OpenHoursAnswer | None = None
    """When the host may be crawled; null for at all times."""
    false_304_at: Instant | None = None
    """Instant at which a 304 of the host proved wrong; its pages are requested without validators
    for 30 days from then. Null without a proof."""


class HostsAnswer(Struct, frozen=True, kw_only=True):
    """Hosts in the order that was requested."""

    items: list[ListedHost]
    """Hosts of this part."""
    next_cursor: str | None
    """`cursor` of the next part; null at the end."""


class GroupAnswer(Struct, frozen=True, kw_only=True):
    """Hosts that share a server: one queue, one maximum crawl rate."""

    group: str
    """Name of the group."""
    min_delay_s: float | None = None
    """Minimum time from one crawl to the next as set, seconds; null for the default."""
    robots_delay_s: float | None = None
    """Longest delay of a member's robots.txt, seconds; null for none."""
    max_concurrency: int | None = None
    """Maximum number of leases at a time as set; null for the default."""
    latency_factor: float | None = None
    """Delay over a high latency as set; null for the default."""
    max_delay_s: float | None = None
    """Maximum delay by latency as set, seconds; null for the default."""
    windows: list[str] | None = None
    """Windows as set for the group; null for those of all hosts."""
    blackouts: list[str] | None = None
    """Blackouts as set for the group; null for none."""
    max_crawl_rate: float | None = None
    """Maximum crawl rate of all pages together as set, 1/day; null for none."""
    host_queue: HostQueueAnswer
    """Queue of the group."""
    open_hours: OpenHoursAnswer | None = None
    """When hosts without windows of their own may be crawled; null for at all times."""
    n_members: int
    """Number of members."""
    members: list[str]
    """Hosts of the group by name, the first 1,000."""
