"""The wire format of webhooks, which deliver the feed of changes."""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from recrawl_client.wire.changes import Change, ChangeName
from recrawl_client.wire.common import END, Instant, Item, Uri, Url
from recrawl_client.wire.pages import Tag

B64 = "[A-Za-z0-9+/]"
Secret = Annotated[
    str,
    Meta(
        pattern=f"^whsec_(({B64}{{4}}){{8,21}}({B64}{{2}}==)?|({B64}{{4}}){{8,20}}{B64}{{3}}=){END}",
        description="whsec_ and 24 to 64 random bytes in base64",
        examples=["whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"],
    ),
]
MaxItems = Annotated[
    int, Meta(ge=1, le=1_000, description="a whole number of changes of one request, 1 to 1,000")
]
Kinds = Annotated[
    list[ChangeName],
    Meta(
        min_length=1, max_length=6, description="a list of new, changed, gone, back, moved, deleted"
    ),
]
Prefix = Annotated[
    str,
    Meta(
        pattern=rf"^[^\x00-\x20\x7f\ud800-\udfff]{{1,2048}}{END}",
        description="the start of URLs, up to 2,048 characters without spaces",
        examples=["https://example.com/docs/"],
    ),
]
MinWeight = Annotated[
    float, Meta(ge=0, le=1, description="a number from 0, for all changes, to 1, such as 0.5")
]
HostName = Annotated[str, Meta(min_length=1, max_length=2_000, description="the name of a host")]


class WebhookBody(Item, frozen=True, kw_only=True):
    """A webhook to create."""

    url: Url
    """Address that receives the changes by POST."""
    secret: Secret | UnsetType = UNSET
    """Key of the signatures; if the field is left out, the service draws one."""
    kinds: Kinds | UnsetType | None = UNSET
    """Wanted kinds of changes; null for all."""
    host: HostName | UnsetType | None = UNSET
    """Host whose changes are wanted; null for all."""
    prefix: Prefix | UnsetType | None = UNSET
    """Start of the normalised URLs whose changes are wanted; null for all."""
    tag: Tag | UnsetType | None = UNSET
    """Tag of the pages whose changes are wanted, as of the delivery; null for all."""
    min_weight: MinWeight | UnsetType | None = UNSET
    """Minimum `weight` of the wanted changes; null for all."""
    max_items: MaxItems | UnsetType = UNSET
    """Maximum changes of one request: 1 (the default) for single events, more for arrays."""
    cursor: str | UnsetType = UNSET
    """Cursor of GET /changes at which delivery begins; if left out, with the next change."""


class WebhookPatch(Item, frozen=True, kw_only=True):
    """Changes of a webhook; fields left out keep their values."""

    url: Url | UnsetType = UNSET
    """Address that receives the changes by POST."""
    secret: Secret | UnsetType = UNSET
    """New key of the signatures; each old key signs too for a day, at most ten at a time."""
    kinds: Kinds | UnsetType | None = UNSET
    """Wanted kinds of changes; null for all."""
    host: HostName | UnsetType | None = UNSET
    """Host whose changes are wanted; null for all."""
    prefix: Prefix | UnsetType | None = UNSET
    """Start of the normalised URLs whose changes are wanted; null for all."""
    tag: Tag | UnsetType | None = UNSET
    """Tag of the pages whose changes are wanted, as of the delivery; null for all."""
    min_weight: MinWeight | UnsetType | None = UNSET
    """Minimum `weight` of the wanted changes; null for all."""
    max_items: MaxItems | UnsetType = UNSET
    """Maximum changes of one request."""
    paused: bool | UnsetType = UNSET
    """True: stop the delivery; false: resume it, also after the service disabled the webhook."""


class RedeliveryBody(Item, frozen=True, kw_only=True):
    """A request to deliver again."""

    cursor: str | UnsetType = UNSET
    """Cursor of GET /changes at which delivery begins again; if left out, delivery goes on from
    the present place."""
    release: bool = True
    """True: deliver the changes of parked pages again."""


