"""The `webhooks` section of the OpenAPI document: the requests that the service sends."""

from typing import Any

from recrawl_client.wire.webhooks import ChangeEvent
from service.api.examples import EXAMPLES
from service.api.openapi import ref
from service.events.encoding import BATCH, SINGLE

DESCRIPTION = """\
The service sends changes to the address of a webhook.

Each change is a CloudEvent 1.0 in JSON; a webhook with `max_items` above 1 gets arrays. Verify the
signature by Standard Webhooks, then answer 2xx within 15 s. Events arrive at least once: skip an
`id` that you have handled. Events of a page arrive in order. After 400, 413 or 422 the service
looks for the change that is refused, and holds back its page. After 410 it stops. After any other
answer it tries again for three days."""


def header(name: str, description: str, example: str) -> dict[str, Any]:
    """Return the description of a header of a request."""
    return {
        "name": name,
        "in": "header",
        "required": True,
        "description": description,
        "schema": {"type": "string"},
        "example": example,
    }


HEADERS = [
    header("webhook-id", "Name of the batch, the same for every repetition", "msg_w3aYcQ2nH0Zk"),
    header("webhook-timestamp", "Instant of the request, Unix seconds", "1777636805"),
    header(
        "webhook-signature",
        "`v1,` and the base64 of HMAC-SHA256 over `id.timestamp.body`, one for each valid secret",
        "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    ),
]
ANSWERS = {
    "2XX": {"description": "Confirmed: the next changes follow"},
    "410": {"description": "The address wants no more changes: the webhook is disabled"},
    "4XX": {"description": "Refused or not ready: see the description"},
    "5XX": {"description": "Not ready: the same request comes again"},
}


def webhook_requests() -> dict[str, Any]:
    """Return the section."""
    content = {
        SINGLE: {"schema": ref(ChangeEvent), "example": EXAMPLES["event"]},
        BATCH: {
            "schema": {"type": "array", "items": ref(ChangeEvent)},
            "example": [EXAMPLES["event"]],
        },
    }
    operation = {
        "tags": ["events"],  # generators write one file a tag, and mix up webhooks and calls
        "x-internal": True,  # openapi-generator's Python of a webhook has syntax errors
        "summary": "Receive changes",
        "description": DESCRIPTION,
        "operationId": "receive_changes",
        "parameters": HEADERS,
        "requestBody": {"required": True, "content": content},
        "responses": ANSWERS,
        "security": [],
    }
    return {"changes": {"post": operation}}
