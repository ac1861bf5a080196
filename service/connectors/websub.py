"""WebSub for subscribers (w3.org/TR/websub): find a hub, subscribe, check signatures.

A document is read only as far as links may occur, and at most up to a limit.
"""

import hmac
from codecs import getincrementaldecoder
from contextlib import suppress
from html.parser import HTMLParser
from typing import Literal, NamedTuple
from urllib.parse import urljoin

import httpx

from service.connectors.guarded import FetchLimits, Outgoing, guarded_client
from service.connectors.inflating import AnswerTooLarge, gunzipped
from service.connectors.json_feed import JsonFeed
from service.connectors.references import Faults
from service.connectors.sitemap import BLANKS
from service.model.errors import HubRefused, MalformedBody, NotSubscribed
from service.model.subscriptions import ASKED_S

METHODS = ("sha1", "sha256", "sha384", "sha512")
MAX_BYTES = 1_000_000
FETCH_S = 30.0
MAX_REDIRECTS = 5
REPEATED = (301, 302, 307, 308)
"""Statuses of redirects after which the request is sent to the new address as it was."""
BUSY = (408, 425, 429)
"""Statuses of clients' errors that pass by themselves."""
MAX_REASON = 300
"""Maximum length of a hub's own words, characters."""
CONTENT = ("entry", "item", "body")
"""Elements that begin the content; links after them do not count."""
NEVER_SENT = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.UnsupportedProtocol,
    httpx.InvalidURL,
    ValueError,
)
"""Errors before a request reaches its address."""


class HubTopic(NamedTuple):
    """A feed or page as its publisher describes it."""

    url: str
    """Address that hubs use for the topic."""
    hub: str


def printable(text: str) -> str:
    r"""Return a hub's words without characters that a database may not take, cut to size.

    >>> printable("no\x00pe ")
    'no\ufffdpe'
    """
    cut = text.strip()[:MAX_REASON]
    return "".join(character if character.isprintable() else "\ufffd" for character in cut)


def signature_fault(content: bytes, secret: str, signature: str) -> str | None:
    """Return what is wrong with an `X-Hub-Signature`; None where it is right."""
    if is_signed(content, secret, signature):
        return None
    method, mark, _ = signature.strip().lower().partition("=")
    if not mark:
        return "the content has no X-Hub-Signature of the form method=hex"
    if method not in METHODS:
        return f"the method {printable(method)[:20]} is none of {', '.join(METHODS)}"
    return "the signature does not fit the secret; the hub may hold an earlier one"


def is_signed(content: bytes, secret: str, signature: str) -> bool:
    """Return whether an `X-Hub-Signature` is that of this content and this secret.

    >>> is_signed(b"news", "s", "sha1=" + hmac.digest(b"s", b"news", "sha1").hex())
    True
    >>> is_signed(b"other news", "s", "sha1=" + hmac.digest(b"s", b"news", "sha1").hex())
    False
    """
    method, _, digest = signature.strip().lower().partition("=")
    if method not in METHODS:
        return False
    expected = hmac.digest(secret.encode(), content, method).hex()
    return hmac.compare_digest(expected.encode(), digest.encode())


def patient_client(
    *,
    private: bool = False,
    outgoing: Outgoing = Outgoing(),  # noqa: B008 - frozen
    remedy: str = "--private",
) -> httpx.Client:
    """Return a guarded client for publishers and hubs."""
    return guarded_client(
        FetchLimits(FETCH_S, MAX_BYTES, MAX_REDIRECTS),
        private=private,
        headers={"Accept-Encoding": "gzip"},
        outgoing=outgoing,
        remedy=remedy,
    )


def hub_client(*, private: bool, outgoing: Outgoing) -> httpx.Client:
    """Return the guarded client of the worker, for hubs."""
    return patient_client(private=private, outgoing=outgoing, remedy="RECRAWL_WEBSUB_PRIVATE=true")


def discover(client: httpx.Client, url: str) -> HubTopic:
    """Return a page's hub and canonical URL, from its Link headers or else from its head.

    Raises
    ------
    NotSubscribed
        The page cannot be fetched, or names no hub.
    """
    try:
        with client.stream("GET", url) as response:
            if not response.is_success:
                raise NotSubscribed(f"{url} answered {response.status_code}")
            links = {rel.lower(): link["url"] for rel, link in response.links.items() if rel}
            if "hub" not in links:
                links = _links(response) | links
            at = str(response.url)
            found_links = {rel: urljoin(at, links[rel]) for rel in ("self", "hub") if rel in links}
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        raise NotSubscribed(f"{url} cannot be fetched or read: {error}") from error
    if "hub" not in found_links:
        raise NotSubscribed(f"{url} names no hub; pass on its site's sitemap instead")
    return HubTopic(found_links.get("self", at), found_links["hub"])


