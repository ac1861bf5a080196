"""Webhooks: the contract, and the SQL of both databases.

**Claims.** One process at a time delivers for a webhook: `claim_webhook` sets a token and an end.
Only the holder of the token may save the state of deliveries, with the row locked. So a process
that was held up beyond its claim changes nothing.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from typing_extensions import override

from service.model.arrays import Ints
from service.model.errors import WebhookNotFound
from service.model.webhooks import (
    Delivery,
    DuePlace,
    OldSecret,
    ParkedPage,
    TroubledWebhook,
    Webhook,
    WebhookProgress,
    WebhookStatus,
)
from service.storage.dialect import WEBHOOKS_HELD, Dialect, Subject, assignments

DELIVERIES_KEPT = 1_000
"""Minimum number of deliveries that are kept for each webhook."""
BEFORE_ALL = DuePlace()
"""Place before all due webhooks."""


class WebhookStatements(Subject):
    """The statements of webhooks."""

    @abstractmethod
    def add_webhook(self, webhook: Webhook) -> None:
        """Insert a webhook."""

    @abstractmethod
    def webhooks(self, after: str, limit: int) -> list[Webhook]:
        """Return webhooks with id > after, ascending, at most `limit`."""

    @abstractmethod
    def webhook(self, webhook_id: str) -> Webhook:
        """Return one webhook; raise `WebhookNotFound`."""

    @abstractmethod
    def change_webhook(self, webhook_id: str, **fields: Any) -> Webhook:
        """Lock a webhook, set fields and return it; raise `WebhookNotFound`."""

    @abstractmethod
    def delete_webhook(self, webhook_id: str) -> None:
        """Delete a webhook with its deliveries and parked pages; raise `WebhookNotFound`."""

    @abstractmethod
    def due_webhooks(
        self, now: datetime, newest: int, limit: int, after: DuePlace = BEFORE_ALL
    ) -> list[Webhook]:
        """Return active webhooks with changes to deliver whose time has come, after a place.

        Those that wait longest come first, those of one time by id.
        """

    @abstractmethod
    def next_due_webhook(self) -> datetime | None:
        """Return when the time of the first active webhook comes; None: there is none.

        The time of a webhook that a process has claimed comes with the end of the claim.
        """

    @abstractmethod
    def claim_webhook(self, webhook_id: str, now: datetime, until: datetime) -> Webhook | None:
        """Claim a due webhook until an instant; None if another process was first."""

    @abstractmethod
    def lock_webhook(self, webhook_id: str, token: int) -> Webhook | None:
        """Lock and return a claimed webhook; None if it was deleted or claimed again."""

    @abstractmethod
    def renew_claims(self, tokens: Mapping[str, int], until: datetime) -> None:
        """Set the end of claims, by webhook_id and token; those given up or lost stay so."""

    @abstractmethod
    def redate_webhooks(self, now: datetime) -> None:
        """Set waits, claims and first failures after `now` to `now`, after a clock that ran ahead.

        A delivery whose claim ends here while it runs is repeated by the next process.
        """

    @abstractmethod
    def webhook_progress(self, limit: int) -> list[WebhookProgress]:
        """Return how far the deliveries of webhooks are, by id, at most `limit`."""

    @abstractmethod
    def troubled_webhooks(self, limit: int) -> list[TroubledWebhook]:
        """Return webhooks that fail or are disabled, by id, at most `limit`."""

    @abstractmethod
    def add_delivery(self, delivery: Delivery) -> None:
        """Insert a delivery; delete old ones now and then."""

    @abstractmethod
    def deliveries(self, webhook_id: str, before: int, limit: int) -> list[Delivery]:
        """Return deliveries with number < before, newest first, at most `limit`."""

    @abstractmethod
    def park_page(self, page: ParkedPage) -> None:
        """Insert a parked page."""

    @abstractmethod
    def parked_pages(self, webhook_id: str) -> list[ParkedPage]:
        """Return the parked pages of a webhook by page_id."""

    @abstractmethod
    def parked_of(self, webhook_id: str) -> Ints:
        """Return the page_ids of parked pages, ascending."""

    @abstractmethod
    def release_pages(self, webhook_id: str) -> None:
        """Delete all parked pages of a webhook."""


def insertion(table: str, names: Sequence[str]) -> str:
    """Return the statement that inserts a row from parameters of the same names.

    >>> insertion("webhooks", ["id", "url"])
    'INSERT INTO webhooks (id, url) VALUES (%(id)s, %(url)s)'
    """
    values = ", ".join(f"%({name})s" for name in names)
    return f"INSERT INTO {table} ({', '.join(names)}) VALUES ({values})"


FIELDS = tuple(Webhook.__dataclass_fields__)
SELECT = f"SELECT {', '.join(FIELDS)} FROM webhooks"
ADD = insertion("webhooks", FIELDS)
NEXT = f"{SELECT} WHERE id > %(after)s ORDER BY id LIMIT %(limit)s"
ONE = f"{SELECT} WHERE id = %(id)s"
LOCK = f"{ONE} {{lock_rows}}"
CHANGE = f"""
UPDATE webhooks SET {{assignments}} WHERE id = %(id)s RETURNING {", ".join(FIELDS)}
"""
DELETE = tuple(
    f"DELETE FROM {table} WHERE {name} = %(id)s"
    for table, name in (
        ("webhook_deliveries", "webhook_id"),
        ("parked_pages", "webhook_id"),
        ("webhooks", "id"),
    )
)
NOT_HELD = f"NOT EXISTS (SELECT 1 FROM meta WHERE name = '{WEBHOOKS_HELD}')"
DUE = f"""status = 'active' AND next_at <= %(now)s
    AND (leased_until IS NULL OR leased_until <= %(now)s) AND {NOT_HELD}"""
DUE_WEBHOOKS = f"""
{SELECT} WHERE {DUE} AND (seq <= %(newest)s OR delivery IS NOT NULL)
    AND (next_at > %(after_at)s OR next_at = %(after_at)s AND id > %(after_id)s)
