"""The last changes of pages, and the webhooks that deliver them."""

from fastapi import Response

from recrawl_client.wire.webhooks import (
    DeliveriesAnswer,
    DeliveryItem,
    WebhookAnswer,
    WebhooksAnswer,
)
from service.api.routes import webhooks
from service.api.routes.changes import change_filter
from service.console.visit import Visit
from service.events.encoding import encode_changes
from service.events.reading import newest
from service.model.changes import ChangeKind

PART = 50
DELIVERIES = 50
KINDS = [kind.name for kind in ChangeKind]


def show(visit: Visit) -> Response:
    """Show the last changes, newest first, and the webhooks to those who may see them."""
    values = visit.parameters("get_changes")
    only = change_filter(
        *(values.get(name) for name in ("kind", "host", "prefix", "tag", "min_weight"))
    )
    with visit.service.store.begin(write=False) as tx:
        last = encode_changes(newest(tx, PART, only))
    hooks = None
    if visit.may("list_webhooks"):
        request = visit.request
        hooks = visit.ask(WebhooksAnswer, webhooks.list_webhooks, request=request, limit=PART)
    return visit.page("changes.html", changes=last, kinds=KINDS, webhooks=hooks)


def show_webhook(visit: Visit) -> Response:
    """Show one webhook and its last deliveries."""
    return _page(visit, None)


def set_paused(visit: Visit) -> Response:
    """Stop or resume the deliveries of a webhook."""
    named, body = visit.parameters("get_webhook"), visit.body(paused="pause" in visit.form)
    webhooks.patch_webhook(service=visit.service, actor=visit.actor, body=body, **named)
    return visit.go(f"/console/webhooks/{named['webhook_id']}", "webhook")


def test(visit: Visit) -> Response:
    """Send a test event, and show the answer of the address."""
    named = visit.parameters("get_webhook")
    return _page(visit, visit.ask(DeliveryItem, webhooks.test_webhook, **named))


def _page(visit: Visit, tested: DeliveryItem | None) -> Response:
    named = visit.parameters("get_webhook")
    webhook = visit.ask(WebhookAnswer, webhooks.get_webhook, **named)
    deliveries = visit.ask(
        DeliveriesAnswer,
        webhooks.list_deliveries,
        request=visit.request,
        **named,
        limit=DELIVERIES,
    )
    return visit.page("webhook.html", webhook=webhook, deliveries=deliveries.items, tested=tested)
