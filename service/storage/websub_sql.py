"""Subscriptions to topics, in the words that both databases share."""

from dataclasses import asdict
from datetime import datetime

from typing_extensions import override

from service.model.errors import SubscriptionNotFound
from service.storage.contract import Transaction
from service.storage.dialect import Dialect
from service.storage.websub import Subscription

COLUMNS = ", ".join(Subscription.__dataclass_fields__)
ADD = f"""
INSERT INTO websub ({COLUMNS})
VALUES (%(id)s, %(topic)s, %(secret)s, %(hub)s, %(requested_at)s, %(verified_at)s, %(expires_at)s)
"""
NEXT = f"SELECT {COLUMNS} FROM websub WHERE id > %(after)s ORDER BY id LIMIT %(limit)s"
ONE = f"SELECT {COLUMNS} FROM websub WHERE id = %(id)s"
VERIFY = "UPDATE websub SET verified_at = %(now)s, expires_at = %(expires_at)s WHERE id = %(id)s"
REPLACED = """
DELETE FROM websub WHERE topic = %(topic)s AND hub = %(hub)s
    AND requested_at <= %(requested_at)s AND id <> %(id)s
"""
"""Deletes the subscriptions that a verified one takes the place of."""
END = "UPDATE websub SET verified_at = NULL, expires_at = NULL WHERE id = %(id)s"
DELETE = "DELETE FROM websub WHERE id = %(id)s"


class SubscriptionsSql(Dialect, Transaction):
    """The statements on subscriptions that Postgres and SQLite share."""

    @override
    def add_subscription(self, asked: Subscription) -> None:
        self.run(ADD, **asdict(asked))

    @override
    def subscriptions(self, after: str, limit: int) -> list[Subscription]:
        return [Subscription(**row) for row in self.read(NEXT, after=after, limit=limit)]

    @override
    def subscription(self, subscription_id: str) -> Subscription:
        for row in self.read(ONE, id=subscription_id):
            return Subscription(**row)
        raise SubscriptionNotFound

    @override
    def verify_subscription(
        self, subscription_id: str, now: datetime, expires_at: datetime | None
    ) -> None:
        one = self.subscription(subscription_id)
        self.run(VERIFY, id=one.id, now=now, expires_at=expires_at)
        self.run(REPLACED, id=one.id, topic=one.topic, hub=one.hub, requested_at=one.requested_at)

    @override
    def end_subscription(self, subscription_id: str) -> None:
        self.run(END, id=subscription_id)

    @override
    def delete_subscription(self, subscription_id: str) -> None:
        if not self.run(DELETE, id=subscription_id).rowcount:
            raise SubscriptionNotFound
