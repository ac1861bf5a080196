"""Connections to checked addresses, each with the deadline of its request.

The guard looks a name up once and connects to exactly the address that was checked. Host, SNI and
certificate stay those of the name.
"""

import time
from collections.abc import Iterable
from itertools import zip_longest
from ssl import SSLContext
from typing import Any

import httpcore
from typing_extensions import override

from service.connectors.addresses import LookUp, not_public

WRITTEN_AT_ONCE = 16_384
"""Bytes that are sent between two looks at the deadline."""
MAX_HEAD = 262_144
"""Maximum size of the heads of an answer, those of 1xx included, bytes."""
ADDRESS_S = 5.0
"""Maximum time to connect to one address of a host that has others, seconds."""


class NotPublicHost(httpcore.ConnectError):
    """A host has an address that is not public."""


class Deadline:
    """The deadline of the current request."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.connection: Timed | None = None
        """Connection of the request; None before its first byte."""
        self._at = 0.0

    def restart(self) -> None:
        """Set the deadline of a new request."""
        self._at = time.monotonic() + self.seconds
        self.connection = None

    def left(self) -> float:
        """Return the seconds left; raise `httpcore.ReadTimeout` at the end."""
        left = self._at - time.monotonic()
        if left <= 0:
            raise httpcore.ReadTimeout
        return left


class Guard(httpcore.NetworkBackend):
    """Connections to hosts; every address is checked before the connection opens."""

    def __init__(
        self,
        deadline: Deadline,
        look_up: LookUp,
        network: httpcore.NetworkBackend,
        *,
        private: bool,
        remedy: str = "--private",
    ) -> None:
        self.deadline = deadline
        self.remedy = remedy
        self.private = private
        self.look_up = look_up
        self.network = network

    @override
    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        failure: Exception = httpcore.ConnectError(f"{host} has no address")
        addresses = in_turns(self._addresses(host))
        for n_tried, address in enumerate(addresses, 1):
            share_s = self._share_s(len(addresses) - n_tried)
            try:
                stream = self.network.connect_tcp(
                    address, port, share_s, local_address, socket_options
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
            else:
                return Timed(stream, self.deadline)
        raise failure

    def _share_s(self, n_after: int) -> float:
        """Return the seconds for one address, so that those after it and the request have theirs.

        A host with a dead address, such as of IPv6 on a network without it, answers by another.
        """
        left = self.deadline.left()
        return min(left / (n_after + 2), ADDRESS_S) if n_after else left

    def _addresses(self, host: str) -> list[str]:
        try:
            addresses = self.look_up(host, self.deadline.left())
        except TimeoutError as error:
            raise httpcore.ConnectTimeout from error
        except OSError as error:
            raise httpcore.ConnectError(f"{host} has no address: {error}") from error
        # one private address refuses the host, whatever address would be used
        place = None if self.private else not_public(host, addresses)
        if place is not None:
            raise NotPublicHost(
                f"{place} is not public; {self.remedy} allows addresses of your own network"
            )
        return addresses


def in_turns(addresses: list[str]) -> list[str]:
    """Return the addresses of a host, those of IPv6 and of IPv4 in turns, the first one first.

    >>> in_turns(["2600::1", "2600::2", "192.0.2.1"])
    ['2600::1', '192.0.2.1', '2600::2']
    """
    kinds = ([a for a in addresses if (":" in a) == is_six] for is_six in (True, False))
    mine, others = sorted(kinds, key=lambda kind: kind[:1] != addresses[:1])
    return [a for pair in zip_longest(mine, others) for a in pair if a is not None]


class Timed(httpcore.NetworkStream):
    """A connection whose every step ends at the deadline, even when bytes arrive slowly."""

    def __init__(self, stream: httpcore.NetworkStream, deadline: Deadline) -> None:
        self.stream = stream
        self.deadline = deadline
        self.n_read = 0
        """Bytes that arrived since the last byte of the request."""
        self.in_head = False
        """True from the request to the end of the answer's head."""
        self.has_answered = False
        """True after the first answer."""

    @override
    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        part = self.stream.read(max_bytes, self.deadline.left())
        self.n_read += len(part)
        if self.in_head and self.n_read > MAX_HEAD:
            raise httpcore.RemoteProtocolError(f"its head has over {MAX_HEAD} bytes")
        return part

    @override
    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self.n_read, self.in_head, self.deadline.connection = 0, True, self
        # in pieces, because a receiver that reads slowly would get a new timeout for each segment
        for start in range(0, len(buffer), WRITTEN_AT_ONCE):
            self.stream.write(buffer[start : start + WRITTEN_AT_ONCE], self.deadline.left())

    @override
    def close(self) -> None:
        self.stream.close()

    @override
    def start_tls(
        self,
        ssl_context: SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        left = self.deadline.left()
        return Timed(self.stream.start_tls(ssl_context, server_hostname, left), self.deadline)

    @override
    def get_extra_info(self, info: str) -> Any:
        return self.stream.get_extra_info(info)
