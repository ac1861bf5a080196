"""The wire format of subscriptions to topics at WebSub hubs."""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from recrawl_client.wire.common import END, Instant, Item, Url

Secret = Annotated[
    str,
    Meta(
        pattern="^[!-~]{1,199}" + END,
        description="1 to 199 printable ASCII characters without blanks",
    ),
]


HostPolicyName = Literal["same", "listed", "any"]
ListedHosts = Annotated[
    list[Annotated[str, Meta(min_length=1, max_length=2_000, description="the name of a host")]],
    Meta(max_length=1_000, description="a list of at most 1,000 names of hosts"),
]
StateName = Literal["pending", "active", "ended", "denied", "ending"]


class SubscriptionBody(Item, frozen=True, kw_only=True):
    """A subscription to register before the request to the hub."""

    topic: Url
    """URL of the topic as its publisher spells it (rel=self); the hub must return it unchanged."""
    hub: Url
    """URL of the hub."""
    secret: Secret | UnsetType = UNSET
    """Key of the content's signatures, never shown again; with a key, unsigned content is
    ignored."""
    host_policy: HostPolicyName | UnsetType = UNSET
    """Hosts whose pages are taken: same (the default; that of the topic), listed (also those of
    `listed_hosts`) or any."""
    listed_hosts: ListedHosts | UnsetType = UNSET
    """Hosts beside the topic's; needs `host_policy` listed."""
    public_url: Url | UnsetType = UNSET
    """Public address of this service for the hub. With it, the worker asks the hub: a minute after
    the registration unless the hub has called, and again before each lease ends."""


class RegisteredSubscription(Struct, frozen=True, kw_only=True):
    """The callback for the hub."""

    id: str
    """Name of the subscription."""
    callback: str
    """Path of this service; `hub.callback` is the public address of the service and this path."""


class TakenEntry(Struct, frozen=True, kw_only=True):
    """An entry of a hub's content that was taken."""

    at: Instant
    """Arrival of the content."""
    url: str
    """Normalised URL of the page."""


class RejectedEntry(Struct, frozen=True, kw_only=True):
    """An entry of a hub's content, or a whole content, that was not taken."""

    at: Instant
    """Arrival of the content."""
    url: str
    """Address as the entry has it; that of the topic for a whole content."""
    code: str
    """Short name of the reason, such as `cross_host` or `unsigned`."""
    detail: str
    """The fault, and the remedy."""


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
    state: StateName
    """pending (not verified yet), active, ended (its lease is over), denied by the hub, or ending
    (deleted, and the hub has not confirmed that yet)."""
    host_policy: HostPolicyName
    """Hosts whose pages are taken."""
    listed_hosts: list[str]
    """Hosts beside the topic's whose pages are taken."""
    public_url: str | None = None
    """Address of the service that the worker names to the hub; null: you ask the hub yourself."""
    ask_at: Instant | None = None
    """Instant of the worker's next request to the hub; null: none."""
    n_asked: int = 0
    """Requests of the worker since the hub's last call."""
    reason: str | None = None
    """Last answer of the hub, where it has not verified the subscription, or why it denied."""
    last_content_at: Instant | None = None
    """Arrival of the last content."""
    n_contents: int = 0
    """Contents of the hub."""
    n_unsigned: int = 0
    """Contents without the agreed signature, which were ignored."""
    n_taken: int = 0
    """Entries that were taken, those that were known already included."""
    n_rejected: int = 0
    """Entries that were not taken."""
    last_taken: list[TakenEntry]
    """The last ten entries that were taken, the newest first."""
    last_rejected: list[RejectedEntry]
    """The last ten entries and contents that were not, the newest first."""


class SubscriptionsAnswer(Struct, frozen=True, kw_only=True):
    """Subscriptions by their id."""

    items: list[SubscriptionItem]
    """Subscriptions of this part."""
    next_cursor: str | None
    """`cursor` of the next part; null at the end."""
