"""The wire format of orders: the budget, and pauses of one host or of all."""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from recrawl_client.wire.common import Instant, Item
from recrawl_client.wire.hosts import Until


class PauseBody(Item, frozen=True, kw_only=True):
    """A pause, by its duration or by its end."""

    for_s: (
        Annotated[
            float,
            Meta(ge=1, le=31_536_000, description="a number of seconds from now, 1 to 31,536,000"),
        ]
        | UnsetType
    ) = UNSET
    """Duration of the pause from now on, seconds."""
    until: Until | UnsetType = UNSET
    """End of the pause, in place of `for_s`."""


class PauseAnswer(Struct, frozen=True, kw_only=True):
    """The pause of all hosts."""

    paused_until: Instant | None
    """Instant before which no server leases; null while there is no pause."""


class BudgetBody(Item, frozen=True, kw_only=True):
    """A budget a day."""

    budget: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=60,
            description="an amount a day, such as 10000 crawls, 50 GB, 20 h or 30 USD",
            examples=["10000 crawls"],
        ),
    ]
    """Amount a day of crawls, bytes, seconds or money."""
    change_unit: bool = False
    """True: the budget may get another unit than the one in force, which is refused otherwise."""


class BudgetAnswer(Struct, frozen=True, kw_only=True):
    """The budget in force."""

    budget: str | None
    """Amount a day with its unit; null where none is set: 0.2 crawls for each page with a copy."""
    amount: float | None
    """The same as a number; null where none is set."""
    unit: str
    """Unit of the amount: `crawls`, `bytes`, `seconds`, or a currency such as `USD`."""
    set_by: Literal["operator", "settings", "default"]
    """Author of the budget: an `operator`, the `settings` of this server, or nobody."""
    set_at: Instant | None
    """Instant at which the operator set it; null for `settings` and `default`."""
    by_settings: str | None
    """Budget of the settings of this server, which holds once no operator's is set; null for
    none."""
    spent_today: float | None
    """Amount of this UTC day that crawls have taken, with loans: the leases of a budget of crawls,
    else the reports, as `today.spent` of GET /status. Null without a budget, and until midnight
    after a change to another unit than crawls."""
    held_today: float | None = None
    """Further amount that is held: under a budget of crawls by servers for their next leases, and
    for a minute after a server has died; else by leases whose costs are not reported. Null where
    `spent_today` is null."""
    left_today: float | None = None
    """Amount that crawls may still take on this UTC day, without a loan; null without a budget."""
    left_now: float | None = None
    """Part of it for crawls that are due now; the rest comes with the time. Null without a
    budget."""
    left_in_windows: float | None = None
    """Part of `left_today` that stays for hosts with windows that are closed now, or open for
    longer. `left_now` leaves it out. Null without a budget."""
    next_at: Instant | None = None
    """Instant of the next crawl that the budget allows; null: one may come now, or no budget."""
    plan_notices: list[str] = []
    """Notices about the plan in force: that it has another budget, that epochs fail, that minimum
    crawl rates exceed the budget, or that costs of pages are assumed."""
    notice: str | UnsetType = UNSET
    """Crawls that the budget does not bound; absent where it bounds all."""
