"""Callbacks of WebSub: what hubs send, which confirm subscriptions and push content."""

import re
from collections.abc import Iterator
from datetime import datetime
from operator import attrgetter
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request, Response

from service.api import openapi
from service.api.assembly import Service, TheService
from service.api.examples import EXAMPLES
from service.api.requests.bodies import read_content
from service.api.route import DirectRoute
from service.api.routes.sitemaps import DocumentOptions, Reader
from service.api.routes.websub import SubscriptionPath, check_id
from service.api.threads import in_thread
from service.connectors.entries import SitemapEntry
from service.connectors.feed import read_feed
from service.connectors.websub import printable, signature_fault
from service.model.errors import InvalidUrl, SubscriptionGone, SubscriptionNotFound
from service.model.subscriptions import ContentNote, HostPolicy, LeasePlan, Subscription, leased
from service.model.urls import normalise
from service.storage import Transaction

router = APIRouter(tags=["websub"], route_class=DirectRoute)

LEASE = re.compile(r"\s*(?:[0-9]{1,1000}(?:\.0*)?)?\s*")
"""Pattern of a lease; an empty one has no end."""


@router.get(
    "/websub/{subscription_id}",
    response_class=Response,
    responses=openapi.plain_text("The challenge") | openapi.problems_of(404, 408, 422, 503),
)
def verify_subscription(
    service: TheService,
    subscription_id: SubscriptionPath,
    mode: Annotated[
        str | None,
        Query(alias="hub.mode", description="subscribe, unsubscribe or denied"),
    ] = None,
    topic: Annotated[str | None, Query(alias="hub.topic", description="URL of the topic")] = None,
    challenge: Annotated[
        str | None, Query(alias="hub.challenge", description="Text that the answer repeats")
    ] = None,
    lease: Annotated[
        str | None,
        Query(alias="hub.lease_seconds", description="Duration of the subscription, seconds"),
    ] = None,
    reason: Annotated[
        str | None, Query(alias="hub.reason", description="Why the hub denies the subscription")
    ] = None,
) -> Response:
    """Confirm a subscription to its hub, or take its denial.

    Hubs call this. Anything that was not subscribed to is answered 404. No API key is needed,
    because only the hub knows the address. A lease without a number or of 0 seconds has no end. The
    topic may be spelt in another way with the same normal form.
    """
    now = service.now()
    check_id(subscription_id)
    with service.store.begin() as tx:
        subscription = tx.subscription(subscription_id)
        try:
            _check_topic(topic, subscription)
            if mode == "denied":
                _deny(tx, subscription, reason, now)
                return Response(status_code=200, media_type="text/plain")
            _confirm(tx, subscription, mode, challenge, lease, now)
            return Response(challenge, media_type="text/plain")
        except SubscriptionNotFound as error:
            refusal = error
        tx.change_subscription(subscription_id, reason=printable(f"not confirmed: {refusal}"))
    raise refusal


