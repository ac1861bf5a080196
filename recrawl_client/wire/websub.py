"""The wire format of subscriptions to topics at WebSub hubs."""

from datetime import datetime
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from recrawl_client.wire.common import END, Item, Url

Secret = Annotated[
    str,
    Meta(
        pattern="^[!-~]{1,199}" + END,
        description="1 to 199 printable ASCII characters without blanks",
    ),
]


class SubscriptionBody(Item, frozen=True, kw_only=True):
    """What a hub is about to be asked for."""

    topic: Url
    """As its publisher names it (rel=self): hubs must send it back letter by letter."""
    hub: Url
    secret: Secret | UnsetType = UNSET
    """Content that is not signed with it is ignored; never shown again."""


class RegisteredSubscription(Struct, frozen=True, kw_only=True):
    """Where the hub is to call."""

    id: str
    callback: str
    """A path of this service: hub.callback is the address it is reached at, and this."""


class SubscriptionItem(Struct, frozen=True, kw_only=True):
    """A subscription, and how far it has come."""

    id: str
    callback: str
    topic: str
    hub: str
    signed: bool
    """Whether there is a secret that content must be signed with."""
    requested_at: datetime
    verified_at: datetime | None = None
    """Null: the hub has not called yet, or has ended it."""
    expires_at: datetime | None = None
    """The lease that the hub gave; subscribe again before."""


class SubscriptionsAnswer(Struct, frozen=True, kw_only=True):
    """Subscriptions by their id."""

    items: list[SubscriptionItem]
    next_cursor: str | None
