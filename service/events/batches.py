"""Choose the next changes of a webhook."""

import secrets

import numpy as np

from service.events.delivery import chosen, moved
from service.events.reading import NamedChanges, read
from service.model.changes import FeedPlace
from service.model.webhooks import Webhook
from service.storage import Transaction


def new_name() -> str:
    """Return the name of a new batch."""
    return f"msg_{secrets.token_urlsafe(18)}"


def choose(tx: Transaction, webhook: Webhook) -> tuple[Webhook, NamedChanges | None]:
    """Return the webhook with its batch, and the changes; None at the end of the feed.

    A batch that was sent before keeps its name, and its end unless more changes match by now,
    because pages received the tag meanwhile. Then it ends earlier, so that none is left out.
    """
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
    while True:
        part = read(tx, webhook.place, webhook.most, webhook.only)
        changes = part.changes.where(~np.isin(part.changes.page_id, parked))
        if len(changes):
            return chosen(webhook, part.after, len(changes), new_name()), changes
        webhook = moved(webhook, part.after)
        if part.whole:
            return webhook, None


def _within(changes: NamedChanges, end: FeedPlace) -> NamedChanges:
    """Return the changes before a place."""
    before = (changes.seq == end.seq) & (changes.offset < end.offset)
    return changes.where((changes.seq < end.seq) | before)
