"""Subscriptions to topics at WebSub hubs: the contract, and the SQL of both databases.

A subscription is in force from the hub's verification until the lease ends. A verified subscription
replaces earlier ones at the same hub. Ids cannot be guessed, because an id permits a hub to send.
"""

from abc import abstractmethod
from dataclasses import asdict
from datetime import datetime
from typing import Any

from typing_extensions import override

from service.model.errors import SubscriptionNotFound
from service.model.subscriptions import (
    ContentNote,
    HostPolicy,
    LeasePlan,
    Subscription,
    SubscriptionState,
    TroubledSubscription,
)
from service.storage.dialect import Dialect, Subject, assignments

SHOWN = 10
"""Maximum number of entries that are kept of those taken, and of those rejected."""
LISTS = ("listed_hosts", "last_taken", "last_rejected")
FIELDS = tuple(Subscription.__dataclass_fields__)
OF_SUBSCRIPTION = ", ".join(FIELDS)
ADD_SUBSCRIPTION = f"""
INSERT INTO websub ({OF_SUBSCRIPTION}) VALUES ({", ".join(f"%({name})s" for name in FIELDS)})
"""
NEXT_SUBSCRIPTIONS = (
    f"SELECT {OF_SUBSCRIPTION} FROM websub WHERE id > %(after)s ORDER BY id LIMIT %(limit)s"
)
SUBSCRIPTION = f"SELECT {OF_SUBSCRIPTION} FROM websub WHERE id = %(id)s"
CHANGE_SUBSCRIPTION = "UPDATE websub SET {assignments} WHERE id = %(id)s"
CHANGE_IF_SEEN = CHANGE_SUBSCRIPTION + " AND ask_at = %(seen)s"
DELETE_REPLACED = """
DELETE FROM websub WHERE topic = %(topic)s AND hub = %(hub)s
    AND requested_at <= %(requested_at)s AND id <> %(id)s
"""
"""Statement that deletes the subscriptions that a verified one replaces."""
DELETE_SUBSCRIPTION = "DELETE FROM websub WHERE id = %(id)s"
COUNT_CONTENT = """
UPDATE websub SET n_contents = n_contents + 1, n_unsigned = n_unsigned + %(n_unsigned)s,
    n_taken = n_taken + %(n_taken)s, n_rejected = n_rejected + %(n_rejected)s,
    last_content_at = %(now)s
WHERE id = %(id)s
"""
DUE_SUBSCRIPTIONS = f"""
SELECT {OF_SUBSCRIPTION} FROM (
    SELECT {OF_SUBSCRIPTION}, row_number() OVER (PARTITION BY hub ORDER BY ask_at, id) AS place
    FROM websub WHERE ask_at <= %(now)s
) AS due WHERE place <= %(of_hub)s ORDER BY ask_at, id LIMIT %(limit)s
"""
STATE = """CASE WHEN ending_at IS NOT NULL THEN 'ending' WHEN denied_at IS NOT NULL THEN 'denied'
    WHEN verified_at IS NULL THEN 'pending' WHEN expires_at <= %(now)s THEN 'ended'
    ELSE 'active' END"""
"""Expression of `Subscription.state`."""
COUNT_SUBSCRIPTIONS = f"SELECT {STATE} AS state, count(*) AS n FROM websub GROUP BY 1"
TROUBLED_SUBSCRIPTIONS = f"""
SELECT topic, hub, {STATE} AS state, requested_at, expires_at, warn_at FROM websub
WHERE warn_at <= %(now)s AND ending_at IS NULL ORDER BY warn_at, id LIMIT %(limit)s
"""


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
    def due_subscriptions(self, now: datetime, of_hub: int, limit: int) -> list[Subscription]:
        """Return subscriptions whose hub is to be asked, the first due first.

        Each hub has at most `of_hub`, so that no hub fills the list.
        """

    @abstractmethod
    def change_subscription(
        self, subscription_id: str, *, seen: datetime | None = None, **fields: Any
    ) -> bool:
        """Write fields; with `seen` only while `ask_at` is that. Return whether it was written."""

    @abstractmethod
    def verify_subscription(self, subscription_id: str, now: datetime, lease: LeasePlan) -> None:
        """Put a subscription in force; delete earlier ones to its topic at its hub."""

    @abstractmethod
    def end_subscription(self, subscription_id: str) -> None:
        """End a subscription; its row stays."""

    @abstractmethod
    def delete_subscription(self, subscription_id: str) -> None:
        """Delete a subscription; raise `SubscriptionNotFound`."""

    @abstractmethod
    def note_content(self, subscription_id: str, now: datetime, note: ContentNote) -> None:
        """Count what became of one content, and keep its last entries."""

    @abstractmethod
    def count_subscriptions(self, now: datetime) -> dict[SubscriptionState, int]:
        """Return the number of subscriptions in each state that any has."""

    @abstractmethod
    def troubled_subscriptions(self, now: datetime, limit: int) -> list[TroubledSubscription]:
        """Return subscriptions that somebody must look at, the longest first, at most `limit`."""


