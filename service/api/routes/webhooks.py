"""Webhooks: the feed of changes, sent to the addresses of others."""

from contextlib import suppress
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response
from msgspec import UNSET

from recrawl_client.wire.webhooks import (
    CreatedWebhook,
    DeliveriesAnswer,
    DeliveryItem,
    ParkedAnswer,
    RedeliveryBody,
    WebhookAnswer,
    WebhookBody,
    WebhookItem,
    WebhookPatch,
    WebhooksAnswer,
)
from service.access.audit import write_audit
from service.api import openapi
from service.api.admission import TheActor
from service.api.assembly import Service, TheBody, TheService
from service.api.cursors import (
    CursorParameter,
    DeliveriesPlace,
    FeedCursor,
    WebhooksPlace,
    decode_cursor,
    encode_cursor,
    limit_of,
)
from service.api.examples import EXAMPLES
from service.api.requests.items import decode_changes, decode_object, sent_fields
from service.api.responses.encode import answer, answer_part, shared
from service.api.route import GUARDED, DirectRoute
from service.connectors.addresses import look_up, not_public
from service.events import subscriptions
from service.events.encoding import TEST, event, sample
from service.events.signing import new_secret
from service.model.changes import FeedPlace, age_s
from service.model.errors import CursorExpired, InvalidField, InvalidUrl
from service.model.urls import normalise, normalise_host
from service.model.webhooks import Webhook, WebhookSettings, WebhookStatus
from service.storage import Transaction

router = APIRouter(tags=["webhooks"], route_class=DirectRoute, dependencies=GUARDED)

LOOK_UP_S = 3.0
"""Maximum time for the look-up of a new address, seconds."""
NEWEST = 2**63 - 1
"""Number above those of all deliveries."""

WebhookPath = Annotated[
    str,
    Path(
        pattern="^[A-Za-z0-9_-]{22}$",
        description="Name of a webhook, the `id` that POST /webhooks returned",
    ),
]


@router.post(
    "/webhooks",
    responses=openapi.answers(CreatedWebhook, EXAMPLES["webhook_created"], 410, *openapi.WRITES),
    openapi_extra=openapi.request_body(WebhookBody, EXAMPLES["webhook"], batch=False),
)
def post_webhook(service: TheService, actor: TheActor, body: TheBody) -> Response:
    """Create a webhook.

    From now on, or from `cursor`, the service sends each change that matches to `url`: as
    CloudEvents 1.0 in JSON, signed by Standard Webhooks, at least once, and the changes of
    a page in order. An answer 2xx that is complete within 15 s confirms. An address that is not
    public is refused, unless `RECRAWL_WEBHOOKS_PRIVATE` is set. The answer alone shows the secret.
    """
    wish = decode_object(body, WebhookBody)
    fields = _settings(service, sent_fields(wish))
    cursor = fields.pop("cursor", None)
    settings = WebhookSettings(**({"secret": new_secret()} | fields))
    place = None if cursor is None else _place(service, cursor)
    feed = service.feed.feed_id
    with service.store.begin() as tx:
        webhook = subscriptions.create(tx, actor, settings, place, tx.now())
        item = CreatedWebhook(**_fields(feed, tx, webhook), secret=webhook.secret)
    return answer(item)


@router.get(
    "/webhooks",
    responses=openapi.answers(
        WebhooksAnswer, EXAMPLES["webhooks_answer"], 422, headers=openapi.LINK
    ),
)
def list_webhooks(
    request: Request,
    service: TheService,
    cursor: CursorParameter = None,
    limit: Annotated[int, limit_of("webhooks of a part")] = 100,
) -> Response:
    """List webhooks and the state of their deliveries."""
    after = "" if cursor is None else decode_cursor(cursor, WebhooksPlace, "/webhooks").after
    feed = service.feed.feed_id
    with service.store.begin(write=False) as tx:
        listed = tx.webhooks(after, limit)
        items = [WebhookItem(**_fields(feed, tx, webhook)) for webhook in listed]
    place = WebhooksPlace(listed[-1].id) if len(listed) == limit else None
    return answer_part(request, WebhooksAnswer, items, place)


