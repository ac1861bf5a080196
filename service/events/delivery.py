"""The state of a webhook after each request. Pure.

| answer | effect |
| --- | --- |
| 2xx | the next changes, after a moment if there were few |
| 400, 413, 422 | half of the batch at once; a single change again, then parked with its page |
| 410 | disabled |
| any other, none, or a part of one | again after a wait that grows; after three days disabled |
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import NamedTuple

from service.model.changes import FeedPlace
from service.model.webhooks import Webhook, WebhookStatus

REFUSALS = frozenset({400, 413, 422})
"""Statuses that refuse the content, which no repetition can change."""
MOST_PARKED = 1_000
"""Maximum parked pages of a webhook."""


@dataclass(frozen=True, slots=True)
class RetryRules:
    """Waits after failures."""

    waits_s: tuple[float, ...] = (5, 300, 1_800, 7_200, 18_000, 36_000, 36_000, 43_200)
    """Waits after the first, second, … failure in a row; the last one repeats, seconds."""
    jitter: float = 0.2
    """Maximum relative deviation of a wait."""
    gather_s: float = 0.25
    """Wait after a batch that was not full, because many small requests cost more, seconds."""
    give_up: timedelta = timedelta(days=3)
    """Time of failures in a row after which a webhook is disabled."""
    tries: int = 4
    """Number of refusals of a single change after which its page is parked."""
    refusal_wait_s: float = 5
    """Wait after the refusal of a single change, seconds."""


class PostOutcome(NamedTuple):
    """The answer to one request."""

    status: int | None
    """HTTP status; None: no answer."""
    error: str | None = None
    """Reason of a failure that the status does not state; None: the status decides."""
    latency_s: float = 0.0
    retry_after_s: float | None = None

    @property
    def word(self) -> str:
        """Return the kind of the answer: confirmed, refused or failed."""
        if self.error is not None:
            return "failed"
        if self.status is not None and self.status // 100 == HTTPStatus.OK // 100:
            return "confirmed"
        return "refused" if self.status in REFUSALS else "failed"

    @property
    def reason(self) -> str | None:
        """Return the reason of a failure; None: the address has confirmed."""
        if self.word == "confirmed" or self.error is not None:
            return self.error
        return f"answered {self.status}"

    @property
    def sentence(self) -> str:
        """Return the answer in words."""
        return self.error or f"the address answered {self.status}"


class Settled(NamedTuple):
    """A webhook after an answer."""

    webhook: Webhook
    parks: bool = False
    """True if the page of the single change is to be parked."""


def chosen(webhook: Webhook, end: FeedPlace, n_items: int, delivery: str) -> Webhook:
    """Return the webhook with its next batch, up to a place."""
    return replace(webhook, delivery=delivery, to_seq=end.seq, to_item=end.offset, n_sent=n_items)


def moved(webhook: Webhook, place: FeedPlace) -> Webhook:
    """Return the webhook at a place, without a batch."""
    return replace(webhook, seq=place.seq, item=place.offset, delivery=None, n_sent=0)


def counted(webhook: Webhook, outcome: PostOutcome) -> Webhook:
    """Return the webhook with one more request of this kind of answer."""
    name = f"n_{outcome.word}"
    return replace(webhook, **{name: getattr(webhook, name) + 1})


def disabled(webhook: Webhook, reason: str) -> Webhook:
    """Return a webhook that the service has stopped; it keeps its place."""
    return replace(webhook, status=WebhookStatus.disabled, reason=reason)


def settled(
    webhook: Webhook, outcome: PostOutcome, now: datetime, uniform: float, rules: RetryRules
) -> Settled:
    """Return the webhook after the answer to its batch; `uniform` is random in [0, 1)."""
    if outcome.word == "confirmed":
        return Settled(_confirmed(webhook, now, rules))
    if outcome.status == HTTPStatus.GONE and outcome.error is None:
        return Settled(disabled(webhook, "the address answered 410: it wants no more changes"))
    webhook = replace(webhook, n_attempts=webhook.n_attempts + 1)
    if outcome.word == "refused":
        return _refused(webhook, now, rules)
    since = webhook.failing_since or now
    webhook = replace(webhook, failing_since=since)
    if now - since >= rules.give_up:
        return Settled(
            disabled(webhook, f"no success since {since.isoformat()}; last: {outcome.sentence}")
        )
    step = min(webhook.n_attempts, len(rules.waits_s)) - 1
    wait_s = rules.waits_s[step] * (1 + rules.jitter * (2 * uniform - 1))
    if outcome.retry_after_s is not None:
        wait_s = max(wait_s, min(outcome.retry_after_s, rules.waits_s[-1]))
    return Settled(replace(webhook, next_at=now + timedelta(seconds=wait_s)))


def _confirmed(webhook: Webhook, now: datetime, rules: RetryRules) -> Webhook:
    gathers = webhook.n_sent < webhook.most
    return replace(
        moved(webhook, webhook.end),
        # a batch that refusals have halved grows again
        most=min(2 * webhook.most, webhook.max_items),
        n_attempts=0,
        failing_since=None,
        next_at=now + timedelta(seconds=rules.gather_s * gathers),
    )


def _refused(webhook: Webhook, now: datetime, rules: RetryRules) -> Settled:
    if webhook.n_sent > 1:
        half = moved(webhook, webhook.place)
        return Settled(replace(half, most=webhook.n_sent // 2, n_attempts=0, next_at=now))
    if webhook.n_attempts < rules.tries:
        wait = timedelta(seconds=rules.refusal_wait_s)
        return Settled(replace(webhook, next_at=now + wait))
    passed = replace(moved(webhook, webhook.end), n_attempts=0, next_at=now)
    return Settled(passed, parks=True)
