"""WebSub: hubs that push what is new on a topic (w3.org/TR/websub)."""

import re
import secrets
from collections.abc import Iterator
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Query, Request, Response
from msgspec import UNSET

from recrawl_client.wire.websub import (
    RegisteredSubscription,
    SubscriptionBody,
    SubscriptionItem,
    SubscriptionsAnswer,
)
from service.access.audit import write_audit
from service.api import openapi
from service.api.admission import TheActor
from service.api.assembly import Service, TheBody, TheService
from service.api.cursors import CursorParameter, SubscriptionsPlace, decode_cursor, limit_of
from service.api.examples import EXAMPLES
from service.api.requests.bodies import read_content
from service.api.requests.items import decode_object
from service.api.responses.encode import answer, answer_part, shared
from service.api.route import GUARDED, DirectRoute
from service.api.routes.sitemaps import DocumentOptions, Reader
from service.api.threads import in_thread
from service.connectors.entries import SitemapEntry
from service.connectors.feed import read_feed
from service.connectors.websub import is_signed
from service.model.errors import InvalidField, InvalidUrl, SubscriptionGone, SubscriptionNotFound
from service.model.urls import normalise
from service.storage import Subscription

router = APIRouter(tags=["websub"], route_class=DirectRoute, dependencies=GUARDED)
callbacks = APIRouter(tags=["websub"], route_class=DirectRoute)

ID_BYTES = 16
ID = re.compile(r"[A-Za-z0-9_-]{22}")
LEASE = re.compile(r"[0-9]{1,20}")
MAX_LEASE_S = 30 * 365 * 86_400
"""Maximum lease of a subscription, seconds; hubs without an end send very large numbers."""

SubscriptionPath = Annotated[
    str, Path(description="Name of a subscription, the `id` that POST /websub returned")
]


@router.post(
    "/websub",
    responses=openapi.answers(
        RegisteredSubscription, EXAMPLES["subscription_answer"], *openapi.WRITES
    ),
    openapi_extra=openapi.request_body(SubscriptionBody, EXAMPLES["subscription"], batch=False),
)
def post_subscription(service: TheService, actor: TheActor, body: TheBody) -> Response:
    """Register a subscription and return its callback.

    Send the callback to the hub yourself, or use `recrawl websub subscribe`. To renew a
    subscription, register it again: the old one ends when the hub has verified the new one.
    """
    wish = decode_object(body, SubscriptionBody)
    for field in ("topic", "hub"):
        _check_url(field, getattr(wish, field))
    subscription = Subscription(
        id=secrets.token_urlsafe(ID_BYTES),
        topic=wish.topic,
        hub=wish.hub,
        secret=None if wish.secret is UNSET else wish.secret,
        requested_at=service.now(),
    )
    with service.store.begin() as tx:
        tx.add_subscription(subscription)
        write_audit(tx, actor, "subscription.create", wish.topic, after=audited(subscription))
    return answer(RegisteredSubscription(id=subscription.id, callback=_callback(subscription)))


@router.get(
    "/websub",
    responses=openapi.answers(
        SubscriptionsAnswer, EXAMPLES["subscriptions_answer"], 422, headers=openapi.LINK
    ),
)
def list_subscriptions(
    request: Request,
    service: TheService,
    cursor: CursorParameter = None,
    limit: Annotated[int, limit_of("subscriptions of a part")] = 100,
) -> Response:
    """List subscriptions.

    Each shows whether its hub has verified it, and until when it runs.
    """
    after = "" if cursor is None else decode_cursor(cursor, SubscriptionsPlace, "/websub").after
    with service.store.begin(write=False) as tx:
        listed = tx.subscriptions(after, limit)
    place = SubscriptionsPlace(listed[-1].id) if len(listed) == limit else None
    return answer_part(request, SubscriptionsAnswer, list(map(_item, listed)), place)


@router.delete("/websub/{subscription_id}", **openapi.no_content(404, 422))
def delete_subscription(
    service: TheService, actor: TheActor, subscription_id: SubscriptionPath
) -> Response:
    """Delete a subscription.

    From now on the hub receives 410 and stops sending.
    """
    _check_id(subscription_id)
    with service.store.begin() as tx:
        subscription = tx.subscription(subscription_id)
        tx.delete_subscription(subscription_id)
        before = audited(subscription)
        write_audit(tx, actor, "subscription.delete", subscription.topic, before=before)
    return Response(status_code=204)


