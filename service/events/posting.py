"""Send events to the address of a webhook, signed, within the limits of the guarded client."""

import time
from collections.abc import Callable, Sequence
from datetime import datetime
from http.cookiejar import CookieJar
from typing import Any

import httpx
import structlog
from typing_extensions import override

from recrawl_client.headers import retry_after
from recrawl_client.wire.webhooks import ChangeEvent
from service.events.delivery import PostOutcome
from service.events.encoding import body
from service.events.signing import signed_headers
from service.model.webhooks import Webhook

MAX_REASON = 500
"""Maximum length of the reason of a failure, characters."""
MAX_LOCATION = 300
"""Maximum length of a Location in a reason, characters."""
MOST_IDLE = 32
"""Maximum clients that are kept between requests."""

REASONS: tuple[tuple[type[Exception], str], ...] = (
    (httpx.TimeoutException, ""),
    (httpx.ConnectError, "no connection to the address: "),
    (httpx.NetworkError, "the connection broke before the answer was complete: "),
    (httpx.ProtocolError, "the answer is not valid HTTP: "),
    (httpx.InvalidURL, "the address is not a valid URL: "),
    (httpx.UnsupportedProtocol, "the address is not a valid URL: "),
)
"""Starts of reasons by the kind of an error; the first kind that fits counts."""
PLAIN = {
    "Server disconnected without sending a response.": "the address closed the connection without "
    "an answer",
    "Receive buffer too long": "the head of the answer is too long",
}
"""Reasons in place of messages of the HTTP library."""

log = structlog.get_logger()


class AddressMoved(Exception):
    """The address answered with a redirect, which the service does not follow."""

    def __init__(self, status: int, reason: str, retry_after_s: float) -> None:
        super().__init__(reason)
        self.status = status
        self.retry_after_s = retry_after_s


class NoCookies(CookieJar):
    """A jar that stays empty: an address could set ever more cookies."""

    @override
    def extract_cookies(self, response: Any, request: Any) -> None:
        pass


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
        started = time.perf_counter()
        try:
            outcome = self._outcome(webhook, delivery, events, now)
        except Exception as error:  # noqa: BLE001 - each request ends in an outcome
            outcome = PostOutcome(None, reason_of(error))
        return outcome._replace(latency_s=time.perf_counter() - started)

    def close(self) -> None:
        """Close the connections of clients that are not in use."""
        while self._idle:
            self._idle.pop().close()

    def _outcome(
        self, webhook: Webhook, delivery: str, events: Sequence[ChangeEvent], now: datetime
    ) -> PostOutcome:
        content, media_type = body(events, batched=webhook.max_items > 1 or len(events) > 1)
        headers = {"Content-Type": media_type, "Accept-Encoding": "identity"}
        headers |= signed_headers(keys(webhook, now), delivery, now, content)
        client = self._take()
        try:
            with client.stream("POST", webhook.url, content=content, headers=headers) as response:
                return _read(response)
        except AddressMoved as moved:
            return PostOutcome(moved.status, str(moved), retry_after_s=moved.retry_after_s)
        finally:
            self._put(client)

    def _put(self, client: httpx.Client) -> None:
        if len(self._idle) < MOST_IDLE:
            self._idle.append(client)
        else:
            client.close()

    def _take(self) -> httpx.Client:
        try:
            return self._idle.pop()
        except IndexError:
            client = self._new_client()
        client.event_hooks["response"].append(_stop_at_redirect)
        client.cookies = NoCookies()
        return client


def keys(webhook: Webhook, now: datetime) -> list[str]:
    """Return the secrets that sign at an instant."""
    return [webhook.secret, *(old.secret for old in webhook.old_secrets if now < old.until)]


def reason_of(error: Exception) -> str:
    """Return the reason of a failure in plain words."""
    message = str(error)
    for kind, start in REASONS:
        if isinstance(error, kind):
            return printable(PLAIN.get(message, start + (message or "no details")))
    log.warning("a request to a webhook failed", error=repr(error)[:MAX_REASON])
    return printable(f"the request failed: {message or type(error).__name__}")


def printable(text: str) -> str:
    r"""Return a text without characters that a database or a terminal may not take, cut to size.

    >>> printable("a\x00b")
    'a\ufffdb'
    """
    cut = text[:MAX_REASON]
    return "".join(character if character.isprintable() else "\ufffd" for character in cut)


def _read(response: httpx.Response) -> PostOutcome:
    """Return the outcome of an answer; the answer must be complete before the deadline."""
    error = None
    try:
        for _ in response.iter_raw():  # as it came, so that nothing is inflated
            pass
    except (httpx.TimeoutException, httpx.NetworkError, httpx.ProtocolError) as broken:
        error = reason_of(broken)
    except httpx.TransportError:  # a long body ends only the connection
        pass
    return PostOutcome(response.status_code, error, retry_after_s=retry_after(response))


def _stop_at_redirect(response: httpx.Response) -> None:
    """Raise `AddressMoved` before httpx reads the Location, which may be malformed."""
    location = response.headers.get("Location", "").strip()
    if not (response.is_redirect and (location or response.has_redirect_location)):
        return
    where = f"to {location[:MAX_LOCATION]}" if location else "without a Location"
    raise AddressMoved(
        response.status_code,
        printable(
            f"the address answered {response.status_code}, a redirect {where}; redirects are not "
            "followed, set url to the address that answers"
        ),
        retry_after(response),
    )
