"""A server that respects the limit of open files, prints its address and ends in order."""

import asyncio
import errno
import ipaddress
import logging
import queue
import resource
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import structlog
import uvicorn
from fastapi import FastAPI

from service.api.app import create_app
from service.api.assembly import Service
from service.api.protocol import SPARE, BoundedConnection, Stage
from service.model.errors import ENDED, AddressUnavailable

MAX_CONNECTIONS = 16_384
"""Maximum number of connections, even with more file descriptors."""

KEPT = 64
"""Maximum number of descriptors for the database and files; at most two thirds of the free ones."""

FEW = 1_024
"""Number of descriptors below which the server logs a warning."""

USEFUL = MAX_CONNECTIONS + SPARE + KEPT + FEW
"""Maximum number of descriptors that the server can use."""

OPEN_FILES = Path("/dev/fd")

log = structlog.get_logger()


def raise_limit() -> int:
    """Raise the soft limit of open files up to `USEFUL`, and return the limit."""
    soft, hard = map(_finite, resource.getrlimit(resource.RLIMIT_NOFILE))
    if soft < min(hard, USEFUL):
        with suppress(ValueError, OSError):  # a system may allow less than the hard limit
            hard_as_set = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, USEFUL), hard_as_set))
    return _finite(resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def _finite(limit: int) -> int:
    return USEFUL if limit == resource.RLIM_INFINITY else limit


def max_connections() -> int:
    """Return the maximum number of connections of a server; log a warning for few."""
    limit = raise_limit()
    n = connections_within(limit, len([*OPEN_FILES.iterdir()]))
    if limit < FEW:
        log.warning("few file descriptors", limit=limit, connections=n, remedy="raise ulimit -n")
    return n


def connections_within(limit: int, n_open: int) -> int:
    """Return the number of connections that a limit of open files allows, at least one.

    >>> connections_within(limit=1_024, n_open=24)
    928
    >>> connections_within(limit=64, n_open=19)
    7
    """
    free = limit - n_open
    n = max(free - KEPT, free // 3) - SPARE
    return max(1, min(n, MAX_CONNECTIONS))


START_TIMEOUT_S = 20.0
ABORT_AFTER_S = 4.0
"""Maximum wait of requests for the database, and for their bodies, at the server's end, seconds;
then they receive 503."""
GRACEFUL_S = 6
"""Maximum time for all requests at the server's end, seconds; threads end within 10 s in all."""


def no_fault(record: logging.LogRecord) -> bool:
    """Return False for requests that the end of the server cut off; uvicorn counts them."""
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))


ABSENT = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
"""Error numbers of an address that this machine lacks, such as ::1 without IPv6."""


EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - it is compared with
"""Addresses that stand for all of a machine, and those of them by which it reaches itself."""


def bind(host: str, port: int) -> list[socket.socket]:
    """Return a socket for each address of a host; port 0 takes a free one, the same for all.

    `::` are all addresses, those of IPv4 too. IPv4 has a socket of its own, because callers would
    otherwise have mapped addresses such as ::ffff:127.0.0.1, which no list of proxies names.

    Raises
    ------
    AddressUnavailable
        The port is in use, or the server may not listen there.
    """
    sockets: list[socket.socket] = []
    absent: OSError | None = None
    try:
        for family, *_, address in _addresses(host, port):
            free = sockets[0].getsockname()[1] if sockets and not port else port
            try:
                sockets.append(_bound(family, (address[0], free, *address[2:])))
            except OSError as error:
                if error.errno not in ABSENT or (is_all(host) and not sockets):
                    raise
                absent = error
        if absent is not None and not sockets:
            raise absent
    except (OSError, UnicodeError) as error:  # UnicodeError: no name, such as a..b
        for each in sockets:
            each.close()
        raise unavailable(host, port, error) from error
    return sockets


def _addresses(host: str, port: int) -> list[Any]:
    kind, flags = socket.SOCK_STREAM, socket.AI_PASSIVE
    hosts = ["::", "0.0.0.0"] if is_all(host) else [host or None]  # noqa: S104 - as asked for
    answers = [socket.getaddrinfo(each, port, type=kind, flags=flags) for each in hosts]
    return list(dict.fromkeys(address for each in answers for address in each))


