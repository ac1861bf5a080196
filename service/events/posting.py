"""Send events to the address of a webhook, signed, within the limits of the guarded client."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime

import httpx

from recrawl_client.headers import retry_after
from recrawl_client.wire.webhooks import ChangeEvent
from service.events.delivery import PostOutcome
from service.events.encoding import body
from service.events.signing import signed_headers
from service.model.webhooks import Webhook

MAX_REASON = 300
"""Maximum length of the reason of a failure, characters."""


class Poster:
    """Clients for the addresses of webhooks, because a guarded client serves one at a time.

    The client that was used last is used next, so that its connections stay open.
    """

    def __init__(self, client: Callable[[], httpx.Client]) -> None:
        self._new_client = client
        self._idle: list[httpx.Client] = []

    def post(
        self, webhook: Webhook, delivery: str, events: Sequence[ChangeEvent], now: datetime
    ) -> PostOutcome:
        """Send events and return the answer; no error of the address raises."""
        content, media_type = body(events, batched=webhook.max_items > 1 or len(events) > 1)
        headers = {"Content-Type": media_type, "Accept-Encoding": "identity"}
        started = time.perf_counter()
        try:
            headers |= signed_headers(keys(webhook, now), delivery, now, content)
            response = self._answer(webhook.url, content, headers)
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            reason = str(error)[:MAX_REASON] or type(error).__name__
            return PostOutcome(None, reason, time.perf_counter() - started)
        latency_s = time.perf_counter() - started
        return PostOutcome(response.status_code, None, latency_s, retry_after(response))

    def close(self) -> None:
        """Close the connections of clients that are not in use."""
        while self._idle:
            self._idle.pop().close()

    def _answer(self, url: str, content: bytes, headers: dict[str, str]) -> httpx.Response:
        client = self._take()
        try:
            with client.stream("POST", url, content=content, headers=headers) as response:
                with suppress(httpx.TransportError):  # a long body ends only the connection
                    for _ in response.iter_raw():  # as it came, so that nothing is inflated
                        pass
                return response
        finally:
            self._idle.append(client)

    def _take(self) -> httpx.Client:
        try:
            return self._idle.pop()
        except IndexError:
            return self._new_client()


def keys(webhook: Webhook, now: datetime) -> list[str]:
    """Return the secrets that sign at an instant."""
    until = webhook.old_secret_until
    old = webhook.old_secret if until is not None and now < until else None
    return [webhook.secret] if old is None else [webhook.secret, old]
