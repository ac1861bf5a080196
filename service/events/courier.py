"""Deliver the feed to webhooks: at least once, the changes of each page in order.

For each webhook one request runs at a time. A transaction settles the last answer and commits the
next batch before the batch is sent. So a process that dies leaves a batch whose successor repeats
exactly this batch, under the same name. Any number of processes may deliver; a claim, which its
process renews while a request runs, keeps two of them from the same webhook.
"""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta

import httpx
import numpy as np
import structlog

from recrawl_client.wire.webhooks import ChangeEvent
from service.access.audit import write_audit
from service.events.delivery import MOST_PARKED, PostOutcome, RetryRules, counted, disabled, settled
from service.events.encoding import encode_changes, event
from service.events.next_changes import choose, new_name
from service.events.places import PlaceKind, Places, address_of
from service.events.posting import Poster, printable
from service.events.reading import NamedChanges, feed_id
from service.events.scans import Round, Scans
from service.events.subscriptions import audited
from service.model.access import RECRAWL
from service.model.arrays import UNIX_ZERO
from service.model.errors import OUTAGES
from service.model.webhooks import Delivery, DuePlace, ParkedPage, Webhook, WebhookStatus
from service.storage import Store, Transaction
from service.storage.topics import Topic

EVERY_S = 0.1
"""Minimum time between two looks for due webhooks, seconds."""
SILENT_S = 5.0
"""Maximum time between two looks without a ring, seconds."""
CLAIM_S = 4.0
"""Duration of a claim: the longest wait of a webhook after the death of its process, seconds."""
RENEW_EVERY_S = 1.0
"""Time between two renewals of the claims whose requests run, seconds."""
SLICE_S = 5.0
"""Time after which a webhook with more changes makes room for others, seconds."""
LOOK_S = 0.1
"""Time after which a look leaves the rest of its round to the next look, seconds."""
LONG_S = 5.0
"""Duration of a request after which its webhook takes the places of slow addresses, seconds."""
MOST_DUE = 100
"""Maximum due webhooks of one reading."""
KEEP_EVERY_S = 60.0
"""Time between two deletions of old changes, seconds."""
KEEP_S = 0.5
"""Time after which a deletion of old changes makes room for a look, seconds."""
BLOCKS_AT_ONCE = 10_000
"""Blocks that one transaction deletes."""