@router.get(
    "/webhooks/{webhook_id}",
    responses=openapi.answers(WebhookAnswer, EXAMPLES["webhook_answer"], 404, 422),
)
def get_webhook(service: TheService, webhook_id: WebhookPath) -> Response:
    """Show a webhook and the state of its deliveries.

    The answer has the pages whose changes are held back, too.
    """
    feed = service.feed.feed_id
    with service.store.begin(write=False) as tx:
        return _answer(feed, tx, tx.webhook(webhook_id))


@router.patch(
    "/webhooks/{webhook_id}",
    responses=openapi.answers(WebhookAnswer, EXAMPLES["webhook_answer"], 404, *openapi.WRITES),
    openapi_extra=openapi.request_body(WebhookPatch, EXAMPLES["webhook_patch"], batch=False),
)
def patch_webhook(
    service: TheService, actor: TheActor, webhook_id: WebhookPath, body: TheBody
) -> Response:
    """Change a webhook.

    A new `secret` signs at once. Each old one signs too for a day; at most ten do so at a time.
    `paused` stops the delivery; without it, the delivery goes on where it stopped.
    """
    fields = _settings(service, decode_changes(body, WebhookPatch))
    feed = service.feed.feed_id
    with service.store.begin() as tx:
        webhook = subscriptions.change(tx, actor, webhook_id, fields, tx.now())
        return _answer(feed, tx, webhook)


@router.delete("/webhooks/{webhook_id}", **openapi.no_content(404, 422))
def delete_webhook(service: TheService, actor: TheActor, webhook_id: WebhookPath) -> Response:
    """Delete a webhook; a request that runs may still arrive."""
    with service.store.begin() as tx:
        subscriptions.delete(tx, actor, webhook_id)
    return Response(status_code=204)


@router.post(
    "/webhooks/{webhook_id}/test",
    responses=openapi.answers(DeliveryItem, EXAMPLES["delivery_test"], 404, 422),
)
def test_webhook(service: TheService, actor: TheActor, webhook_id: WebhookPath) -> Response:
    """Send a test event and show the answer of the address.

    The event has the type `io.github.recrawl.test`, an `id` of its own that begins with `test-`,
    and no page. It moves no place in the feed.
    """
    with service.store.begin() as tx:
        webhook, now = tx.webhook(webhook_id), tx.now()
        write_audit(tx, actor, "webhook.test", webhook_id)
    tested = event(sample(now), service.feed.feed_id, TEST)
    delivery = service.courier.test(webhook, tested, now)
    return answer(DeliveryItem(**shared(DeliveryItem, delivery)))


@router.get(
    "/webhooks/{webhook_id}/deliveries",
    responses=openapi.answers(
        DeliveriesAnswer, EXAMPLES["deliveries_answer"], 404, 422, headers=openapi.LINK
    ),
)
def list_deliveries(
    request: Request,
    service: TheService,
    webhook_id: WebhookPath,
    cursor: CursorParameter = None,
    limit: Annotated[int, limit_of("requests of a part")] = 100,
) -> Response:
    """List the last requests to the address of a webhook.

    Each has its status and its latency. At least the last 1,000 are kept.
    """
    path = "/webhooks/{webhook_id}/deliveries"
    before = NEWEST if cursor is None else decode_cursor(cursor, DeliveriesPlace, path).before
    with service.store.begin(write=False) as tx:
        tx.webhook(webhook_id)
        listed = tx.deliveries(webhook_id, before, limit)
    place = DeliveriesPlace(listed[-1].number) if len(listed) == limit else None
    items = [DeliveryItem(**shared(DeliveryItem, delivery)) for delivery in listed]
    return answer_part(request, DeliveriesAnswer, items, place)


