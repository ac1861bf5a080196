"""WebSub: hubs that push what is new on a topic (w3.org/TR/websub)."""

import re
import secrets
from collections.abc import Iterator
from datetime import datetime
from operator import attrgetter
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Header, Path, Query, Request, Response
from msgspec import UNSET

from recrawl_client.wire.websub import (
    RegisteredSubscription,
    RejectedEntry,
    SubscriptionBody,
    SubscriptionItem,
    SubscriptionsAnswer,
    TakenEntry,
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
from service.connectors.websub import printable, signature_fault
from service.model.errors import InvalidField, InvalidUrl, SubscriptionGone, SubscriptionNotFound
from service.model.subscriptions import (
    FIRST_REQUEST,
    UNVERIFIED,
    ContentNote,
    HostPolicy,
    LeasePlan,
    Subscription,
    leased,
)
from service.model.urls import normalise
from service.storage import Transaction

router = APIRouter(tags=["websub"], route_class=DirectRoute, dependencies=GUARDED)
callbacks = APIRouter(tags=["websub"], route_class=DirectRoute)

ID_BYTES = 16
ID = re.compile(r"[A-Za-z0-9_-]{22}")
LEASE = re.compile(r"\s*(?:[0-9]{1,1000}(?:\.0*)?)?\s*")
"""Pattern of a lease; an empty one has no end."""

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

    With `public_url`, the worker asks the hub, and renews the subscription. Without it, send the
    callback to the hub yourself. To renew a subscription yourself, register it again: the old one
    ends when the hub has verified the new one.
    """
    wish = decode_object(body, SubscriptionBody)
    for field in ("topic", "hub"):
        _check_url(field, getattr(wish, field))
    now, public_url = service.now(), _public_url(wish)
    policy, listed_hosts = _hosts(wish)
    subscription = Subscription(
        id=secrets.token_urlsafe(ID_BYTES),
        topic=wish.topic,
        hub=wish.hub,
        secret=None if wish.secret is UNSET else wish.secret,
        requested_at=now,
        host_policy=policy,
        listed_hosts=listed_hosts,
        public_url=public_url,
        ask_at=None if public_url is None else now + FIRST_REQUEST,
        warn_at=now + UNVERIFIED,
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

    Each shows whether its hub has verified it, until when it runs, and what its hub has sent.
    """
    after = "" if cursor is None else decode_cursor(cursor, SubscriptionsPlace, "/websub").after
    with service.store.begin(write=False) as tx:
        listed = tx.subscriptions(after, limit)
    place = SubscriptionsPlace(listed[-1].id) if len(listed) == limit else None
    items = [_item(one, service.now()) for one in listed]
    return answer_part(request, SubscriptionsAnswer, items, place)


@router.get(
    "/websub/{subscription_id}/state",
    responses=openapi.answers(SubscriptionItem, EXAMPLES["subscription_item"], 404, 422),
)
def get_subscription(service: TheService, subscription_id: SubscriptionPath) -> Response:
    """Show one subscription, and what its hub has sent."""
    _check_id(subscription_id)
    with service.store.begin(write=False) as tx:
        return answer(_item(tx.subscription(subscription_id), service.now()))


@router.delete("/websub/{subscription_id}", **openapi.no_content(404, 422))
def delete_subscription(
    service: TheService, actor: TheActor, subscription_id: SubscriptionPath
) -> Response:
    """Delete a subscription.

    From now on the hub receives 410 and stops sending. A verified subscription with a `public_url`
    is `ending`: the worker asks the hub to end it, until the hub confirms that. A second call
    deletes it at once.
    """
    _check_id(subscription_id)
    with service.store.begin() as tx:
        subscription = tx.subscription(subscription_id)
        _end(tx, subscription, service.now())
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
    _check_id(subscription_id)
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


def _end(tx: Transaction, subscription: Subscription, now: datetime) -> None:
    """Delete a subscription, or have the worker ask its hub first."""
    is_known = subscription.verified_at is not None and subscription.public_url is not None
    if subscription.ending_at is not None or not is_known:
        tx.delete_subscription(subscription.id)
    else:
        tx.change_subscription(
            subscription.id, ending_at=now, ask_at=now, warn_at=None, n_asked=0, reason=None
        )


def _deny(tx: Transaction, of: Subscription, reason: str | None, now: datetime) -> None:
    """Note that the hub denies a subscription; nobody asks it again."""
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


def _public_url(wish: SubscriptionBody) -> str | None:
    """Return the address of the service without a slash at its end."""
    if wish.public_url is UNSET:
        return None
    _check_url("public_url", wish.public_url)
    if "?" in wish.public_url or "#" in wish.public_url:
        raise InvalidField("public_url", "public_url: leave out the query and the fragment")
    return wish.public_url.rstrip("/")


def _hosts(wish: SubscriptionBody) -> tuple[HostPolicy, tuple[str, ...]]:
    """Return the policy of hosts and the normal names of those that are listed."""
    policy = HostPolicy.same if wish.host_policy is UNSET else HostPolicy(wish.host_policy)
    names = [] if wish.listed_hosts is UNSET else wish.listed_hosts
    if (policy is HostPolicy.listed) != bool(names):
        raise InvalidField(
            "listed_hosts",
            "listed_hosts needs host_policy listed, and that needs listed_hosts; send both or none",
        )
    hosts = dict.fromkeys(_host(f"listed_hosts[{i}]", name) for i, name in enumerate(names))
    return policy, tuple(hosts)


def _host(field: str, name: str) -> str:
    try:
        url = normalise(f"https://{name}/")
    except InvalidUrl as error:
        raise InvalidField(field, f"{field}: {error.detail}", error.code) from error
    if url.url != f"https://{url.host}/":
        raise InvalidField(
            field, f"{field}: {name[:100]!r} is no name of a host; send one like example.com"
        )
    return url.host


def _check_url(field: str, url: str) -> None:
    try:
        normalise(url)
    except InvalidUrl as error:
        raise InvalidField(field, f"{field}: {error.detail}", error.code) from error


def _check_id(subscription_id: str) -> None:
    if not ID.fullmatch(subscription_id):
        raise SubscriptionNotFound


def _lease(lease: str | None, now: datetime) -> LeasePlan:
    """Return the plan of the lease that a hub names."""
    if not LEASE.fullmatch(lease or ""):
        raise SubscriptionNotFound(
            f"hub.lease_seconds {printable(lease or '')[:40]!r} is no number of seconds"
        )
    number = (lease or "").strip().partition(".")[0]
    return leased(int(number) if number else None, now)


def _callback(of: Subscription) -> str:
    return f"/websub/{of.id}"


def _item(of: Subscription, now: datetime) -> SubscriptionItem:
    own = {
        "callback": _callback(of),
        "signed": of.secret is not None,
        "state": of.state(now).value,
        "host_policy": of.host_policy.value,
        "listed_hosts": list(of.listed_hosts),
        "last_taken": [msgspec.convert(one, TakenEntry) for one in of.last_taken],
        "last_rejected": [msgspec.convert(one, RejectedEntry) for one in of.last_rejected],
    }
    return SubscriptionItem(**shared(SubscriptionItem, of) | own)
