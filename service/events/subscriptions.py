"""Create, change and delete webhooks."""

import secrets
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from service.access.audit import write_audit
from service.events.reading import check_place
from service.model.access import Actor
from service.model.changes import FeedPlace
from service.model.errors import InvalidField
from service.model.webhooks import OldSecret, Webhook, WebhookSettings, WebhookStatus
from service.storage import Transaction
from service.storage.topics import Topic

ID_BYTES = 11
OLD_SECRET_FOR = timedelta(days=1)
"""Time for which the secret before a rotation signs too."""
MOST_OLD_SECRETS = 10
"""Maximum old secrets that sign, because each lengthens a header of every request."""
AUDITED = (
    "url",
    "kinds",
    "host",
    "prefix",
    "tag",
    "max_items",
    "status",
    "reason",
    "old_secret_until",
    "min_weight",
)
"""Names of the fields that the audit shows."""


def new_id() -> str:
    """Return a random id of 22 hex digits; a hyphen at its begin would look like an option."""
    return secrets.token_hex(ID_BYTES)


def create(
    tx: Transaction,
    actor: Actor,
    settings: WebhookSettings,
    place: FeedPlace | None,
    now: datetime,
) -> Webhook:
    """Return a new webhook that begins at a place; None: with the next change.

    Raises
    ------
    CursorExpired
        Changes after the place may be missing.
    """
    if place is None:
        place = FeedPlace(tx.newest_change() + 1)
    else:
        check_place(place, tx.feed_bounds(), same_feed=True)
    webhook = Webhook(
        **asdict(settings),
        id=new_id(),
        created_at=now,
        seq=place.seq,
        item=place.offset,
        most=settings.max_items,
        next_at=now,
    )
    tx.add_webhook(webhook)
    tx.ring(Topic.webhooks)
    write_audit(tx, actor, "webhook.create", webhook.id, after=audited(webhook))
    return webhook


def change(
    tx: Transaction, actor: Actor, webhook_id: str, fields: dict[str, Any], now: datetime
) -> Webhook:
    """Return a webhook after changes of its settings or its status.

    Raises
    ------
    WebhookNotFound
        No webhook has this id.
    InvalidField
        Too many old secrets still sign.
    """
    before, after = tx.change_webhook(webhook_id), dict(fields)
    if "secret" in fields and fields["secret"] != before.secret:
        after["old_secrets"] = _old_secrets(before, fields["secret"], now)
    if "max_items" in fields:
        after["most"] = fields["max_items"]
    if fields.get("status") == WebhookStatus.active:
        after |= _at_once(now)
    webhook = tx.change_webhook(webhook_id, **after)
    tx.ring(Topic.webhooks)
    write_audit(tx, actor, "webhook.change", webhook_id, audited(before), audited(webhook))
    return webhook


def redeliver(
    tx: Transaction,
    actor: Actor,
    webhook_id: str,
    place: FeedPlace | None,
    *,
    release: bool,
    now: datetime,
) -> Webhook:
    """Return a webhook that begins again at a place; None: at its present place.

    Raises
    ------
    WebhookNotFound
        No webhook has this id.
    CursorExpired
        Changes after the place may be missing.
    """
    after = _at_once(now)
    if place is not None:
        check_place(place, tx.feed_bounds(), same_feed=True)
        after |= {"seq": place.seq, "item": place.offset, "delivery": None}
    before = tx.change_webhook(webhook_id)
    webhook = tx.change_webhook(webhook_id, **after)
    if release:
        tx.release_pages(webhook_id)
    tx.ring(Topic.webhooks)
    write_audit(
        tx,
        actor,
        "webhook.redeliver",
        webhook_id,
        audited(before) | before.place._asdict(),
        audited(webhook) | webhook.place._asdict() | {"release": release},
    )
    return webhook


def delete(tx: Transaction, actor: Actor, webhook_id: str) -> None:
    """Delete a webhook; raise `WebhookNotFound`."""
    before = tx.change_webhook(webhook_id)
    tx.delete_webhook(webhook_id)
    write_audit(tx, actor, "webhook.delete", webhook_id, before=audited(before))


def _old_secrets(webhook: Webhook, new: str, now: datetime) -> tuple[OldSecret, ...]:
    """Return the secrets that still sign after a rotation; raise `InvalidField` for too many."""
    kept = [one for one in webhook.old_secrets if now < one.until and one.secret != new]
    if len(kept) >= MOST_OLD_SECRETS:
        until = min(one.until for one in kept)
        raise InvalidField(
            "secret",
            f"{MOST_OLD_SECRETS} old secrets sign already; change the secret again after "
            f"{until.isoformat()}, when the first of them ends",
        )
    return (OldSecret(webhook.secret, now + OLD_SECRET_FOR), *kept)


def _at_once(now: datetime) -> dict[str, Any]:
    """Return the fields of an active webhook without failures."""
    return {
        "status": WebhookStatus.active,
        "reason": None,
        "n_attempts": 0,
        "failing_since": None,
        "next_at": now,
    }


def audited(webhook: Webhook) -> dict[str, Any]:
    """Return the fields of a webhook that the audit shows; no secret is among them.

    A new secret shows in `old_secret_until`.
    """
    return {name: getattr(webhook, name) for name in AUDITED}
