"""WebSub for subscribers (w3.org/TR/websub): find a hub, subscribe, check signatures.

A document is read only as far as links may occur, and at most up to a limit.
"""

import hmac
from codecs import getincrementaldecoder
from contextlib import suppress
from html.parser import HTMLParser
from typing import NamedTuple
from urllib.parse import urljoin

import httpx

from service import __version__
from service.connectors.guarded import AnswerTooLarge, FetchLimits, guarded_client, gunzipped
from service.model.errors import HubRefused, NotSubscribed

METHODS = ("sha1", "sha256", "sha384", "sha512")
MAX_BYTES = 1_000_000
FETCH_S = 30.0
MAX_REDIRECTS = 5
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


class Topic(NamedTuple):
    """A feed or page as its publisher describes it."""

    url: str
    """Address that hubs use for the topic."""
    hub: str


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


def patient_client(*, private: bool = False) -> httpx.Client:
    """Return a guarded client for publishers and hubs."""
    headers = {"User-Agent": f"recrawl/{__version__}", "Accept-Encoding": "gzip"}
    return guarded_client(
        FetchLimits(FETCH_S, MAX_BYTES, MAX_REDIRECTS), private=private, headers=headers
    )


def discover(client: httpx.Client, url: str) -> Topic:
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
    return Topic(found_links.get("self", at), found_links["hub"])


def subscribe(client: httpx.Client, topic: Topic, callback: str, secret: str) -> None:
    """Ask the hub to verify the callback and to send updates; raise `NotSubscribed`.

    After any error but `HubRefused`, the hub may verify the callback all the same.
    """
    form = {
        "hub.mode": "subscribe",
        "hub.topic": topic.url,
        "hub.callback": callback,
        "hub.secret": secret,
    }
    try:
        with client.stream("POST", topic.hub, data=form) as response:
            if response.is_success:
                return
            reason = next(gunzipped(response), b"").decode(errors="replace").strip()[:200]
    except NEVER_SENT as error:
        raise HubRefused(f"the hub {topic.hub} cannot be reached: {error}") from error
    except httpx.HTTPError as error:
        raise NotSubscribed(f"the hub {topic.hub} gave no answer: {error}") from error
    failed = HubRefused if response.is_client_error else NotSubscribed
    raise failed(f"the hub {topic.hub} answered {response.status_code} {reason}".rstrip())


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
    head, size = _Head(), 0
    text = getincrementaldecoder(_charset(response))("replace")
    with suppress(AnswerTooLarge):  # links before the limit count
        for piece in gunzipped(response):
            try:
                head.feed(text.decode(piece))
            except AssertionError:  # html.parser raises it for some invalid markup
                break
            size += len(piece)
            if head.is_over or size > MAX_BYTES:
                break
    return head.links


def _charset(response: httpx.Response) -> str:
    """Return the charset of text; UTF-8 for names of other codecs, such as zlib."""
    name = response.encoding or "utf-8"
    try:
        b"x".decode(name)
    except (LookupError, UnicodeError):
        return "utf-8"
    return name
