"""Service links: variables that Kubernetes sets in each pod for each Service of its namespace.

For a Service `recrawl` with the address 10.0.0.7 and a port 8000 of the name `http` they are:

| variable | value |
| --- | --- |
| `RECRAWL_SERVICE_HOST` | 10.0.0.7 |
| `RECRAWL_SERVICE_PORT`, `RECRAWL_SERVICE_PORT_HTTP` | 8000 |
| `RECRAWL_PORT`, `RECRAWL_PORT_8000_TCP` | tcp://10.0.0.7:8000 |
| `RECRAWL_PORT_8000_TCP_PROTO`, `…_PORT`, `…_ADDR` | tcp, 8000, 10.0.0.7 |

Source: https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables
"""

import re
from collections.abc import Iterator, Mapping
from ipaddress import ip_address

HOST = "_SERVICE_HOST"
PORT = re.compile(r"[1-9][0-9]{0,4}")
NAMED = re.compile(r"_SERVICE_PORT_[A-Z0-9_]+")
OF_PORT = re.compile(r"_PORT_([0-9]+)_(TCP|UDP|SCTP)(_PROTO|_PORT|_ADDR)?")


def service_links(environment: Mapping[str, str], prefix: str) -> set[str]:
    """Return the names of service links with a prefix.

    A Service counts where its first three variables stand together and agree: `_SERVICE_HOST` has
    an address, `_SERVICE_PORT` a port, and `_PORT` both. Its other variables must agree with that
    address. Thus a setting that is spelt wrong is no service link.

    >>> links = {"A_SERVICE_HOST": "::1", "A_SERVICE_PORT": "80", "A_PORT": "tcp://[::1]:80"}
    >>> sorted(service_links({**links, "A_POTR": "80", "A_PORT_80_TCP_ADDR": "::2"}, "A_"))
    ['A_PORT', 'A_SERVICE_HOST', 'A_SERVICE_PORT']
    """
    services = [
        name.removesuffix(HOST)
        for name in environment
        if name.startswith(prefix) and name.endswith(HOST)
    ]
    return {name for service in services for name in _links_of(service, environment)}


def _links_of(service: str, environment: Mapping[str, str]) -> Iterator[str]:
    host, port, url = (
        environment.get(f"{service}{end}", "") for end in (HOST, "_SERVICE_PORT", "_PORT")
    )
    protocol = url.partition("://")[0]
    named = protocol in ("tcp", "udp", "sctp")
    if not (named and PORT.fullmatch(port) and url == _url(protocol, host, port)):
        return
    yield from (f"{service}{end}" for end in (HOST, "_SERVICE_PORT", "_PORT"))
    for name, value in environment.items():
        if name.startswith(f"{service}_") and _agrees(name.removeprefix(service), value, host):
            yield name


def _agrees(end: str, value: str, host: str) -> bool:
    """Return whether a further variable of a Service has its shape and its address."""
    if NAMED.fullmatch(end):
        return PORT.fullmatch(value) is not None
    match = OF_PORT.fullmatch(end)
    if match is None:
        return False
    number, protocol = match[1], match[2].lower()
    expected = {"_PROTO": protocol, "_PORT": number, "_ADDR": host}
    return value == expected.get(match[3] or "", _url(protocol, host, number))


def _url(protocol: str, host: str, port: str) -> str | None:
    """Return the address of a port; None where the host is no address."""
    try:
        ip_address(host)
    except ValueError:
        return None
    return f"{protocol}://[{host}]:{port}" if ":" in host else f"{protocol}://{host}:{port}"
