"""Origins of requests: this machine, a proxy, another machine, or a web page of another site.

A service without keys admits everybody, so it asks where a request comes from.
"""

import re
from functools import lru_cache
from ipaddress import IPv6Address, IPv6Network, ip_address

from starlette.types import Scope

from service.model.errors import Forbidden

FORWARDED = frozenset(
    (
        b"forwarded",
        b"via",
        b"cdn-loop",
        b"client-ip",
        b"fastly-client-ip",
        b"fly-client-ip",
        b"front-end-https",
        b"proxy-client-ip",
        b"proxy-connection",
        b"true-client-ip",
        b"wl-proxy-client-ip",
        b"x-client-ip",
        b"x-cluster-client-ip",
        b"x-host",
        b"x-nf-client-connection-ip",
        b"x-originating-ip",
        b"x-proxyuser-ip",
        b"x-remote-addr",
        b"x-remote-ip",
        b"x-scheme",
        b"x-url-scheme",
        b"x-varnish",
    )
)
"""Headers of a proxy, which shows that the caller may be on another machine."""
FORWARDED_STARTS = (
    b"x-forwarded",
    b"x-real-",
    b"x-original-",
    b"x-rewrite-",
    b"x-appengine-",
    b"x-azure-",
    b"x-arr-",
    b"x-envoy-",
    b"x-sucuri-",
    b"x-vercel-",
    b"akamai-",
    b"x-akamai-",
    b"cf-",
    b"cloudfront-",
    b"tailscale-",
)
"""Starts of further headers of proxies."""
OLD_HTTP = "1.0"
"""Version of HTTP that proxies use by default which add no header, such as nginx."""
OWN_SITE = (b"same-origin", b"none")
"""Values of Sec-Fetch-Site without another site: a page of the service, or a typed address."""
BROWSER = frozenset((b"origin", b"sec-fetch-site", b"referer"))
"""Headers by which a browser states the page that makes a request."""
HOST = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[^\s\[\]:/?#@\\]+)(?::\d{0,5})?")
"""A Host header: an address in brackets or a name, and a port."""


def refuse_others(scope: Scope, *, shared: bool, acts_by_link: bool) -> None:
    """Raise `Forbidden` if a service without keys may not serve a request.

    `shared` is true where other machines may use the service (`RECRAWL_OPEN`).
    """
    local = is_local(scope)
    if not shared:
        _refuse_other_machines(scope, local=local)
    _refuse_other_sites(scope, local=local, acts_by_link=acts_by_link)


def _refuse_other_machines(scope: Scope, *, local: bool) -> None:
    if local and scope.get("http_version") != OLD_HTTP:
        return
    proxy = forwarded(scope)
    if proxy:
        reason = f"came through a proxy, as its header {proxy} shows"
    elif local:
        reason = "uses HTTP/1.0, as proxies do"
    else:
        reason = "came from another machine"
    raise Forbidden(
        f"a service without keys serves its own machine only, and this request {reason}; make a "
        "key by `recrawl keys create`, set RECRAWL_API_KEYS, or RECRAWL_OPEN=true to allow "
        "everybody who reaches the service to read and write"
    )


def _refuse_other_sites(scope: Scope, *, local: bool, acts_by_link: bool) -> None:
    """Raise `Forbidden` if a web page of another site has made this request.

    A browser states the page's site as Origin, or by Sec-Fetch-Site. A site that points its own
    name to this machine is shown by that name as Host, in a request from this machine.
    """
    if _is_of_other_site(scope, acts_by_link=acts_by_link):
        raise Forbidden(
            "a service without keys admits no web page of another site; list its origin in "
            "RECRAWL_CORS_ORIGINS, or create a key"
        )
    if local and not has_own_name(scope):
        raise Forbidden(
            "a service without keys admits calls from this machine by an address or by localhost, "
            "because a web page may have made the others; use these, or create a key"
        )


def _is_of_other_site(scope: Scope, *, acts_by_link: bool) -> bool:
    if BROWSER.isdisjoint([name for name, _ in scope["headers"]]):
        return False
    host, origins = _values(scope, b"host"), _values(scope, b"origin")
    if origins:
        listed = getattr(scope["app"].state.service, "cors_origins", ())
        own = len(origins) == 1 and [_authority(origins[0])] == host
        return not own and any(each.decode("latin-1") not in listed for each in origins)
    sites = _values(scope, b"sec-fetch-site")
    if any(site not in OWN_SITE for site in sites):
        return acts_by_link or not _is_link(scope)
    # browsers send no Sec-Fetch-Site to a plain http address of the network
    return acts_by_link and any([_authority(r)] != host for r in _values(scope, b"referer"))


def _is_link(scope: Scope) -> bool:
    """Return whether a browser follows a link, so that the other site does not see the answer."""
    mode, place = _values(scope, b"sec-fetch-mode"), _values(scope, b"sec-fetch-dest")
    return scope["method"] in ("GET", "HEAD") and (mode, place) == ([b"navigate"], [b"document"])


def _authority(url: bytes) -> bytes:
    """Return the host and port of a URL.

    >>> _authority(b"http://localhost:8000/docs?a")
    b'localhost:8000'
    """
    return re.split(rb"[/?#]", url.partition(b"://")[2], maxsplit=1)[0]


def _values(scope: Scope, name: bytes) -> list[bytes]:
    return [value for each, value in scope["headers"] if each == name]


def forwarded(scope: Scope) -> str:
    """Return the name of a header that a proxy has added, "" without one."""
    for name, _ in scope["headers"]:
        if name in FORWARDED or name.startswith(FORWARDED_STARTS):
            return str(name, "latin-1")
    return ""


def is_local(scope: Scope) -> bool:
    """Return whether a request comes from this machine and through no proxy."""
    client = scope.get("client")
    if client is None or forwarded(scope):
        return False
    return _is_loopback(client[0])


@lru_cache(1_024)
def _is_loopback(address: str) -> bool:
    try:
        ip = ip_address(address)
    except ValueError:
        return False
    mapped = ip.ipv4_mapped if isinstance(ip, IPv6Address) else None
    return (mapped or ip).is_loopback


def has_own_name(scope: Scope) -> bool:
    """Return whether the one Host header of a request is no name of another site."""
    hosts = _values(scope, b"host")
    return len(hosts) == 1 and _is_own_name(hosts[0])


@lru_cache(1_024)
def _is_own_name(host: bytes) -> bool:
    """Return whether no name server can have given this machine the name of a Host header.

    >>> [_is_own_name(host) for host in (b"[::1]:8000", b"localhost:8000", b"api", b"a.example:1")]
    [True, True, True, False]
    >>> [_is_own_name(host) for host in (b"", b":8000", b"[::1", b"localhost:8000@evil", b"a b")]
    [False, False, False, False, False]
    """
    parts = HOST.fullmatch(host.decode("latin-1").lower())
    if parts is None:
        return False
    name = parts[1].strip("[]")
    try:
        return bool(ip_address(name))
    except ValueError:
        return "." not in name.removesuffix(".localhost") and ":" not in name


def peer_of(scope: Scope) -> str:
    """Return the address of a caller, as `customer`."""
    client = scope.get("client")
    return customer(str(client[0]) if client else "")


@lru_cache(1_024)
def customer(host: str) -> str:
    """Return an address; for IPv6 its /64 network, which belongs to one customer."""
    try:
        ip = ip_address(host)
    except ValueError:
        return host
    if not isinstance(ip, IPv6Address):
        return str(ip)
    return str(ip.ipv4_mapped or IPv6Network((ip, 64), strict=False).network_address)