def subscribe(
    client: httpx.Client,
    topic: HubTopic,
    callback: str,
    secret: str | None,
    mode: Literal["subscribe", "unsubscribe"] = "subscribe",
) -> None:
    """Ask the hub to verify the callback, to send updates or to end them; raise `NotSubscribed`.

    The lease that the request names is ten days; the hub chooses. A redirect gets the same request
    again, at most `MAX_REDIRECTS` times, and never over plain HTTP after HTTPS, because of the
    secret. After any error but `HubRefused`, the hub may verify the callback all the same.
    """
    form = {"hub.mode": mode, "hub.topic": topic.url, "hub.callback": callback}
    if mode == "subscribe":
        form |= {"hub.lease_seconds": str(ASKED_S)}
        form |= {} if secret is None else {"hub.secret": secret}
    hub = topic.hub
    for _ in range(MAX_REDIRECTS + 1):
        try:
            with client.stream("POST", hub, data=form, follow_redirects=False) as response:
                if response.is_success:
                    return
                if response.status_code in REPEATED and response.headers.get("Location"):
                    hub = _redirected(hub, response.headers["Location"])
                    continue
                reason = printable(next(gunzipped(response), b"").decode(errors="replace"))
        except NEVER_SENT as error:
            raise HubRefused(f"the hub {hub} cannot be reached: {error}") from error
        except httpx.HTTPError as error:
            raise NotSubscribed(f"the hub {hub} gave no answer: {error}") from error
        raise _refusal(hub, response, reason)
    raise HubRefused(f"the hub {topic.hub} answered over {MAX_REDIRECTS} redirects in a row")


def _redirected(hub: str, location: str) -> str:
    """Return the address that a hub names in place of its own; raise `HubRefused`."""
    target = urljoin(hub, location)
    if hub.startswith("https:") and not target.startswith("https:"):
        raise HubRefused(f"the hub {hub} redirects the secret to {target[:200]}, which is no HTTPS")
    return target


def _refusal(hub: str, response: httpx.Response, reason: str) -> NotSubscribed:
    """Return the error for an answer that is no success."""
    status = response.status_code
    if response.is_redirect:
        where = printable(response.headers.get("Location", "")) or "no address"
        return HubRefused(
            f"the hub {hub} answered {status}, a redirect to {where} that is no place for the same "
            "request; name the hub's own address"
        )
    failed = HubRefused if response.is_client_error and status not in BUSY else NotSubscribed
    return failed(f"the hub {hub} answered {status} {reason}".rstrip())


class _Head(HTMLParser):
    """The links of HTML, Atom or RSS that stand before its content."""

    def __init__(self) -> None:
        super().__init__()
        self.links: dict[str, str] = {}
        self.is_over = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Store the first link of each relation."""
        name = tag.rpartition(":")[2]  # RSS has its links in Atom's namespace
        self.is_over = self.is_over or name in CONTENT
        attributes = dict(attrs)
        href = attributes.get("href")
        if name == "link" and href and not self.is_over:
            for rel in (attributes.get("rel") or "").lower().split():
                self.links.setdefault(rel, href)


def _links(response: httpx.Response) -> dict[str, str]:
    """Return the first link of each relation, of the head of a document or of a JSON Feed."""
    head, size, json = _Head(), 0, ""
    text = getincrementaldecoder(_charset(response))("replace")
    with suppress(AnswerTooLarge):  # links before the limit count
        for piece in gunzipped(response):
            part = text.decode(piece)
            size += len(piece)
            if json or (size == len(piece) and part.lstrip(BLANKS).startswith("{")):
                json += part
                if size > MAX_BYTES:
                    break
                continue
            try:
                head.feed(part)
            except AssertionError:  # html.parser raises it for some invalid markup
                break
            if head.is_over or size > MAX_BYTES:
                break
    return _links_of_json(json) if json else head.links


def _links_of_json(text: str) -> dict[str, str]:
    feed = JsonFeed(text.lstrip(BLANKS), "", Faults())
    with suppress(MalformedBody):  # links before a fault count
        for _ in feed:
            pass
    return {link.rel: link.value for link in reversed(feed.head) if link.value}


def _charset(response: httpx.Response) -> str:
    """Return the charset of text; UTF-8 for names of other codecs, such as zlib."""
    name = response.encoding or "utf-8"
    try:
        b"x".decode(name)
    except (LookupError, UnicodeError):
        return "utf-8"
    return name