NEWEST = 2**63 - 1
"""Number above those of all deliveries."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class SentBatch:
    """A batch that was sent, and its answer."""

    webhook: Webhook
    changes: NamedChanges
    delivery: Delivery
    outcome: PostOutcome


class Courier:
    """The deliveries of one process."""

    def __init__(
        self,
        store: Store,
        client: Callable[[], httpx.Client],
        rng: np.random.Generator,
        retention: timedelta | None = None,
        rules: RetryRules = RetryRules(),  # noqa: B008 - frozen
    ) -> None:
        self.store = store
        self.poster = Poster(client)
        self.retention = retention
        self.rules = rules
        self._rng = rng
        self._drawing = threading.Lock()
        self.places = Places()
        self._scans = Scans()
        self._round = Round(UNIX_ZERO)
        self._round.has_ended = True
        self._slow: set[str] = set()
        self._threads: list[threading.Thread] = []
        self._claims: dict[str, int] = {}
        self._renewed_at = time.monotonic()
        self._kept_at = -KEEP_EVERY_S
        self._cuts = False
        """True while old changes are left to delete."""
        self._rings = -1
        self._look_at = time.monotonic()
        self._was_busy = False
        self.stopped = threading.Event()

    def run_every(self) -> None:
        """Deliver until stopped; log errors and continue."""
        while not self.stopped.wait(EVERY_S):
            rings = self.store.rings(Topic.webhooks)
            if not self._needs_look(rings):
                continue
            try:
                self.renew()
                self.look()
                self._threads.clear()  # which only `run_once` waits for
                self._scans.save(self.store)
                self.keep_feed()
                self._rings = rings
            except OUTAGES as error:
                log.warning("no webhook is served, the next look tries again", reason=str(error))
                self.stopped.wait(1.0)
            except Exception:
                log.exception("webhooks could not be served; the next look tries again")
                self.stopped.wait(1.0)

    def _needs_look(self, rings: int) -> bool:
        """Return whether a webhook may be due, or whether deliveries and scans go on."""
        goes_on = not self._round.has_ended or bool(self._round.refused or self._scans)
        busy = goes_on or self._cuts or bool(self._claims or self.places)
        was_busy, self._was_busy = self._was_busy, busy
        return busy or was_busy or rings != self._rings or time.monotonic() >= self._look_at

    def stop(self) -> None:
        """End `run_every`; the process need not wait for requests that run."""
        self.stopped.set()
        self.poster.close()

    def look(self) -> int:
        """Start the delivery of due webhooks with a match; return their number.

        A look ends with its round, when all places are taken, or after `LOOK_S`. The next look goes
        on from there, so that webhooks without a match never keep the others from their turn.
        """
        chosen: list[str] = []
        try:
            with self.store.begin(write=False) as tx:
                chosen.extend(self._choose_due(tx))
                self._look_at = time.monotonic() + self._until_due(tx)
            n_chosen = len(chosen)
            while chosen:
                self._start(chosen[0])
                del chosen[0]
        except BaseException:
            for name in chosen:
                self.places.release(name)
            raise
        return n_chosen

    def _until_due(self, tx: Transaction) -> float:
        """Return the time until the next look without a ring, seconds.

        A webhook without a change is due too, because the feed does not ring.
        """
        due_at = tx.next_due_webhook()
        if due_at is None:
            return SILENT_S
        return min(max((due_at - tx.now()).total_seconds(), 0.0), SILENT_S)

    def _start(self, webhook_id: str) -> None:
        thread = threading.Thread(target=self._deliver_safely, args=(webhook_id,), daemon=True)
        thread.start()
        self._threads.append(thread)

    def _choose_due(self, tx: Transaction) -> Iterator[str]:
        """Take places for due webhooks in their order; yield the id of each webhook."""
        ends_at = time.monotonic() + LOOK_S
        now, newest = tx.now(), tx.newest_change()
        if self._round.has_ended:
            self._round = Round(now)
        walk = self._round
        while not walk.has_ended:
            due = tx.due_webhooks(min(now, walk.began_at), newest, MOST_DUE, walk.after)
            for webhook in due:
                if self.places.are_full:
                    return
                walk.after = DuePlace(webhook.next_at, webhook.id)
                if webhook.id not in self.places and self._takes_place(tx, webhook, newest):
                    yield webhook.id
                if time.monotonic() > ends_at:
                    return
            walk.has_ended = len(due) < MOST_DUE

    def _takes_place(self, tx: Transaction, webhook: Webhook, newest: int) -> bool:
        kind = self._scans.kind(tx, webhook, newest)
        if kind is None:
            return False
        if kind is PlaceKind.sound and webhook.id in self._slow:
            kind = PlaceKind.slow
        alike = (kind, address_of(webhook.url))
        if alike in self._round.refused or not self.places.take(webhook.id, *alike):
            self._round.refused.add(alike)
            return False
        return True

    def renew(self) -> None:
        """Renew the claims whose requests run, at most once a second."""
        if not self._claims or time.monotonic() - self._renewed_at < RENEW_EVERY_S:
            return
        self._renewed_at = time.monotonic()
        with self.store.begin() as tx:
            tx.renew_claims(self._claims.copy(), tx.now() + timedelta(seconds=CLAIM_S))

    def run_once(self) -> int:
        """Deliver to each due webhook and wait for the end; return the number of webhooks."""
        n_due = 0
        while True:
            n_due += self.look()
            while self._threads:
                self._threads.pop().join()
            if self._round.has_ended and not self._round.refused:
                return n_due

    def keep_feed(self) -> None:
        """Delete changes beyond the retention, at most once a minute; an archive keeps them.

        A deletion that takes long goes on at the next call, so that it delays no webhook.
        """
        if self.retention is None or self.store.archive is not None:
            return
        begun = time.monotonic()
        if begun - self._kept_at < KEEP_EVERY_S:
            return
        more, now = True, begun
        while more and now - begun <= KEEP_S:
            with self.store.begin() as tx:
                before = int((tx.now() - self.retention).timestamp() * 1e6)
                more = tx.cut_feed(before, BLOCKS_AT_ONCE)
            now = time.monotonic()
        self._cuts = more
        if not more:
            self._kept_at = now

    def test(self, webhook: Webhook, tested: ChangeEvent, now: datetime) -> Delivery:
        """Send one event, and return its delivery."""
        name = new_name()
        outcome = self.poster.post(webhook, name, [tested], now)
        delivery = _delivery(webhook.id, name, now, 0, outcome)
        with self.store.begin() as tx:
            tx.add_delivery(delivery)
            return tx.deliveries(webhook.id, NEWEST, 1)[0]

    def _deliver_safely(self, webhook_id: str) -> None:
        try:
            self.deliver(webhook_id)
        except OUTAGES as error:
            log.warning("a webhook was not served", webhook=webhook_id, reason=str(error))
        except Exception:
            log.exception("a webhook was not served", webhook=webhook_id)
        finally:
            self.places.release(webhook_id)

    def _fail(self, webhook: Webhook, error: Exception) -> None:
        """Count an error of the service itself as a failed request, so that it waits like one."""
        outcome = PostOutcome(None, printable(f"the request could not be made: {error!r}"))
        with self.store.begin() as tx:
            present, now = tx.lock_webhook(webhook.id, webhook.token), tx.now()
            if present is None:
                return
            name = present.delivery or new_name()
            nothing = SentBatch(
                present,
                NamedChanges.concatenate([]),
                _delivery(webhook.id, name, now, 0, outcome),
                outcome,
            )
            failed = self._settle(tx, present, nothing, now)
            _save(tx, present, replace(failed, leased_until=None))

    def deliver(self, webhook_id: str) -> None:
        """Claim a webhook and send its changes, batch by batch."""
        with self.store.begin() as tx:
            now = tx.now()
            webhook = tx.claim_webhook(webhook_id, now, now + timedelta(seconds=CLAIM_S))
            feed = tx.feed_id()  # each time, because a restore may change it
        if webhook is None:
            return
        self._claims[webhook_id] = webhook.token
        try:
            self._deliver_batches(webhook, feed or feed_id(self.store))
        except OUTAGES:
            raise
        except Exception as error:
            self._fail(webhook, error)
            raise
        finally:
            del self._claims[webhook_id]

    def _deliver_batches(self, webhook: Webhook, feed: str) -> None:
        """Send batches of a claimed webhook until none is left, or others have waited enough."""
        ends_at = time.monotonic() + SLICE_S
        sent: SentBatch | None = None
        while True:
            go_on = time.monotonic() < ends_at and not self.stopped.is_set()
            batch = self._next(webhook, sent, go_on=go_on)
            if batch is None:
                return
            webhook, changes, now = batch
            sent = self._send(webhook, changes, now, feed) if len(changes) else None

    def _next(
        self, webhook: Webhook, sent: SentBatch | None, *, go_on: bool
    ) -> tuple[Webhook, NamedChanges, datetime] | None:
        """Settle the last batch; commit and return the next one and its time, or None.

        A batch may be empty, so that a filter that matches little holds no lock for long.
        """
        with self.store.begin() as tx:
            present = tx.lock_webhook(webhook.id, webhook.token)
            if present is None:
                return None
            now, webhook = tx.now(), present
            if sent is not None:
                webhook = self._settle(tx, webhook, sent, now)
            changes = None
            if go_on and webhook.status is WebhookStatus.active and webhook.next_at <= now:
                webhook, changes = choose(tx, webhook)
            until = None if changes is None else now + timedelta(seconds=CLAIM_S)
            webhook = replace(webhook, leased_until=until)
            _save(tx, present, webhook)
        return None if changes is None else (webhook, changes, now)

    def _settle(self, tx: Transaction, webhook: Webhook, sent: SentBatch, now: datetime) -> Webhook:
        """Return the webhook after an answer, unless its place has been set meanwhile."""
        tx.add_delivery(sent.delivery)
        webhook = counted(webhook, sent.outcome)
        if (webhook.place, webhook.delivery) != (sent.webhook.place, sent.webhook.delivery):
            return webhook
        # numpy's generators are not safe for several threads
        with self._drawing:
            uniform = self._rng.random()
        webhook, parks = settled(webhook, sent.outcome, now, uniform, self.rules)
        if parks and len(sent.changes):
            self._park(tx, webhook, sent)
            if len(tx.parked_of(webhook.id)) >= MOST_PARKED:
                webhook = disabled(webhook, f"the address refused changes of {MOST_PARKED} pages")
        return webhook

    def _park(self, tx: Transaction, webhook: Webhook, sent: SentBatch) -> None:
        (refused,) = encode_changes(sent.changes)
        page = ParkedPage(
            webhook_id=webhook.id,
            page_id=refused.page_id,
            change_id=refused.id,
            reason=sent.outcome.sentence,
            parked_at=tx.now(),
        )
        tx.park_page(page)
        log.warning("a webhook refused a change", webhook=webhook.id, change=refused.id)

    def _send(self, webhook: Webhook, changes: NamedChanges, now: datetime, feed: str) -> SentBatch:
        events = [event(change, feed) for change in encode_changes(changes)]
        name = webhook.delivery or new_name()
        self.places.restart(webhook.id)
        outcome = self.poster.post(webhook, name, events, now)
        (self._slow.add if outcome.latency_s > LONG_S else self._slow.discard)(webhook.id)
        delivery = _delivery(webhook.id, name, now, len(events), outcome, events[0].id)
        return SentBatch(webhook, changes, delivery, outcome)


def _save(tx: Transaction, before: Webhook, after: Webhook) -> None:
    """Write what differs."""
    if after.status is WebhookStatus.disabled is not before.status:
        _note_disabled(tx, before, after)
    old = asdict(before)
    tx.change_webhook(
        after.id, **{name: value for name, value in asdict(after).items() if value != old[name]}
    )


def _note_disabled(tx: Transaction, before: Webhook, after: Webhook) -> None:
    log.warning("a webhook was disabled", webhook=after.id, reason=after.reason)
    write_audit(tx, RECRAWL, "webhook.disable", after.id, audited(before), audited(after))


def _delivery(
    webhook_id: str,
    name: str,
    sent_at: datetime,
    n_items: int,
    outcome: PostOutcome,
    first_id: str | None = None,
) -> Delivery:
    return Delivery(
        webhook_id=webhook_id,
        delivery=name,
        sent_at=sent_at,
        n_items=n_items,
        first_id=first_id,
        status=outcome.status,
        error=outcome.reason,
        latency_s=outcome.latency_s,
    )
