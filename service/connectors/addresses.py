"""Addresses of hosts: public or not, and looked up within a time limit."""

import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Any

MAX_LOOK_UPS = 256
"""Maximum name look-ups at a time, including look-ups without a waiting caller."""

UNICAST = IPv6Network("2000::/3")
"""All IPv6 addresses that the open internet routes."""

SPECIAL_V4 = (IPv4Network("192.0.0.0/24"), IPv4Network("192.88.99.0/24"))
"""IPv4 networks for protocols and relays; Python calls some of them global."""

SPECIAL_V6 = (
    IPv6Network("2001::/23"),  # protocols, among them Teredo, which stands for IPv4 addresses
    IPv6Network("2002::/16"),  # 6to4, which stands for IPv4 addresses
    IPv6Network("3fff::/20"),  # documentation
)
"""IPv6 networks inside of `UNICAST` that are not public; Python's versions differ on them."""


def is_public(address: str) -> bool:
    """Return whether an address is on the public internet, not in a private network.

    >>> [is_public(a) for a in ("8.8.8.8", "10.0.0.1", "169.254.169.254", "::1", "::ffff:10.0.0.1")]
    [True, False, False, False, False]
    """
    ip = ip_address(address.partition("%")[0])
    if isinstance(ip, IPv6Address):
        if ip.ipv4_mapped is None:
            special = any(ip in network for network in SPECIAL_V6)
            return ip in UNICAST and ip.is_global and not special
        ip = ip.ipv4_mapped
    special = ip.is_multicast or ip.is_reserved or any(ip in network for network in SPECIAL_V4)
    return ip.is_global and not special


def is_literal(host: str) -> bool:
    """Return whether a host is an address, not a name.

    >>> [is_literal(host) for host in ("10.0.0.1", "::1", "a.example")]
    [True, True, False]
    """
    try:
        ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


class Resolver:
    """Name look-ups with a time limit.

    Because `getaddrinfo` cannot be interrupted, each look-up runs in a daemon thread. A look-up
    that hangs holds one of `max_look_ups` places, never the caller or the end of the process.
    """

    def __init__(
        self, max_look_ups: int = MAX_LOOK_UPS, getaddrinfo: Callable[..., Any] = socket.getaddrinfo
    ) -> None:
        self._places = threading.BoundedSemaphore(max_look_ups)
        self._getaddrinfo = getaddrinfo

    def __call__(self, host: str, timeout_s: float) -> list[str]:
        """Return the addresses of a host in the system's order.

        Raises
        ------
        TimeoutError
            No answer within the time, or all places taken by look-ups that hang.
        OSError
            The host has no address.
        """
        deadline = time.monotonic() + timeout_s
        if not self._places.acquire(timeout=max(timeout_s, 0.0)):
            raise TimeoutError
        answer: Future[list[str]] = Future()
        thread = threading.Thread(
            target=self._look_up, args=(host, answer), name="look-up", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:  # the system has no thread left
            self._places.release()
            raise OSError(str(error)) from error
        return answer.result(max(deadline - time.monotonic(), 0.0))

    def _look_up(self, host: str, answer: Future[list[str]]) -> None:
        try:
            entries = self._getaddrinfo(host, None, type=socket.SOCK_STREAM)
            answer.set_result([str(entry[4][0]) for entry in entries])
        except UnicodeError as error:
            answer.set_exception(OSError(f"not a host name: {error}"))
        except OSError as error:
            answer.set_exception(error)
        finally:
            self._places.release()


look_up = Resolver()
"""The look-ups of this process."""

LookUp = Callable[[str, float], list[str]]
"""A name look-up: host and seconds to addresses."""


def not_public(host: str, addresses: list[str]) -> str | None:
    """Return the first address of a host that is not public, in words; None: all are.

    >>> not_public("hooks.example", ["8.8.8.8", "10.0.0.1"])
    '10.0.0.1, an address of hooks.example,'
    """
    for address in addresses:
        if not is_public(address):
            return host if host == address else f"{address}, an address of {host},"
    return None
