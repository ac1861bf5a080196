"""The wire format of subscriptions to topics at WebSub hubs."""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from recrawl_client.wire.common import END, Instant, Item, Url

Secret = Annotated[
    str,
    Meta(
        pattern="^[!-~]{1,199}" + END,
        description="1 to 199 printable ASCII characters without blanks",
    ),
]


class SubscriptionBody(Item, frozen=True, kw_only=True):
    """A subscription to register before the request to the hub."""

    topic: Url
    """URL of the topic as its publisher spells it (rel=self); the hub must return it unchanged."""
    hub: Url
    """URL of the hub."""
    secret: Secret | UnsetType = UNSET
    """Key of the content's signatures, never shown again; with a key, unsigned content is
    ignored."""


class RegisteredSubscription(Struct, frozen=True, kw_only=True):
    """The callback for the hub."""

    id: str
    """Name of the subscription."""
    callback: str
    """Path of this service; `hub.callback` is the public address of the service and this path."""


class SubscriptionItem(Struct, frozen=True, kw_only=True):
    """A subscription and its state."""

    id: str
    """Name of the subscription."""
    callback: str
    """Path of this service that the hub calls."""
    topic: str
    """URL of the topic."""
    hub: str
    """URL of the hub."""
    signed: bool
    """True if the subscription has a secret; content without a signature is then ignored."""
    requested_at: Instant
    """Instant of the registration."""
    verified_at: Instant | None = None
    """Instant of the hub's verification; null before the verification and after its end."""
    expires_at: Instant | None = None
    """End of the hub's lease; renew the subscription before. Null when the hub named no end."""


class SubscriptionsAnswer(Struct, frozen=True, kw_only=True):
    """Subscriptions by their id."""

    items: list[SubscriptionItem]
    """Subscriptions of this part."""
    next_cursor: str | None
    """`cursor` of the next part; null at the end."""
