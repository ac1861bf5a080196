"""IndexNow (indexnow.org): submissions of sites, and the check of their keys."""

import re
from collections.abc import Callable
from functools import partial
from typing import NamedTuple
from urllib.parse import urlsplit

import httpx

from recrawl_client.headers import retry_after
from service.connectors.guarded import AddressNotPublic, FetchLimits, Outgoing, guarded_client
from service.connectors.inflating import inflated_within
from service.model.errors import InvalidField, InvalidUrl
from service.model.field_faults import shown
from service.model.urls import NormalUrl, normalise

MAX_URLS = 10_000
KEY = re.compile(r"[A-Za-z0-9-]{8,128}")
FETCH_S = 5.0
"""Maximum time for a key file, seconds, from the name look-up to the last byte."""
MAX_KEY_FILE = 2_048
"""Maximum size of a key file, bytes."""
AWAY = (408, 425, 429)
"""Statuses that pass by themselves, beside those of 500 and more."""
SILENCE = (
    httpx.TimeoutException,
    httpx.NetworkError,
    httpx.ProxyError,
    httpx.RemoteProtocolError,
)
"""Errors after which a site may answer the next request."""


class KeyClaim(NamedTuple):
    """A key, the address of the file that must contain the key, and the file's host."""

    key: str
    location: str
    host: str


class Submission(NamedTuple):
    """URLs of one host, and the claim that proves authority over the host."""

    claim: KeyClaim
    urls: list[NormalUrl]


def claimed(
    key: str, name: str, url: str, host: str | None = None, key_location: str | None = None
) -> KeyClaim:
    """Return the claim of a submission's key and first URL, without a request to the site.

    Raises
    ------
    InvalidField
        The key has another form, or the field `name` is no URL of the host in the key file's
        folder.
    """
    if not KEY.fullmatch(key):
        raise InvalidField(
            "key", "the key has another form; send 8 to 128 letters, digits and dashes"
        )
    first = _normal(name, url)
    site = first if host is None else _site(host)
    scheme = first.url.partition(":")[0]
    location = _normal("keyLocation", key_location or f"{scheme}://{_netloc(site)}/{key}.txt")
    if location.host != site.host or urlsplit(location.url).port is not None:
        raise InvalidField(
            "keyLocation",
            f"the key file lies elsewhere; put it on {site.host[:100]}, at its usual port",
        )
    claim = KeyClaim(key, location.url, site.host)
    _check(name, first, claim)
    return claim


def submission(
    key: str, urls: list[str], host: str | None = None, key_location: str | None = None
) -> Submission:
    """Return a submission, checked as by `claimed`; the default host is the first URL's."""
    alone = host is None and len(urls) == 1
    names = ["url"] if alone else [f"urlList[{i}]" for i in range(len(urls))]
    claim = claimed(key, names[0], urls[0], host, key_location)
    normal = [_normal(name, url) for name, url in zip(names, urls, strict=True)]
    for name, url in zip(names, normal, strict=True):
        _check(name, url, claim)
    return Submission(claim, normal)


def _check(name: str, url: NormalUrl, claim: KeyClaim) -> None:
    """Raise `InvalidField` for a URL that the key does not cover."""
    if url.host != claim.host:
        raise InvalidField(
            name, f"{url.url[:200]} is not of the host {claim.host[:100]}; submit it apart"
        )
    folder = urlsplit(claim.location).path.rpartition("/")[0] + "/"
    if not urlsplit(url.url).path.startswith(folder):
        raise InvalidField(
            name,
            f"{url.url[:200]} lies outside of {folder[:100]}, where the key file is",
        )


def _site(host: str) -> NormalUrl:
    """Return the host, with or without a port, as a URL."""
    site = _normal("host", f"https://{host}/")
    if urlsplit(site.url).path != "/":
        raise InvalidField("host", f"{shown(host)} is not a host name; send one like example.com")
    return site


def _normal(field: str, url: str) -> NormalUrl:
    try:
        return normalise(url)
    except InvalidUrl as error:
        raise InvalidField(field, error.detail, error.code) from error


def _netloc(site: NormalUrl) -> str:
    return f"[{site.host.strip('[]')}]" if ":" in site.host else site.host


class KeyFileAway(Exception):
    """The site could not show its key file now, and may show it later."""

    def __init__(self, retry_after_s: float = 0.0) -> None:
        self.retry_after_s = retry_after_s
        """Wait that the site asks for, seconds; 0: none."""
        super().__init__()


def key_client(outgoing: Outgoing = Outgoing()) -> httpx.Client:  # noqa: B008 - frozen
    """Return a client for one key file; it follows no redirects."""
    return guarded_client(
        FetchLimits(FETCH_S, MAX_KEY_FILE),
        headers={"Accept-Encoding": "identity"},
        outgoing=outgoing,
    )


def shows_key(claim: KeyClaim, client: Callable[[], httpx.Client] = key_client) -> bool:
    """Return whether the key file contains the key; blocks for at most `FETCH_S`.

    The guarded client refuses addresses in the service's own network.

    Raises
    ------
    KeyFileAway
        The site does not answer, or answers 408, 425, 429 or 5xx.
    AddressNotPublic
        The site has an address that is not public.
    """
    try:
        with client() as web, web.stream("GET", claim.location) as response:
            status = response.status_code
            if status in AWAY or response.is_server_error:
                raise KeyFileAway(retry_after(response))
            if status != httpx.codes.OK:
                return False
            content = inflated_within(response, MAX_KEY_FILE)
    except AddressNotPublic:  # which is an error of the network too
        raise
    except SILENCE as error:
        raise KeyFileAway from error
    except (httpx.HTTPError, httpx.InvalidURL, ValueError):
        return False
    return claim.key in content.decode("utf-8-sig", "replace").split()


def looks(outgoing: Outgoing) -> Callable[[KeyClaim], bool]:
    """Return `shows_key` with the rules of an operator."""
    return partial(shows_key, client=partial(key_client, outgoing))
