"""Subscriptions to topics, in the words that both databases share."""

from dataclasses import asdict
from datetime import datetime

import sqlalchemy as sa

from service.errors import SubscriptionNotFound
from service.storage.tables import websub
from service.storage.websub import Subscription, SubscriptionTransaction


class SubscriptionsSql(SubscriptionTransaction):
    """The statements on subscriptions that Postgres and SQLite share."""

    connection: sa.Connection

    def add_subscription(self, asked: Subscription) -> None:
        """Insert a row."""
        self.connection.execute(websub.insert().values(asdict(asked)))

    def subscriptions(self, after: str, limit: int) -> list[Subscription]:
        """Read along their key."""
        rows = sa.select(websub).where(websub.c.id > after).order_by(websub.c.id).limit(limit)
        return [Subscription(**row) for row in self.connection.execute(rows).mappings()]

    def subscription(self, subscription_id: str) -> Subscription:
        """Find one by its key."""
        found = sa.select(websub).where(websub.c.id == subscription_id)
        row = self.connection.execute(found).mappings().one_or_none()
        if row is None:
            raise SubscriptionNotFound
        return Subscription(**row)

    def verify_subscription(
        self, subscription_id: str, now: datetime, expires_at: datetime | None
    ) -> None:
        """Write when, and delete what it takes the place of."""
        one = self.subscription(subscription_id)
        verified = websub.update().where(websub.c.id == subscription_id)
        self.connection.execute(verified.values(verified_at=now, expires_at=expires_at))
        self.connection.execute(
            websub.delete().where(
                websub.c.topic == one.topic,
                websub.c.hub == one.hub,
                websub.c.requested_at <= one.requested_at,
                websub.c.id != subscription_id,
            )
        )

    def end_subscription(self, subscription_id: str) -> None:
        """Write that it is neither verified nor runs."""
        ended = websub.update().where(websub.c.id == subscription_id)
        self.connection.execute(ended.values(verified_at=None, expires_at=None))

    def delete_subscription(self, subscription_id: str) -> None:
        """Delete a row, and see whether there was one."""
        deleted = websub.delete().where(websub.c.id == subscription_id)
        if not self.connection.execute(deleted).rowcount:
            raise SubscriptionNotFound
