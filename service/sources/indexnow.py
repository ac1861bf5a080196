"""IndexNow: what a site submits, and whether it has shown its key (indexnow.org)."""

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable
from ipaddress import IPv6Address, IPv6Network, ip_address
from typing import NamedTuple
from urllib.parse import urlsplit

import httpx

from service.errors import InvalidField, InvalidUrl
from service.urls import NormalUrl, normalise

MAX_URLS = 10_000
KEY = re.compile(r"[A-Za-z0-9-]{8,128}")
FETCH_S = 5.0
"""A key file that takes longer is not there."""
MAX_KEY_FILE = 2_048
OK = 200
TRANSLATED = (IPv6Network("64:ff9b::/32"), IPv6Network("2001::/32"), IPv6Network("2002::/16"))
"""IPv6 that stands for IPv4 addresses, public or not."""


class Submission(NamedTuple):
    """URLs of one host, and where the key is said to lie."""

    key: str
    key_location: str
    urls: list[NormalUrl]


def submission(
    key: str, urls: list[str], host: str | None = None, key_location: str | None = None
) -> Submission:
    """Check what can be checked without looking at the site; the host is the first URL's if untold.

    Raises
    ------
    InvalidField
        The key is no key, a URL is none or not the host's, or it lies outside of the folder of the
        key file, whose word reaches no further.
    """
    if not KEY.fullmatch(key):
        raise InvalidField("key", "the key must have 8 to 128 letters, digits and dashes")
    alone = host is None and len(urls) == 1
    names = ["url"] if alone else [f"urlList[{i}]" for i in range(len(urls))]
    found = [_normal(name, url) for name, url in zip(names, urls, strict=True)]
    site = found[0] if host is None else _site(host)
    for name, url in zip(names, found, strict=True):
        if url.host != site.host:
            raise InvalidField(
                name, f"{url.url[:200]} is not of the host {site.host[:100]}; submit it apart"
            )
    scheme = found[0].url.partition(":")[0]
    location = _normal("keyLocation", key_location or f"{scheme}://{_netloc(site)}/{key}.txt")
    folder = urlsplit(location.url).path.rpartition("/")[0] + "/"
    if location.host != site.host or urlsplit(location.url).port is not None:
        raise InvalidField(
            "keyLocation", f"the key file must lie on {site.host[:100]}, at its usual port"
        )
    for name, url in zip(names, found, strict=True):
        if not urlsplit(url.url).path.startswith(folder):
            raise InvalidField(
                name, f"{url.url[:200]} lies outside of {folder[:100]}, where the key file is"
            )
    return Submission(key, location.url, found)


def _site(host: str) -> NormalUrl:
    """Read the host, with or without a port."""
    site = _normal("host", f"https://{host}/")
    if urlsplit(site.url).path != "/":
        raise InvalidField("host", f"{host[:100]!r} is not a host name; send one like example.com")
    return site


def _normal(field: str, url: str) -> NormalUrl:
    try:
        return normalise(url)
    except InvalidUrl as error:
        raise InvalidField(field, error.detail, error.code) from error


def _netloc(site: NormalUrl) -> str:
    return f"[{site.host.strip('[]')}]" if ":" in site.host else site.host


async def public_address(host: str) -> str | None:
    """Give an address of a host that anybody could reach; None where any is not public."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return None
    addresses = [str(entry[4][0]) for entry in found]
    return addresses[0] if addresses and all(map(is_public, addresses)) else None


def is_public(address: str) -> bool:
    """Tell whether an address lies in the open internet, not in a network of ours.

    >>> [is_public(a) for a in ("8.8.8.8", "10.0.0.1", "169.254.169.254", "::1", "::ffff:10.0.0.1")]
    [True, False, False, False, False]
    """
    ip = ip_address(address.partition("%")[0])
    if isinstance(ip, IPv6Address):
        if any(ip in network for network in TRANSLATED):
            return False
        ip = ip.ipv4_mapped or ip
    return ip.is_global and not ip.is_multicast


def shows_key(
    asked: Submission,
    *,
    resolve: Callable[[str], Awaitable[str | None]] = public_address,
    transport: Callable[[], httpx.AsyncBaseTransport] = httpx.AsyncHTTPTransport,
) -> bool:
    """Fetch the key file and tell whether it holds the key; blocks for at most 5 s.

    Only the host named is asked, at a public address that was looked up once, without following
    redirects; so a stranger cannot send this service into its own network. A loop of its own runs
    it because only that ends a fetch which trickles.
    """

    async def fetch() -> bool:
        url = httpx.URL(asked.key_location)
        async with asyncio.timeout(FETCH_S):
            address = await resolve(url.host)
            if address is None:
                return False
            async with (
                httpx.AsyncClient(transport=transport(), trust_env=False) as client,
                client.stream(
                    "GET", url.copy_with(host=address),
                    headers={"Host": url.netloc.decode(), "Accept-Encoding": "identity"},
                    extensions={"sni_hostname": url.host},
                ) as response,
            ):  # fmt: skip
                content = b""
                async for chunk in response.aiter_raw():
                    content += chunk
                    if len(content) > MAX_KEY_FILE:
                        return False
        words = content.decode("utf-8-sig", "replace").split()
        return response.status_code == OK and asked.key in words

    try:
        return asyncio.run(fetch())
    except (TimeoutError, httpx.HTTPError, httpx.InvalidURL, ValueError):
        return False