@router.post(
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

    Hubs call this. Each entry of RSS, Atom or JSON Feed, plain or gzip, is a ping of its page, at
    its own time or now. New pages are registered; pages of other hosts than the topic's only by the
    subscription's `host_policy`. Any other content is
    a ping of the topic itself, if it is registered. Content without the agreed signature has the
    same answer and is ignored. The subscription shows entries that were taken and rejected. Content
    may arrive before the verification. No API key is needed.
    """
    subscription = await in_thread(_load, service, subscription_id)
    content = await read_content(request)
    await in_thread(_take, service, subscription, content, signature)
    return Response(status_code=202)


def _load(service: Service, subscription_id: str) -> Subscription:
    """Return a subscription that runs; raise `SubscriptionGone` where there is none."""
    try:
        check_id(subscription_id)
        with service.store.begin(write=False) as tx:
            subscription = tx.subscription(subscription_id)
    except SubscriptionNotFound:
        raise SubscriptionGone from None
    if subscription.ending_at is not None:
        raise SubscriptionGone
    return subscription


def _take(service: Service, subscription: Subscription, content: bytes, signature: str) -> None:
    topic, now = subscription.topic, service.now()
    if (secret := subscription.secret) is not None:
        fault = signature_fault(content, secret, signature)
        if fault is not None:
            service.telemetry.count_unsigned()
            unsigned = _rejected(now, topic, "unsigned", fault)
            _note(service, subscription, now, ContentNote(0, 0, 1, rejected=(unsigned,)))
            return
    itself = list[SitemapEntry]()

    def linked() -> Iterator[SitemapEntry]:
        for entry in read_feed(content, topic, now):
            if entry.loc == topic:
                itself[:] = [max([*itself, entry], key=attrgetter("lastmod"))]
            else:
                yield entry

    options = DocumentOptions(
        normalise(topic).host,
        cross_host=subscription.host_policy is HostPolicy.any,
        kind="websub",
        listed=frozenset(subscription.listed_hosts),
    )
    reader = Reader(service, options)
    try:
        reader.take(linked())
    finally:
        _note(service, subscription, now, _noted(reader, now))
    # a feed is no page unless somebody registered it
    Reader(service, options._replace(register=False)).take(itself)


def _noted(reader: Reader, now: datetime) -> ContentNote:
    """Return what became of the entries of one content."""
    n_taken = sum(reader.counts[name] for name in ("accepted", "duplicate", "late"))
    taken = [{"at": now.isoformat(), "url": url} for url in reversed(reader.last_taken)]
    rejected = [
        _rejected(now, loc, rejection.code, rejection.detail)
        for loc, rejection in reversed(reader.last_rejected)
    ]
    n_rejected = reader.counts["n_rejected"]
    return ContentNote(n_taken, n_rejected, 0, tuple(taken), tuple(rejected))


def _rejected(now: datetime, url: str, code: str, detail: str) -> dict[str, str]:
    return {
        "at": now.isoformat(),
        "url": printable(url),
        "code": code,
        "detail": printable(detail),
    }


def _note(service: Service, of: Subscription, now: datetime, note: ContentNote) -> None:
    with service.store.begin() as tx:
        tx.note_content(of.id, now, note)


def _deny(tx: Transaction, of: Subscription, reason: str | None, now: datetime) -> None:
    """Note that the hub denies a subscription; nobody asks it again."""
    if of.ending_at is not None:  # the hub has none to end
        tx.delete_subscription(of.id)
        return
    words = printable(reason or "") or "the hub gave no reason"
    tx.change_subscription(
        of.id,
        denied_at=now,
        verified_at=None,
        expires_at=None,
        ask_at=None,
        warn_at=now,
        reason=words,
    )


def _confirm(
    tx: Transaction,
    of: Subscription,
    mode: str | None,
    challenge: str | None,
    lease: str | None,
    now: datetime,
) -> None:
    """Take what a hub wants to have confirmed; raise `SubscriptionNotFound` if nobody asked."""
    if challenge is None:
        raise SubscriptionNotFound("hub.challenge is missing")
    if mode == "subscribe":
        if of.ending_at is not None:
            raise SubscriptionNotFound("the subscription was deleted")
        tx.verify_subscription(of.id, now, _lease(lease, now))
    elif mode == "unsubscribe":
        if of.ending_at is not None:
            tx.delete_subscription(of.id)
        elif of.public_url is not None:
            raise SubscriptionNotFound("nobody asked to end the subscription")
        else:
            tx.end_subscription(of.id)
    else:
        raise SubscriptionNotFound("hub.mode is not subscribe, unsubscribe or denied")


def _check_topic(topic: str | None, of: Subscription) -> None:
    """Raise `SubscriptionNotFound` unless a topic has the normal form of the subscription's."""
    if topic == of.topic:
        return
    try:
        if topic is not None and normalise(topic).key == normalise(of.topic).key:
            return
    except InvalidUrl:
        pass
    raise SubscriptionNotFound(f"hub.topic {(topic or '')[:200]!r} is not the topic")


def _lease(lease: str | None, now: datetime) -> LeasePlan:
    """Return the plan of the lease that a hub names."""
    if not LEASE.fullmatch(lease or ""):
        raise SubscriptionNotFound(
            f"hub.lease_seconds {printable(lease or '')[:40]!r} is no number of seconds"
        )
    number = (lease or "").strip().partition(".")[0]
    return leased(int(number) if number else None, now)
