"""Search the feed for webhooks that wait, so that only those with a match are claimed.

A webhook without a match costs one reading of each new change. Its place in the database follows
now and then, many in one transaction, and then it waits behind all others.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

from service.events.places import PlaceKind
from service.events.reading import read
from service.model.changes import ChangeFilter, FeedPlace
from service.model.errors import WebhookNotFound
from service.model.webhooks import DuePlace, Webhook, WebhookStatus
from service.storage import Store, Transaction

SAVE_EVERY_S = 5.0
"""Time between two commits of a place that moves without a match, seconds."""
MOST_SAVED = 100
"""Maximum places of one commit."""


@dataclass(frozen=True, slots=True)
class Scan:
    """The changes without a match that a process has read for a webhook."""

    place: FeedPlace
    """Place of the webhook in the database."""
    only: ChangeFilter
    after: FeedPlace
    """Place after the changes that were read."""
    since: float
    """Start of the scan, seconds of the clock."""
    newest: int = 0
    """Number of the newest change of the last reading to the end of the feed."""
    is_behind: bool = False
    """True if the last reading did not reach the end of the feed."""


class Scans:
    """The scans of one process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._scans: dict[str, Scan] = {}

    def __len__(self) -> int:
        return len(self._scans)

    def clear(self) -> None:
        """Forget all scans."""
        self._scans.clear()

    def kind(self, tx: Transaction, webhook: Webhook, newest: int) -> PlaceKind | None:
        """Return the kind of place that a webhook needs; None if no change up to `newest` matches.

        A webhook whose search is long is `behind`, and reads on in a thread of its own.
        """
        kind = PlaceKind.slow if webhook.n_attempts else PlaceKind.sound
        if webhook.delivery is not None:
            return kind
        scan = self._scans.get(webhook.id)
        if scan is None or (scan.place, scan.only) != (webhook.place, webhook.only):
            scan = Scan(webhook.place, webhook.only, webhook.place, self._clock())
        if scan.is_behind:
            return PlaceKind.behind
        if newest <= scan.newest:
            return None
        part = read(tx, scan.after, 1, webhook.only)
        if len(part.changes):
            self._scans.pop(webhook.id, None)
            return kind
        if not part.whole:
            self._scans[webhook.id] = replace(scan, after=part.after, is_behind=True)
            return PlaceKind.behind
        self._scans[webhook.id] = replace(scan, after=part.after, newest=newest)
        return None

    def save(self, store: Store) -> int:
        """Write the places of scans that run for a while; return their number."""
        before = self._clock() - SAVE_EVERY_S
        old = [name for name, one in self._scans.items() if one.since <= before]
        old = sorted(old[:MOST_SAVED])
        if not old:
            return 0
        with store.begin() as tx:
            for name in old:
                _save(tx, name, self._scans.pop(name))
        return len(old)


def _save(tx: Transaction, webhook_id: str, scan: Scan) -> None:
    """Write the place of a scan, unless the webhook has changed meanwhile."""
    try:
        webhook = tx.change_webhook(webhook_id)
    except WebhookNotFound:
        return
    now = tx.now()
    is_claimed = webhook.leased_until is not None and webhook.leased_until > now
    is_idle = webhook.status is WebhookStatus.active and webhook.delivery is None
    same = (scan.place, scan.only) == (webhook.place, webhook.only)
    if is_idle and same and not (is_claimed or scan.is_behind):
        seq, item = scan.after
        tx.change_webhook(webhook_id, seq=seq, item=item, next_at=max(webhook.next_at, now))


class Round:
    """A walk through the webhooks that are due at its start, those that wait longest first.

    Each webhook has its turn once, however long the walk takes.
    """

    def __init__(self, began_at: datetime) -> None:
        self.began_at = began_at
        self.after = DuePlace()
        self.has_ended = False
        self.refused: set[tuple[PlaceKind, str]] = set()
        """Kinds and addresses without a place: the first of them takes the next free one."""
