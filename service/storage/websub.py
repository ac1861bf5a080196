"""What every database promises of subscriptions to topics at WebSub hubs.

An id is unguessable: knowing it is what lets a hub call back. A subscription is in force from
its hub's verification until its lease ends; one that is verified takes the place of those that
were asked for before at the same hub, so renewing never interrupts a feed.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Subscription:
    """What was asked of a hub, and how far it has come."""

    id: str
    topic: str
    """As the publisher names it: hubs compare it letter by letter."""
    secret: str | None = field(repr=False)
    """What the hub signs with."""
    hub: str
    requested_at: datetime
    verified_at: datetime | None = None
    expires_at: datetime | None = None


class SubscriptionStatements(ABC):
    """The part of a transaction that works on subscriptions."""

    @abstractmethod
    def add_subscription(self, asked: Subscription) -> None:
        """Keep a new one."""

    @abstractmethod
    def subscriptions(self, after: str, limit: int) -> list[Subscription]:
        """Give those with id > after, ascending, at most `limit`."""

    @abstractmethod
    def subscription(self, subscription_id: str) -> Subscription:
        """Give one; raises `SubscriptionNotFound`."""

    @abstractmethod
    def verify_subscription(
        self, subscription_id: str, now: datetime, expires_at: datetime | None
    ) -> None:
        """Put one in force, and forget earlier ones to the same topic at the same hub."""

    @abstractmethod
    def end_subscription(self, subscription_id: str) -> None:
        """Take one out of force; it stays known."""

    @abstractmethod
    def delete_subscription(self, subscription_id: str) -> None:
        """Forget one; raises `SubscriptionNotFound`."""