ORDER BY next_at, id LIMIT %(limit)s
"""
NEXT_DUE = f"""
SELECT min(CASE WHEN leased_until > next_at THEN leased_until ELSE next_at END) AS next_at
FROM webhooks WHERE status = 'active' AND {NOT_HELD}
"""
CLAIM = f"""
UPDATE webhooks SET token = token + 1, leased_until = %(until)s WHERE id = %(id)s AND {DUE}
"""
"""Statement that succeeds for one of two callers."""

RENEW = """
UPDATE webhooks SET leased_until = %(until)s
WHERE id = %(id)s AND token = %(token)s AND leased_until IS NOT NULL
"""
DATED = ("next_at", "leased_until", "failing_since")
REDATE = f"""
UPDATE webhooks SET {
    ", ".join(f"{name} = CASE WHEN {name} > %(now)s THEN %(now)s ELSE {name} END" for name in DATED)
} WHERE {" OR ".join(f"{name} > %(now)s" for name in DATED)}
"""

PROGRESS = """
SELECT id, status, (SELECT min(feed.seq) FROM feed WHERE feed.seq >= webhooks.seq) AS oldest,
    n_confirmed, n_refused, n_failed
FROM webhooks ORDER BY id LIMIT %(limit)s
"""
"""Statement that visits the index of the feed once for each webhook."""

TROUBLED = """
SELECT id, url, status, reason, n_confirmed, failing_since, created_at,
    (SELECT max(sent_at) FROM webhook_deliveries WHERE webhook_id = webhooks.id) AS sent_at
FROM webhooks
WHERE status = 'disabled' OR status = 'active' AND failing_since IS NOT NULL
ORDER BY id LIMIT %(limit)s
"""
DELIVERY = tuple(name for name in Delivery.__dataclass_fields__ if name != "number")
ADD_DELIVERY = f"{insertion('webhook_deliveries', DELIVERY)} RETURNING number"
DELIVERIES = f"""
SELECT number, {", ".join(DELIVERY)} FROM webhook_deliveries
WHERE webhook_id = %(id)s AND number < %(before)s ORDER BY number DESC LIMIT %(limit)s
"""
TRIM_DELIVERIES = """
DELETE FROM webhook_deliveries WHERE webhook_id = %(id)s AND number < (
    SELECT number FROM webhook_deliveries WHERE webhook_id = %(id)s
    ORDER BY number DESC LIMIT 1 OFFSET %(kept)s)
