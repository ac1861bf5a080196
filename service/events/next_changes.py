"""Choose the next changes of a webhook."""

import secrets

import numpy as np

from service.events.delivery import chosen, disabled, moved
from service.events.reading import NamedChanges, read
from service.model.changes import FeedPlace
from service.model.webhooks import Webhook
from service.storage import Transaction

LOST = (
    "changes after its place were deleted (RECRAWL_CHANGES_DAYS); take a cursor of GET /changes, "
    "read the pages again, then redeliver from this cursor"
)
"""Reason for which a webhook is disabled that was paused, or has failed, for too long."""


def new_name() -> str:
    """Return the name of a new batch."""
    return f"msg_{secrets.token_urlsafe(18)}"


def choose(tx: Transaction, webhook: Webhook) -> tuple[Webhook, NamedChanges | None]:
    """Return the webhook with its batch, and the changes; None at the end of the feed.

    No changes mean that none of those read matched, and that the feed goes on. If changes after the
    place were deleted, the webhook is disabled.

    A batch that was sent before keeps its name, and its end unless more changes match by now,
    because pages received the tag meanwhile. Then it ends earlier, so that none is left out.
    """
    after, changes = _next_batch(tx, webhook)
    if webhook.place.seq < tx.feed_cut():  # read last, because old changes may go meanwhile
        return disabled(webhook, LOST), None
    return after, changes


def _next_batch(tx: Transaction, webhook: Webhook) -> tuple[Webhook, NamedChanges | None]:
    parked = tx.parked_of(webhook.id)
    if webhook.delivery is not None:
        most = max(webhook.n_sent, webhook.most)
        part = read(tx, webhook.place, most, webhook.only)
        end = min(part.after, webhook.end)
        changes = _within(part.changes, end)
        changes = changes.where(~np.isin(changes.page_id, parked))
        if len(changes):
            return chosen(webhook, end, len(changes), webhook.delivery), changes
        webhook = moved(webhook, end)  # its pages were deleted meanwhile, or lost the tag
    part = read(tx, webhook.place, webhook.most, webhook.only)
    changes = part.changes.where(~np.isin(part.changes.page_id, parked))
    if len(changes):
        return chosen(webhook, part.after, len(changes), new_name()), changes
    return moved(webhook, part.after), None if part.whole else changes


def _within(changes: NamedChanges, end: FeedPlace) -> NamedChanges:
    """Return the changes before a place."""
    before = (changes.seq == end.seq) & (changes.offset < end.offset)
    return changes.where((changes.seq < end.seq) | before)