class SubscriptionsSql(Dialect, SubscriptionStatements):
    """The statements of subscriptions that Postgres and SQLite share."""

    @override
    def add_subscription(self, subscription: Subscription) -> None:
        self.run(ADD_SUBSCRIPTION, **_columns(asdict(subscription)))

    @override
    def subscriptions(self, after: str, limit: int) -> list[Subscription]:
        return list(map(_subscription, self.read(NEXT_SUBSCRIPTIONS, after=after, limit=limit)))

    @override
    def subscription(self, subscription_id: str) -> Subscription:
        for row in self.read(SUBSCRIPTION, id=subscription_id):
            return _subscription(row)
        raise SubscriptionNotFound

    @override
    def due_subscriptions(self, now: datetime, of_hub: int, limit: int) -> list[Subscription]:
        rows = self.read(DUE_SUBSCRIPTIONS, now=now, of_hub=of_hub, limit=limit)
        return list(map(_subscription, rows))

    @override
    def change_subscription(
        self, subscription_id: str, *, seen: datetime | None = None, **fields: Any
    ) -> bool:
        statement = CHANGE_SUBSCRIPTION if seen is None else CHANGE_IF_SEEN
        statement = statement.format(assignments=assignments(fields))
        values = _columns(fields) | ({} if seen is None else {"seen": seen})
        return self.run(statement, id=subscription_id, **values).rowcount > 0

    @override
    def verify_subscription(self, subscription_id: str, now: datetime, lease: LeasePlan) -> None:
        one = self.subscription(subscription_id)
        self.change_subscription(
            one.id,
            verified_at=now,
            expires_at=lease.expires_at,
            ask_at=None if one.public_url is None else lease.ask_at,
            warn_at=lease.warn_at,
            denied_at=None,
            n_asked=0,
            reason=None,
        )
        self.run(
            DELETE_REPLACED, id=one.id, topic=one.topic, hub=one.hub, requested_at=one.requested_at
        )

    @override
    def end_subscription(self, subscription_id: str) -> None:
        times = dict.fromkeys(("verified_at", "expires_at", "ask_at", "warn_at"))
        self.change_subscription(subscription_id, **times)

    @override
    def delete_subscription(self, subscription_id: str) -> None:
        if not self.run(DELETE_SUBSCRIPTION, id=subscription_id).rowcount:
            raise SubscriptionNotFound

    @override
    def note_content(self, subscription_id: str, now: datetime, note: ContentNote) -> None:
        counts = {name: getattr(note, name) for name in ("n_taken", "n_rejected", "n_unsigned")}
        # this locks the row, so that contents of one moment keep each other's entries
        self.run(COUNT_CONTENT, id=subscription_id, now=now, **counts)
        if not (note.taken or note.rejected):
            return
        for row in self.read(SUBSCRIPTION, id=subscription_id):
            last = _subscription(row)
            self.change_subscription(
                subscription_id,
                last_taken=(*note.taken, *last.last_taken)[:SHOWN],
                last_rejected=(*note.rejected, *last.last_rejected)[:SHOWN],
            )

    @override
    def count_subscriptions(self, now: datetime) -> dict[SubscriptionState, int]:
        rows = self.read(COUNT_SUBSCRIPTIONS, now=now)
        return {SubscriptionState(row["state"]): row["n"] for row in rows}

    @override
    def troubled_subscriptions(self, now: datetime, limit: int) -> list[TroubledSubscription]:
        return [
            TroubledSubscription(
                row["topic"],
                row["hub"],
                SubscriptionState(row["state"]),
                row["requested_at"],
                row["expires_at"],
                row["warn_at"],
            )
            for row in self.read(TROUBLED_SUBSCRIPTIONS, now=now, limit=limit)
        ]


def _columns(fields: dict[str, Any]) -> dict[str, Any]:
    """Return fields as values of columns; an empty list is NULL."""
    columns = {name: value or None if name in LISTS else value for name, value in fields.items()}
    if "host_policy" in columns:
        columns["host_policy"] = str(columns["host_policy"])
    return columns


def _subscription(row: dict[str, Any]) -> Subscription:
    lists = {name: tuple(row[name] or ()) for name in LISTS}
    return Subscription(**row | lists | {"host_policy": HostPolicy(row["host_policy"])})