@router.post(
    "/webhooks/{webhook_id}/redeliver",
    responses=openapi.answers(WebhookAnswer, EXAMPLES["webhook_answer"], 404, 410, *openapi.WRITES),
    openapi_extra=openapi.request_body(RedeliveryBody, EXAMPLES["redelivery"], batch=False),
)
def redeliver(
    service: TheService, actor: TheActor, webhook_id: WebhookPath, body: TheBody
) -> Response:
    """Deliver again from a cursor of the feed, at once.

    The webhook is active afterwards. Events that arrive again have the same `id`.
    """
    wish = decode_object(body, RedeliveryBody)
    place = None if wish.cursor is UNSET else _place(service, wish.cursor)
    feed = service.feed.feed_id
    with service.store.begin() as tx:
        webhook = subscriptions.redeliver(
            tx, actor, webhook_id, place, release=wish.release, now=tx.now()
        )
        return _answer(feed, tx, webhook)


HELD = "the database was restored, so it may be a copy; `recrawl send-webhooks` lets it send"
"""Reason of a webhook that is held."""


def _settings(service: Service, settings: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that were sent, as the store has them; raise `InvalidField`."""
    if "url" in settings:
        settings["url"] = settings["url"].strip()
        _check_url(settings["url"], private=service.webhooks_private)
    if settings.get("host") is not None:
        settings["host"] = normalise_host(settings["host"])
    if settings.get("kinds") is not None:
        settings["kinds"] = tuple(settings["kinds"])
    if "paused" in settings:
        paused = settings.pop("paused")
        settings["status"] = WebhookStatus.paused if paused else WebhookStatus.active
    return settings


def _check_url(url: str, *, private: bool) -> None:
    """Raise `InvalidField` for an address that no delivery could ever reach.

    A name without an address may get one later.
    """
    try:
        host = normalise(url).host.strip("[]")
    except InvalidUrl as error:
        raise InvalidField("url", error.detail, error.code) from error
    place = None
    with suppress(OSError):  # among them `TimeoutError`
        place = None if private else not_public(host, look_up(host, LOOK_UP_S))
    if place is not None:
        raise InvalidField(
            "url",
            f"{place} is not public, so no change would be sent to it; send a public address, or "
            "set RECRAWL_WEBHOOKS_PRIVATE=true for addresses of your own network, and start the "
            "service again",
        )


def _place(service: Service, cursor: str) -> FeedPlace:
    """Return the place of a cursor of the feed; raise `BadCursor` or `CursorExpired`."""
    place = decode_cursor(cursor, FeedCursor, "/changes")
    if place.feed != service.feed.feed_id:
        raise CursorExpired("the cursor belongs to another database; leave cursor out")
    return FeedPlace(place.seq, place.offset)


def _fields(feed: str, tx: Transaction, webhook: Webhook) -> dict[str, Any]:
    cursor = encode_cursor(FeedCursor(feed, *webhook.place))
    held = webhook.status is WebhookStatus.active and tx.webhooks_held() is not None
    state = {"status": "held", "reason": HELD} if held else {}
    return {
        **shared(WebhookItem, webhook),
        **state,
        "kinds": None if webhook.kinds is None else list(webhook.kinds),
        "cursor": cursor,
        "lag_s": _lag_s(tx, webhook, tx.now()),
    }


def _lag_s(tx: Transaction, webhook: Webhook, now: datetime) -> float:
    """Return the age of the oldest change that was not delivered, seconds."""
    oldest = tx.changes(webhook.place, 1).changes.seq
    return age_s(int(oldest[0]), now) if len(oldest) else 0.0


def _answer(feed: str, tx: Transaction, webhook: Webhook) -> Response:
    parked = [
        ParkedAnswer(**shared(ParkedAnswer, page)) for page in tx.parked_pages(webhook.id)[:1_000]
    ]
    return answer(WebhookAnswer(**_fields(feed, tx, webhook), parked=parked))