"""
PARKED = tuple(ParkedPage.__dataclass_fields__)
PARK = f"{insertion('parked_pages', PARKED)} ON CONFLICT (webhook_id, page_id) DO NOTHING"
PARKED_PAGES = f"""
SELECT {", ".join(PARKED)} FROM parked_pages WHERE webhook_id = %(id)s ORDER BY page_id
"""
PARKED_OF = "SELECT page_id FROM parked_pages WHERE webhook_id = %(id)s ORDER BY page_id"
RELEASE_PAGES = "DELETE FROM parked_pages WHERE webhook_id = %(id)s"


class WebhooksSql(Dialect, WebhookStatements):
    """The statements of webhooks."""

    @override
    def add_webhook(self, webhook: Webhook) -> None:
        self.run(ADD, **_columns(asdict(webhook)))

    @override
    def webhooks(self, after: str, limit: int) -> list[Webhook]:
        return [_webhook(row) for row in self.read(NEXT, after=after, limit=limit)]

    @override
    def webhook(self, webhook_id: str) -> Webhook:
        for row in self.read(ONE, id=webhook_id):
            return _webhook(row)
        raise WebhookNotFound

    @override
    def change_webhook(self, webhook_id: str, **fields: Any) -> Webhook:
        statement = CHANGE.format(assignments=assignments(fields)) if fields else LOCK
        for row in self.read(statement, id=webhook_id, **_columns(fields)):
            return _webhook(row)
        raise WebhookNotFound

    @override
    def delete_webhook(self, webhook_id: str) -> None:
        self.change_webhook(webhook_id)
        for statement in DELETE:
            self.run(statement, id=webhook_id)

    @override
    def due_webhooks(
        self, now: datetime, newest: int, limit: int, after: DuePlace = BEFORE_ALL
    ) -> list[Webhook]:
        rows = self.read(
            DUE_WEBHOOKS,
            now=now,
            newest=newest,
            limit=limit,
            after_at=after.next_at,
            after_id=after.id,
        )
        return [_webhook(row) for row in rows]

    @override
    def next_due_webhook(self) -> datetime | None:
        (row,) = self.read(NEXT_DUE)
        due_at: datetime | None = row["next_at"]
        return due_at

    @override
    def claim_webhook(self, webhook_id: str, now: datetime, until: datetime) -> Webhook | None:
        claimed = self.run(CLAIM, id=webhook_id, now=now, until=until).rowcount
        return self.webhook(webhook_id) if claimed else None

    @override
    def lock_webhook(self, webhook_id: str, token: int) -> Webhook | None:
        for row in self.read(LOCK, id=webhook_id):
            webhook = _webhook(row)
            return webhook if webhook.token == token else None
        return None

    @override
    def renew_claims(self, tokens: Mapping[str, int], until: datetime) -> None:
        for webhook_id, token in sorted(tokens.items()):
            self.run(RENEW, id=webhook_id, token=token, until=until)

    @override
    def redate_webhooks(self, now: datetime) -> None:
        self.run(REDATE, now=now)

    @override
    def webhook_progress(self, limit: int) -> list[WebhookProgress]:
        return [
            WebhookProgress(**row | {"status": WebhookStatus(row["status"])})
            for row in self.read(PROGRESS, limit=limit)
        ]

    @override
    def troubled_webhooks(self, limit: int) -> list[TroubledWebhook]:
        return [
            TroubledWebhook(
                row["id"],
                row["url"],
                row["reason"] if row["status"] == WebhookStatus.disabled else None,
                row["failing_since"] or row["sent_at"] or row["created_at"],
                has_confirmed=row["n_confirmed"] > 0,
            )
            for row in self.read(TROUBLED, limit=limit)
        ]

    @override
    def add_delivery(self, delivery: Delivery) -> None:
        row = asdict(delivery)
        del row["number"]
        number = self.scalar(ADD_DELIVERY, **row)
        if number % (DELIVERIES_KEPT // 10) == 0:
            self.run(TRIM_DELIVERIES, id=delivery.webhook_id, kept=DELIVERIES_KEPT - 1)

    @override
    def deliveries(self, webhook_id: str, before: int, limit: int) -> list[Delivery]:
        rows = self.read(DELIVERIES, id=webhook_id, before=before, limit=limit)
        return [Delivery(**row) for row in rows]

    @override
    def park_page(self, page: ParkedPage) -> None:
        self.run(PARK, **asdict(page))

    @override
    def parked_pages(self, webhook_id: str) -> list[ParkedPage]:
        return [ParkedPage(**row) for row in self.read(PARKED_PAGES, id=webhook_id)]

    @override
    def parked_of(self, webhook_id: str) -> Ints:
        return self.ids(PARKED_OF, id=webhook_id)

    @override
    def release_pages(self, webhook_id: str) -> None:
        self.run(RELEASE_PAGES, id=webhook_id)


def _columns(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the columns of fields."""
    if "old_secrets" not in fields:
        return fields
    kept = tuple((old.secret, old.until.isoformat()) for old in fields["old_secrets"])
    return fields | {"old_secrets": kept or None}


def _webhook(row: dict[str, Any]) -> Webhook:
    kinds = row["kinds"]
    row["kinds"] = None if kinds is None else tuple(kinds)
    row["old_secrets"] = tuple(
        OldSecret(secret, datetime.fromisoformat(until))
        for secret, until in row["old_secrets"] or ()
    )
    return Webhook(**row | {"status": WebhookStatus(row["status"])})
