"""Callers without an API key: who they are, and how much of what they send is read."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ipaddress import IPv6Address, IPv6Network, ip_address

from fastapi import Request

from service.model.errors import TooManyRequests

MAX_BYTES = 1_000_000
"""Maximum body of a stranger, bytes once inflated."""
MAX_HELD, MAX_HELD_OF_PEER = 16_000_000, 2_000_000
"""Maximum bytes of strangers' bodies in memory at a time, of all and of one peer."""


def peer(request: Request) -> str:
    """Return the address of a caller; of an IPv6 address its /64, which is one customer's."""
    host = request.client.host if request.client else ""
    try:
        ip = ip_address(host)
    except ValueError:
        return host
    if not isinstance(ip, IPv6Address):
        return str(ip)
    return str(ip.ipv4_mapped or IPv6Network((ip, 64), strict=False).network_address)


class Room:
    """Bytes of bodies in memory; for the event loop alone."""

    def __init__(self, most: int = MAX_HELD, most_of_peer: int = MAX_HELD_OF_PEER) -> None:
        self.most = most
        self.most_of_peer = most_of_peer
        self._held: Counter[str] = Counter()

    @contextmanager
    def held(self, peer: str) -> Iterator[Callable[[int], None]]:
        """Count bytes of a peer until the block ends; a call beyond raises `TooManyRequests`."""
        n_bytes = 0

        def hold(n_more: int) -> None:
            nonlocal n_bytes
            of_peer, of_all = self._held[peer] + n_more, self._held.total() + n_more
            if of_peer > self.most_of_peer or of_all > self.most:
                raise TooManyRequests("too many bodies are being read; try again later")
            self._held[peer] += n_more
            n_bytes += n_more

        try:
            yield hold
        finally:
            self._held[peer] -= n_bytes
            self._held += Counter()  # forgets peers that hold nothing
