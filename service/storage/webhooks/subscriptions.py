"""Subscriptions to topics at WebSub hubs: the contract, and the SQL of both databases.

A subscription is in force from the hub's verification until the lease ends. A verified subscription
replaces earlier ones at the same hub. Ids cannot be guessed, because an id permits a hub to send.
"""

from abc import abstractmethod
from dataclasses import asdict
from datetime import datetime

from typing_extensions import override

from service.model.domain import Subscription
from service.model.errors import SubscriptionNotFound
from service.storage.dialect import Dialect, Subject

OF_SUBSCRIPTION = ", ".join(Subscription.__dataclass_fields__)
ADD_SUBSCRIPTION = f"""
INSERT INTO websub ({OF_SUBSCRIPTION})
VALUES (%(id)s, %(topic)s, %(secret)s, %(hub)s, %(requested_at)s, %(verified_at)s, %(expires_at)s)
"""
NEXT_SUBSCRIPTIONS = (
    f"SELECT {OF_SUBSCRIPTION} FROM websub WHERE id > %(after)s ORDER BY id LIMIT %(limit)s"
)
SUBSCRIPTION = f"SELECT {OF_SUBSCRIPTION} FROM websub WHERE id = %(id)s"
VERIFY_SUBSCRIPTION = (
    "UPDATE websub SET verified_at = %(now)s, expires_at = %(expires_at)s WHERE id = %(id)s"
)
DELETE_REPLACED = """
DELETE FROM websub WHERE topic = %(topic)s AND hub = %(hub)s
    AND requested_at <= %(requested_at)s AND id <> %(id)s
"""
"""Statement that deletes the subscriptions that a verified one replaces."""
END_SUBSCRIPTION = "UPDATE websub SET verified_at = NULL, expires_at = NULL WHERE id = %(id)s"
DELETE_SUBSCRIPTION = "DELETE FROM websub WHERE id = %(id)s"


class SubscriptionStatements(Subject):
    """The statements of subscriptions."""

    @abstractmethod
    def add_subscription(self, subscription: Subscription) -> None:
        """Insert a subscription."""

    @abstractmethod
    def subscriptions(self, after: str, limit: int) -> list[Subscription]:
        """Return subscriptions with id > after, ascending, at most `limit`."""

    @abstractmethod
    def subscription(self, subscription_id: str) -> Subscription:
        """Return one subscription; raise `SubscriptionNotFound`."""

    @abstractmethod
    def verify_subscription(
        self, subscription_id: str, now: datetime, expires_at: datetime | None
    ) -> None:
        """Put a subscription in force; delete earlier ones to its topic at its hub."""

    @abstractmethod
    def end_subscription(self, subscription_id: str) -> None:
        """End a subscription; its row stays."""

    @abstractmethod
    def delete_subscription(self, subscription_id: str) -> None:
        """Delete a subscription; raise `SubscriptionNotFound`."""


class SubscriptionsSql(Dialect, SubscriptionStatements):
    """The statements of subscriptions that Postgres and SQLite share."""

    @override
    def add_subscription(self, subscription: Subscription) -> None:
        self.run(ADD_SUBSCRIPTION, **asdict(subscription))

    @override
    def subscriptions(self, after: str, limit: int) -> list[Subscription]:
        return [
            Subscription(**row) for row in self.read(NEXT_SUBSCRIPTIONS, after=after, limit=limit)
        ]

    @override
    def subscription(self, subscription_id: str) -> Subscription:
        for row in self.read(SUBSCRIPTION, id=subscription_id):
            return Subscription(**row)
        raise SubscriptionNotFound

    @override
    def verify_subscription(
        self, subscription_id: str, now: datetime, expires_at: datetime | None
    ) -> None:
        one = self.subscription(subscription_id)
        self.run(VERIFY_SUBSCRIPTION, id=one.id, now=now, expires_at=expires_at)
        self.run(
            DELETE_REPLACED, id=one.id, topic=one.topic, hub=one.hub, requested_at=one.requested_at
        )

    @override
    def end_subscription(self, subscription_id: str) -> None:
        self.run(END_SUBSCRIPTION, id=subscription_id)

    @override
    def delete_subscription(self, subscription_id: str) -> None:
        if not self.run(DELETE_SUBSCRIPTION, id=subscription_id).rowcount:
            raise SubscriptionNotFound