def is_all(host: str) -> bool:
    """Return whether a host is `::` in any spelling.

    >>> [is_all(host) for host in ("::", "0:0::0", "0.0.0.0", "::1", "localhost")]
    [True, True, False, False, False]
    """
    try:
        return ipaddress.ip_address(host) == ipaddress.IPv6Address("::")
    except ValueError:
        return False


def _bound(family: socket.AddressFamily, address: Any) -> socket.socket:
    each = socket.socket(family, socket.SOCK_STREAM)
    try:
        each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            each.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        each.bind(address)
    except OSError:
        each.close()
        raise
    return each


def unavailable(host: str, port: int, error: OSError | UnicodeError) -> AddressUnavailable:
    """Return why the server cannot listen, and what to do."""
    is_six = ":" in host and not isinstance(error, socket.gaierror)
    address = f"[{host}]:{port}" if is_six else f"{host}:{port}"
    if isinstance(error, socket.gaierror | UnicodeError):
        reason = (
            "no address has this name; give --host an address or a name alone, without brackets, "
            "scheme or port"
        )
    elif error.errno == errno.EADDRINUSE:
        reason = "the port is in use; end the program that listens there, or choose another --port"
    elif error.errno == errno.EACCES:
        reason = "this user may not; choose a --port above 1023"
    elif error.errno == errno.EAFNOSUPPORT or (error.errno == errno.EADDRNOTAVAIL and is_all(host)):
        reason = "IPv6 is off on this machine; choose --host 0.0.0.0"
    elif error.errno == errno.EADDRNOTAVAIL:
        reason = "this machine has no such address; choose another --host"
    else:
        reason = f"{error.strerror or error}; choose another --host or --port"
    return AddressUnavailable(f"the server cannot listen on {address}: {reason}")


class GracefulServer(uvicorn.Server):
    """A server that announces its address, and releases waiting requests at its end."""

    def __init__(
        self, config: uvicorn.Config, service: Service, announce: Callable[[str], None]
    ) -> None:
        super().__init__(config)
        logging.getLogger("uvicorn.error").addFilter(no_fault)
        self.service = service
        self.announce = announce

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer requests that wait for a new epoch, then end."""
        self.service.watch.release()
        self.service.feed.release()
        timer = threading.Timer(ABORT_AFTER_S, self.service.store.abort)
        timer.daemon = True
        timer.start()
        asyncio.get_running_loop().call_later(ABORT_AFTER_S, self._refuse_bodies)
        await super().shutdown(sockets)
        timer.cancel()

    def _refuse_bodies(self) -> None:
        """Answer requests whose bodies still arrive; else they would be cut off without answer."""
        for connection in list(self.server_state.connections):
            if isinstance(connection, BoundedConnection) and connection.arrival.stage is Stage.BODY:
                connection.refuse(503, "StoreUnavailable", ENDED)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start listening, and announce the address; raise `AddressUnavailable`."""
        try:
            await super().startup(sockets)
        except OSError as error:  # another server has bound the port at the same time
            raise unavailable(self.config.host, self.config.port, error) from error
        open_connections = self.server_state.connections
        self.service.telemetry.watch(
            "recrawl_connections", "Open connections", lambda: len(open_connections)
        )
        if self.started:
            self.announce(address_of(self.servers[0].sockets[0]))


def address_of(listening: socket.socket) -> str:
    """Return the base URL of a bound socket, by which this machine reaches it."""
    host, port = listening.getsockname()[:2]
    host = EVERYWHERE.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@contextmanager
def running(service: Service, app: FastAPI | None = None) -> Iterator[str]:
    """Serve on a free loopback port until the block ends; yield the base URL.

    `app` is the application of the service, by default the API alone.
    """
    addresses: queue.Queue[str] = queue.Queue()
    config = uvicorn.Config(
        app or create_app(service),
        port=0,
        log_level="warning",
        access_log=False,
        http=BoundedConnection,
    )
    server = GracefulServer(config, service, addresses.put)
    thread = threading.Thread(target=server.run, name="server", daemon=True)
    thread.start()
    try:
        yield addresses.get(timeout=START_TIMEOUT_S)
    finally:
        server.should_exit = True
        thread.join()