@callbacks.get(
    "/websub/{subscription_id}",
    response_class=Response,
    responses=openapi.plain_text("The challenge") | openapi.problems_of(404, 408, 422, 503),
)
def verify_subscription(
    service: TheService,
    subscription_id: SubscriptionPath,
    mode: Annotated[
        str | None, Query(alias="hub.mode", description="Act of the hub: subscribe or unsubscribe")
    ] = None,
    topic: Annotated[str | None, Query(alias="hub.topic", description="URL of the topic")] = None,
    challenge: Annotated[
        str | None, Query(alias="hub.challenge", description="Text that the answer repeats")
    ] = None,
    lease: Annotated[
        str | None,
        Query(alias="hub.lease_seconds", description="Duration of the subscription, seconds"),
    ] = None,
) -> Response:
    """Confirm a subscription to its hub.

    Hubs call this. Anything that was not subscribed to is answered 404. No API key is needed,
    because only the hub knows the address.
    """
    now = service.now()
    _check_id(subscription_id)
    with service.store.begin() as tx:
        subscription = tx.subscription(subscription_id)
        if topic != subscription.topic or challenge is None:
            raise SubscriptionNotFound("no such topic is subscribed to here")
        if mode == "subscribe":
            tx.verify_subscription(subscription_id, now, _expiry(lease, now))
        elif mode == "unsubscribe":
            tx.end_subscription(subscription_id)
        else:
            raise SubscriptionNotFound("hub.mode is neither subscribe nor unsubscribe")
    return Response(challenge, media_type="text/plain")


@callbacks.post(
    "/websub/{subscription_id}",
    status_code=202,
    response_class=Response,
    responses={
        202: {"description": "The content has arrived"},
        **openapi.problems_of(*openapi.WRITES, 408, 410, 503),
    },
    openapi_extra=openapi.feed_body(EXAMPLES["feed"]),
)
async def post_content(
    request: Request,
    service: TheService,
    subscription_id: SubscriptionPath,
    signature: Annotated[
        str,
        Header(
            alias="X-Hub-Signature",
            description="Signature of the content as `method=hex`; only with a secret",
        ),
    ] = "",
) -> Response:
    """Take the content of a topic from its hub.

    Hubs call this. Each entry of Atom or RSS is a ping of its page, at its own time or now. New
    pages are registered; pages of other hosts than the topic's are left out. Any other content is
    a ping of the topic itself, if it is registered. Content without the agreed signature has the
    same answer and is ignored; metrics count it. No API key is needed.
    """
    subscription = await in_thread(_load, service, subscription_id)
    content = await read_content(request)
    await in_thread(_take, service, subscription, content, signature)
    return Response(status_code=202)


def audited(subscription: Subscription) -> dict[str, Any]:
    """Return the fields of a subscription for the audit, without id and secret.

    Anyone with the id could send as the hub.
    """
    return {"hub": subscription.hub, "signed": subscription.secret is not None}


def _load(service: Service, subscription_id: str) -> Subscription:
    """Return a subscription that runs; raise `SubscriptionGone` where there is none."""
    try:
        _check_id(subscription_id)
        with service.store.begin(write=False) as tx:
            return tx.subscription(subscription_id)
    except SubscriptionNotFound:
        raise SubscriptionGone from None


def _take(service: Service, subscription: Subscription, content: bytes, signature: str) -> None:
    if subscription.secret is not None and not is_signed(content, subscription.secret, signature):
        service.telemetry.count_unsigned()
        return
    topic, now = subscription.topic, service.now()
    itself = list[SitemapEntry]()

    def linked() -> Iterator[SitemapEntry]:
        for entry in read_feed(content, topic, now):
            if entry.loc == topic:
                itself[:] = [max([*itself, entry], key=attrgetter("lastmod"))]
            else:
                yield entry

    options = DocumentOptions(normalise(topic).host, kind="websub")
    Reader(service, options).take(linked())
    # a feed is no page unless somebody registered it
    Reader(service, options._replace(register=False)).take(itself)


def _check_url(field: str, url: str) -> None:
    try:
        normalise(url)
    except InvalidUrl as error:
        raise InvalidField(field, f"{field}: {error.detail}", error.code) from error


def _check_id(subscription_id: str) -> None:
    if not ID.fullmatch(subscription_id):
        raise SubscriptionNotFound


def _expiry(lease: str | None, now: datetime) -> datetime | None:
    if lease is None:
        return None
    if not LEASE.fullmatch(lease):
        raise SubscriptionNotFound("hub.lease_seconds is no number of seconds")
    return now + timedelta(seconds=min(int(lease), MAX_LEASE_S))


def _callback(of: Subscription) -> str:
    return f"/websub/{of.id}"


def _item(of: Subscription) -> SubscriptionItem:
    fields = shared(SubscriptionItem, of)
    return SubscriptionItem(**fields, callback=_callback(of), signed=of.secret is not None)
