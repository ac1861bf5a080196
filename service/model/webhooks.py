"""Webhooks: subscriptions to the feed of changes, and the deliveries to their addresses."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from service.model.arrays import UNIX_ZERO
from service.model.changes import ChangeFilter, ChangeKind, FeedPlace


class WebhookStatus(StrEnum):
    """The state of a webhook."""

    active = "active"
    paused = "paused"
    """Its owner has stopped it."""
    disabled = "disabled"
    """The service has stopped it, for `reason`."""


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    """Settings that the owner of a webhook chooses."""

    url: str
    secret: str = field(repr=False)
    """Key of the signatures, `whsec_` and base64."""
    kinds: tuple[str, ...] | None = None
    """Names of the wanted kinds; None: all."""
    host: str | None = None
    prefix: str | None = None
    tag: str | None = None
    max_items: int = 1
    """Maximum changes of one request; 1: single events, more: arrays of events."""
    min_weight: float | None = None
    """Minimum weight of the wanted changes; None: all."""

    @property
    def only(self) -> ChangeFilter:
        """Filter of the changes to deliver."""
        kinds = None if self.kinds is None else frozenset(ChangeKind[k] for k in self.kinds)
        return ChangeFilter(kinds, self.host, self.prefix, self.tag, self.min_weight)


class OldSecret(NamedTuple):
    """A secret before a rotation."""

    secret: str
    until: datetime
    """Instant until which the secret signs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook(WebhookSettings):
    """A webhook with the state of its deliveries.

    `delivery` is the name of the batch up to (`to_seq`, `to_item`), which is committed before the
    batch is sent. So a process that takes over repeats exactly this batch under the same name.
    """

    id: str
    created_at: datetime
    status: WebhookStatus = WebhookStatus.active
    reason: str | None = None
    """Reason of the service for `disabled`."""
    old_secrets: tuple[OldSecret, ...] = field(default=(), repr=False)
    """Secrets before rotations, the last one first; each signs until its end."""
    seq: int = 0
    item: int = 0
    delivery: str | None = None
    to_seq: int = 0
    to_item: int = 0
    n_sent: int = 0
    """Number of changes of `delivery`."""
    most: int
    """Maximum changes of the next request, halved in the search for one that is refused."""
    n_attempts: int = 0
    """Failures in a row."""
    failing_since: datetime | None = None
    next_at: datetime
    """Earliest time of the next request."""
    n_confirmed: int = 0
    """Number of requests that were answered 2xx."""
    n_refused: int = 0
    """Number of requests whose content the address refused."""
    n_failed: int = 0
    """Number of requests with another answer, or none."""
    token: int = 0
    """Number of the last claim."""
    leased_until: datetime | None = None
    """End of the claim of the process that delivers; None: no process does."""

    @property
    def old_secret_until(self) -> datetime | None:
        """End of the last old secret; None without one."""
        return max((old.until for old in self.old_secrets), default=None)

    @property
    def place(self) -> FeedPlace:
        """Place of the first change that is not yet delivered."""
        return FeedPlace(self.seq, self.item)

    @property
    def end(self) -> FeedPlace:
        """Place after the last change of `delivery`."""
        return FeedPlace(self.to_seq, self.to_item)


class DuePlace(NamedTuple):
    """A place in the order of due webhooks."""

    next_at: datetime = UNIX_ZERO
    id: str = ""


class WebhookProgress(NamedTuple):
    """The progress of the deliveries of a webhook."""

    id: str
    status: WebhookStatus
    oldest: int | None
    """Number of the oldest block of the feed that is not confirmed; None: all are."""
    n_confirmed: int
    n_refused: int
    n_failed: int


class TroubledWebhook(NamedTuple):
    """A webhook whose address does not take the changes."""

    id: str
    url: str
    reason: str | None
    """Reason of the service for stopping it; None: it is tried again."""
    since: datetime
    """First failure in a row; of a webhook that was stopped without one, its last request."""
    has_confirmed: bool
    """True if the address has ever confirmed a request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One request to the address of a webhook."""

    number: int = 0
    """Number in the order of sending; 0 before it is written."""
    webhook_id: str
    delivery: str
    """Name of the batch, the same for repetitions."""
    sent_at: datetime
    n_items: int
    first_id: str | None
    """Id of the first change; None for a test."""
    status: int | None
    """HTTP status of the answer; None: no answer."""
    error: str | None
    """Reason of a failure that the status does not state."""
    latency_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkedPage:
    """A page whose change was refused: it and later changes of the page are not delivered."""

    webhook_id: str
    page_id: int
    change_id: str
    reason: str
    parked_at: datetime
