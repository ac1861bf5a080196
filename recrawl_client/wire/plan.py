"""Plans of other bandwidths."""

from msgspec import Struct

from recrawl_client.wire.common import Instant


class PlannedHost(Struct, frozen=True, kw_only=True):
    """Crawls of one host in a plan."""

    host: str
    """Name of the host."""
    n_pages: int
    """Number of pages of the host."""
    crawl_rate: float
    """Crawls a day of the pages of the host that have a copy, on the clock and on pings."""
    max_crawl_rate: float | None
    """Cap of the host, crawls a day; null without one of its own."""
    at_cap: bool
    """True if the cap of the host, or of its group, is used up."""


class PlannedTag(Struct, frozen=True, kw_only=True):
    """Crawls of the pages with one tag in a plan."""

    tag: str
    """The tag."""
    n_pages: int
    """Number of pages with the tag."""
    crawl_rate: float
    """Crawls a day of these pages, on the clock and on pings."""


class StarvedPage(Struct, frozen=True, kw_only=True):
    """A page whose minimum crawl rate does not fit into a bandwidth."""

    page_id: int
    """The service's number of the page."""
    min_crawl_rate: float
    """Minimum crawl rate of the page, 1/day."""


class WindowLossAnswer(Struct, frozen=True, kw_only=True):
    """Crawls of a host that its windows do not permit."""

    host: str
    """Name of the host."""
    wanted: float
    """Crawls a day that the plan has for the host without windows."""
    by_delay: float
    """Crawls a day that its open time is too short for, at its delay."""
    by_closures: float
    """Crawls a day of pages that are wanted more often than the host opens."""


class DelayLossAnswer(Struct, frozen=True, kw_only=True):
    """Crawls of a host, or of its group, that its delay does not permit."""

    host: str
    """Name of the host, of a group the one with most crawls."""
    wanted: float
    """Crawls a day that the plan would have without the delay."""
    permitted: float
    """Crawls a day that the delay permits, all day long."""
    staler: float
    """Share of the importance of its pages that is stale for want of these crawls, 0 to 1."""


class BudgetPlan(Struct, frozen=True, kw_only=True):
    """The plan that an epoch would make with a bandwidth; figures are null if it would fail."""

    bandwidth: float
    """Budget of all requests a day, in `unit`."""
    planned: float | None = None
    """Part of the bandwidth for refreshes a day, in `unit`."""
    overhead: float | None = None
    """Requests a day that teach nothing, in `unit`, as in the epoch in force."""
    reserved: float | None = None
    """Part of the bandwidth that refreshes leave to first crawls a day, in `unit`: with `planned`
    and `overhead` it is the bandwidth, unless minimum crawl rates exceed their part."""
    first_crawls: float | None = None
    """Maximum of first crawls a day, above what is reserved: they come before refreshes. Null
    without a maximum."""
    feasible: bool
    """True if all minimum crawl rates fit into the bandwidth."""
    reason: str | None = None
    """Reason why an epoch with this bandwidth would fail."""
    bandwidth_used: float | None = None
    """Amount that the plan spends on refreshes a day, in `unit`; 0 before the first copy."""
    multiplier: float | None = None
    """Price of a crawl by which the optimum is found, in units of importance: one more crawl a day,
    at random times, saves it. `gain` is the effect on the cost of this plan."""
    gain: float | None = None
    """Decrease of `harmonic_cost` by one more of the budget a day, in units of importance, by the
    plan of a bandwidth 1 % larger. Null where the cost is."""
    harmonic_cost: float | None = None
    """Expected harmonic staleness of the pages that have a copy, in units of importance; null where
    infinite, and while all change rates are assumed."""
    binary_cost: float | None = None
    """Expected importance of the copies that are stale at a random moment; null while all change
    rates are assumed."""
    fresh_share: float | None = None
    """Expected share of the importance that is fresh at a random moment, 0 to 1, with the intervals
    that windows of hosts leave. A page without a copy is not fresh. Null before a page is crawled a
    second time: all change rates are assumed."""
    hosts: list[PlannedHost] = []
    """Hosts with the most crawls, busiest first, `limit` at most."""
    tags: list[PlannedTag] = []
    """Tags with the most crawls, busiest first, `limit` at most."""
    window_losses: list[WindowLossAnswer] = []
    """Hosts that lose a tenth of their crawls or more to their windows, the worst first, 20 at
    most."""
    delay_losses: list[DelayLossAnswer] = []
    """Hosts whose delay makes a twentieth of their importance stale or more, the worst first, 20 at
    most."""
    n_starved: int = 0
    """Least number of pages that must lose their minimum so that all other minima fit."""
    starved: list[StarvedPage] = []
    """These pages, highest minimum first, `limit` at most."""


class PlanAnswer(Struct, frozen=True, kw_only=True):
    """Plans for other bandwidths beside that for the bandwidth in force."""

    epoch: int
    """Epoch in force, whose prior the estimates have."""
    at: Instant
    """Instant at which pages, caps and tags were read."""
    n_pages: int
    """Number of pages."""
    n_copies: int = 0
    """Number of pages that have a copy; the others wait for their first crawls."""
    n_assumed: int = 0
    """Number of pages without evidence, whose change rates are assumed."""
    n_assumed_costs: int = 0
    """Number of pages whose crawls have reported no cost in `unit`: the mean of their host, else of
    all pages, else a typical cost counts. 0 under a budget of crawls."""
    n_hosts: int
    """Number of hosts with pages."""
    min_bandwidth: float
    """Sum of all minimum crawl rates: the least bandwidth with which an epoch succeeds, in `unit` a
    day."""
    plan_notices: list[str] = []
    """Notices about the schedule in force: that it has another budget than `in_force`, or that the
    last epoch failed."""
    unit: str = "crawls"
    """Unit of the budget: `crawls`, `bytes`, `seconds` or a currency such as `USD`."""
    in_force: BudgetPlan
    """Plan that the next epoch would make with the budget of now, from the same estimates as the
    others. Without a budget it is the plan of a budget of this size."""
    items: list[BudgetPlan]
    """Plans with the requested bandwidths, in their order."""
