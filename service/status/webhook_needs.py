"""Needs of webhooks and of subscriptions at hubs. Pure."""

from collections.abc import Iterator
from datetime import datetime
from urllib.parse import urlsplit

from service.model.subscriptions import SubscriptionState, TroubledSubscription
from service.model.webhooks import TroubledWebhook
from service.model.words import moment as in_words
from service.status.facts import PATIENCE, Facts
from service.status.kinds import Found, NeedKind, length_in_words


def webhooks_held(facts: Facts) -> Iterator[Found]:
    """Yield that no webhook sends, because the database may be a copy."""
    if facts.webhooks_held is not None:
        yield Found("webhooks", facts.webhooks_held, {"at": in_words(facts.webhooks_held)})


WEBHOOKS_HELD = NeedKind(
    "webhooks_held",
    webhooks_held,
    "Confirm that webhooks may send: this database was restored or copied at {at}, and none "
    "sends since. A copy for a test needs nothing.",
    "recrawl send-webhooks",
)


def webhooks_failing(facts: Facts) -> Iterator[Found]:
    """Yield webhooks whose address takes nothing."""
    for webhook in sorted(facts.webhooks, key=lambda each: each.since):
        if webhook.reason is None and facts.at - webhook.since >= PATIENCE:
            ever = "" if webhook.has_confirmed else ", and it has never taken any"
            ago = length_in_words(facts.at - webhook.since)
            values = {"ago": ago, "ever": ever, **_named(webhook)}
            yield Found(webhook.id, webhook.since, values)


WEBHOOK_FAILING = NeedKind(
    "webhook_failing",
    webhooks_failing,
    "Mend the webhook at {host}: it has taken no change for {ago}{ever}.",
    "GET /webhooks/{id}/deliveries",
    "GET /webhooks",
)


def webhooks_disabled(facts: Facts) -> Iterator[Found]:
    """Yield webhooks that the service has stopped."""
    for webhook in sorted(facts.webhooks, key=lambda each: each.since):
        if webhook.reason is not None:
            yield Found(webhook.id, webhook.since, _named(webhook))


WEBHOOK_DISABLED = NeedKind(
    "webhook_disabled",
    webhooks_disabled,
    "Mend the webhook at {host} and start it again: the service stopped it.",
    'PATCH /webhooks/{id} {{"paused": false}}',
    "GET /webhooks",
)


def _named(webhook: TroubledWebhook) -> dict[str, str]:
    """Return id and host alone, because everybody who reads may see them.

    The path of an address is often a secret, and the reason may repeat the address.
    """
    return {"id": webhook.id, "host": urlsplit(webhook.url).hostname or "its address"}


def subscriptions_ending(facts: Facts) -> Iterator[Found]:
    """Yield subscriptions at hubs that end, or never begin, unless somebody acts."""
    for each in facts.subscriptions:
        hosts = {
            "topic": urlsplit(each.topic).hostname or "its topic",
            "hub": urlsplit(each.hub).hostname or "its hub",
        }
        yield Found(hosts["topic"], each.since, {**hosts, "what": _end_of(each, facts.at)})


SUBSCRIPTION_ENDING = NeedKind(
    "subscription_ending",
    subscriptions_ending,
    "Renew the subscription to {topic} at the hub {hub}: {what}.",
    "recrawl websub list",
)


def _end_of(subscription: TroubledSubscription, at: datetime) -> str:
    expires_at = subscription.expires_at
    if subscription.state is SubscriptionState.denied:
        return f"the hub denied it {length_in_words(at - subscription.since)} ago"
    if expires_at is None:
        return f"the hub has not verified it for {length_in_words(at - subscription.requested_at)}"
    if expires_at <= at:
        return f"its lease ended {length_in_words(at - expires_at)} ago"
    return f"its lease ends in {length_in_words(expires_at - at)}, and no renewal has succeeded"
