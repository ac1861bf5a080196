"""Subscriptions of WebSub: hubs that push what is new on a topic (w3.org/TR/websub)."""

import re
from datetime import datetime
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Path, Request, Response
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
from service.api.assembly import TheBody, TheService
from service.api.cursors import CursorParameter, SubscriptionsPlace, decode_cursor, limit_of
from service.api.examples import EXAMPLES
from service.api.requests.items import decode_object
from service.api.responses.encode import answer, answer_part, shared
from service.api.route import GUARDED, DirectRoute
from service.events.subscriptions import new_id
from service.model.errors import InvalidField, InvalidUrl, SubscriptionNotFound
from service.model.subscriptions import (
    FIRST_REQUEST,
    UNVERIFIED,
    HostPolicy,
    Subscription,
)
from service.model.urls import normalise
from service.storage import Transaction

router = APIRouter(tags=["websub"], route_class=DirectRoute, dependencies=GUARDED)

ID = re.compile(r"[A-Za-z0-9_-]{22}")

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
        id=new_id(),
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
    check_id(subscription_id)
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
    check_id(subscription_id)
    with service.store.begin() as tx:
        subscription = tx.subscription(subscription_id)
        _end(tx, subscription, service.now())
        before = audited(subscription)
        write_audit(tx, actor, "subscription.delete", subscription.topic, before=before)
    return Response(status_code=204)


def audited(subscription: Subscription) -> dict[str, Any]:
    """Return the fields of a subscription for the audit, without id and secret.

    Anyone with the id could send as the hub.
    """
    return {"hub": subscription.hub, "signed": subscription.secret is not None}


def _end(tx: Transaction, subscription: Subscription, now: datetime) -> None:
    """Delete a subscription, or have the worker ask its hub first."""
    is_known = subscription.verified_at is not None and subscription.public_url is not None
    if subscription.ending_at is not None or not is_known:
        tx.delete_subscription(subscription.id)
    else:
        tx.change_subscription(
            subscription.id, ending_at=now, ask_at=now, warn_at=None, n_asked=0, reason=None
        )


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


def check_id(subscription_id: str) -> None:
    """Raise `SubscriptionNotFound` for a text that is no name of a subscription."""
    if not ID.fullmatch(subscription_id):
        raise SubscriptionNotFound


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
