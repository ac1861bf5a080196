"""Subscriptions to topics at WebSub hubs: their fields, their state, and when they are renewed."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple

ASKED_S = 864_000
"""Lease that hubs are asked for, seconds: ten days."""
MAX_LEASE_S = 30 * 365 * 86_400
"""Maximum lease of a subscription, seconds; hubs without an end send very large numbers."""
RENEWED_AT, WARNED_AT = 2 / 3, 5 / 6
"""Shares of a lease after which it is renewed, and after which somebody must look at it."""
LEAST = timedelta(minutes=1)
"""Minimum time from a verification to the next request to the hub."""
FIRST_REQUEST = timedelta(minutes=1)
"""Time that a client has to ask the hub itself, before the worker asks."""
UNVERIFIED = timedelta(hours=1)
"""Time after which a hub should have verified a new subscription."""
WAITS_S = (60, 300, 1_800, 7_200, 21_600, 43_200)
"""Waits after the first, second, … request without a verification; the last one repeats."""
JITTER = 0.2
"""Maximum relative deviation of a wait."""


class HostPolicy(StrEnum):
    """Hosts whose pages a subscription takes."""

    same = "same"
    """The host of the topic."""
    listed = "listed"
    """That host, and those of a list."""
    any = "any"


class SubscriptionState(StrEnum):
    """States of a subscription."""

    pending = "pending"
    """The hub has not verified it."""
    active = "active"
    ended = "ended"
    """The lease is over, and nobody has renewed it."""
    denied = "denied"
    """The hub has refused it."""
    ending = "ending"
    """It was deleted, and the hub has not confirmed that yet."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """A subscription to a topic at a WebSub hub."""

    id: str
    topic: str
    """URL exactly as the publisher writes it, because hubs compare it letter by letter."""
    secret: str | None = field(repr=False)
    """Key of the hub's signatures."""
    hub: str
    requested_at: datetime
    verified_at: datetime | None = None
    expires_at: datetime | None = None
    host_policy: HostPolicy = HostPolicy.same
    listed_hosts: tuple[str, ...] = ()
    """Hosts beside the topic's whose pages are taken."""
    public_url: str | None = None
    """Address of the service for the hub; None: the worker sends the hub no requests."""
    ask_at: datetime | None = None
    """Instant of the next request to the hub; None: none."""
    warn_at: datetime | None = None
    """Instant from which somebody must look at the subscription; None: none."""
    denied_at: datetime | None = None
    ending_at: datetime | None = None
    """Instant of the deletion, until the hub has confirmed it."""
    n_asked: int = 0
    """Requests to the hub since its last verification."""
    reason: str | None = None
    """Last answer of the hub, where it has not verified the subscription."""
    n_contents: int = 0
    """Contents of the hub, also those without the agreed signature."""
    n_unsigned: int = 0
    """Contents without the agreed signature, which were ignored."""
    n_taken: int = 0
    n_rejected: int = 0
    last_content_at: datetime | None = None
    last_taken: tuple[dict[str, Any], ...] = ()
    """The last entries that were taken, the newest first: `at` and `url`."""
    last_rejected: tuple[dict[str, Any], ...] = ()
    """The last entries and contents that were not: also `code` and `detail`."""

    @property
    def callback(self) -> str:
        """Address that the hub calls; the path alone where the worker does not ask the hub."""
        return f"{self.public_url or ''}/websub/{self.id}"

    def state(self, now: datetime) -> SubscriptionState:
        """Return the state at an instant, as the statement that counts them."""
        if self.ending_at is not None:
            return SubscriptionState.ending
        if self.denied_at is not None:
            return SubscriptionState.denied
        if self.verified_at is None:
            return SubscriptionState.pending
        over = self.expires_at is not None and self.expires_at <= now
        return SubscriptionState.ended if over else SubscriptionState.active


class ContentNote(NamedTuple):
    """The outcome of one content of a hub."""

    n_taken: int
    n_rejected: int
    n_unsigned: int
    taken: tuple[dict[str, Any], ...] = ()
    rejected: tuple[dict[str, Any], ...] = ()


class TroubledSubscription(NamedTuple):
    """A subscription that ends unless somebody acts."""

    topic: str
    hub: str
    state: SubscriptionState
    requested_at: datetime
    expires_at: datetime | None
    since: datetime
    """Instant from which somebody must look at it."""


class LeasePlan(NamedTuple):
    """The instants that follow from the lease that a hub has granted."""

    expires_at: datetime | None
    """End of the lease; None: the hub named none."""
    ask_at: datetime
    """Instant of the renewal."""
    warn_at: datetime | None


def leased(lease_s: int | None, now: datetime) -> LeasePlan:
    """Return the plan of a lease; a lease of 0 seconds has no end, as that of hubs before WebSub.

    A renewal is due after two thirds of the lease, and after ten days at most.

    >>> from datetime import UTC
    >>> plan = leased(864_000, datetime(2026, 5, 1, tzinfo=UTC))
    >>> plan.ask_at.isoformat(), plan.expires_at.isoformat()
    ('2026-05-07T16:00:00+00:00', '2026-05-11T00:00:00+00:00')
    """
    lease = timedelta(seconds=min(lease_s or ASKED_S, MAX_LEASE_S))
    ask_at = now + max(min(lease * RENEWED_AT, timedelta(seconds=ASKED_S)), LEAST)
    if not lease_s:
        return LeasePlan(None, ask_at, None)
    return LeasePlan(now + lease, ask_at, now + lease * WARNED_AT)


def next_request(subscription: Subscription, now: datetime, uniform: float) -> datetime:
    """Return when the hub is asked again, after a request at `now`; `uniform` is in [0, 1).

    Waits grow, and are at most a quarter of the time that is left of the lease.
    """
    wait_s = WAITS_S[min(subscription.n_asked, len(WAITS_S) - 1)]
    wait = timedelta(seconds=wait_s * (1 + JITTER * (2 * uniform - 1)))
    if subscription.expires_at is not None and subscription.expires_at > now:
        wait = min(wait, max((subscription.expires_at - now) / 4, LEAST))
    return now + wait