class ParkedAnswer(Struct, frozen=True, kw_only=True):
    """A page whose changes are held back, because the address refused one of them."""

    page_id: int
    """The service's number of the page."""
    change_id: str
    """`id` of the refused change."""
    reason: str
    """Answer of the address."""
    parked_at: Instant
    """Instant of the last refusal."""


class WebhookItem(Struct, frozen=True, kw_only=True):
    """A webhook and the state of its deliveries."""

    id: str
    """Name of the webhook."""
    url: str
    """Address that receives the changes."""
    kinds: list[str] | None = None
    """Wanted kinds of changes; null for all."""
    host: str | None = None
    """Host whose changes are wanted; null for all."""
    prefix: str | None = None
    """Start of the URLs whose changes are wanted; null for all."""
    tag: str | None = None
    """Tag of the pages whose changes are wanted, as of the delivery; null for all."""
    min_weight: float | None = None
    """Minimum `weight` of the wanted changes; null for all."""
    max_items: int
    """Maximum changes of one request."""
    status: Literal["active", "held", "paused", "disabled"]
    """`disabled`: the service stopped the deliveries for `reason`. `held`: the database was
    restored, so none is sent before `recrawl send-webhooks`."""
    reason: str | None = None
    """Reason of the service for the state; null without one."""
    created_at: Instant
    """Instant of the creation."""
    cursor: str
    """Place in the feed up to which the address has confirmed; a cursor of GET /changes."""
    lag_s: float
    """Age of the oldest change that the address has not confirmed, seconds; 0 without one."""
    n_attempts: int
    """Number of failed requests since the last success."""
    failing_since: Instant | None = None
    """Instant of the first failure since the last success; null without a failure."""
    next_at: Instant
    """Earliest instant of the next request."""


class WebhookAnswer(WebhookItem, frozen=True, kw_only=True):
    """A webhook, with the pages that it holds back."""

    parked: list[ParkedAnswer]
    """Pages whose changes are held back, the first 1,000."""


class CreatedWebhook(WebhookItem, frozen=True, kw_only=True):
    """A new webhook with its secret."""

    secret: str
    """Key of the signatures, which no other answer shows."""


class WebhooksAnswer(Struct, frozen=True, kw_only=True):
    """Webhooks by their id."""

    items: list[WebhookItem]
    """Webhooks of this part."""
    next_cursor: str | None
    """`cursor` of the next part; null at the end."""


class DeliveryItem(Struct, frozen=True, kw_only=True):
    """One request to the address of a webhook."""

    number: int
    """Number of the request; later requests have higher numbers."""
    delivery: str
    """Header `webhook-id`, the same for every repetition."""
    sent_at: Instant
    """Instant of the request."""
    n_items: int
    """Number of changes."""
    first_id: str | None = None
    """`id` of the first change; null for a test."""
    status: int | None = None
    """HTTP status of the answer; null without an answer."""
    error: str | None = None
    """Reason of a failure, such as `answered 500` or the target of a redirect; null without one."""
    latency_s: float
    """Time from the request to the answer, seconds."""


class DeliveriesAnswer(Struct, frozen=True, kw_only=True):
    """Requests to the address of a webhook, newest first."""

    items: list[DeliveryItem]
    """Requests of this part."""
    next_cursor: str | None
    """`cursor` of the next part; null at the end."""


class ChangeEvent(Struct, frozen=True, kw_only=True):
    """A change as a CloudEvent 1.0 in JSON, the body of a request to a webhook."""

    specversion: Literal["1.0"] = "1.0"
    """Version of CloudEvents."""
    id: str
    """`id` of the change; with `source` the name of the event, the same for every repetition."""
    source: Uri
    """Name of the database: `urn:recrawl:` and the id of its feed."""
    type: str
    """`io.github.recrawl.page.` and the kind of the change; `io.github.recrawl.test` for a
    test."""
    subject: str
    """URL of the page."""
    time: Instant
    """Instant of the crawl."""
    datacontenttype: Literal["application/json"] = "application/json"
    """Media type of `data`."""
    partitionkey: str
    """Number of the page; events of one page arrive in order."""
    data: Change
    """The change."""
