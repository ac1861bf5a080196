"""The server of all hosts: raw sockets, so that it may break HTTP; it writes down each request.

A request has the instant of its arrival at the kernel. This process may read it later, as it stands
still now and then on a busy machine.
"""

import asyncio
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus

from benchmarks.rough.arrivals import ArrivalSocket
from benchmarks.rough.behaviours.answers import Answer, Visit, plain, says
from benchmarks.rough.world import PAGES_PER_HOST, Host, RoughWorld
from recrawl_client.headers import retry_seconds

LONGEST_HEAD = 65_536
"""Maximum length of the head of a request, bytes."""


@dataclass(slots=True)
class Request:
    """One request as the server saw it."""

    at: float
    """Instant of its arrival, seconds since the start."""
    host: int
    path: str
    page: int | None
    """Number of the page with exactly this path."""
    status: int
    """Status as crawlers see it; 0: none of them can read the answer."""
    content: bool
    asked_s: float
    """Retry-After of the answer, seconds; 0 without one that can be read."""
    links: tuple[str, ...]
    """Paths that the answer links to and no page of the world has."""
    read_at: float
    """Instant at which this process read the request, seconds since the start."""

    @property
    def for_robots(self) -> bool:
        """True for a request of robots.txt."""
        return self.path == "/robots.txt"


@dataclass
class Site:
    """The hosts of a world on one port, and the log of their requests."""

    world: RoughWorld
    port: int
    log: list[Request] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    """Exceptions of this server, which spoil the run."""
    started_at: float = field(default_factory=time.monotonic)

    def now(self) -> float:
        """Return the seconds since the start."""
        return time.monotonic() - self.started_at

    def start(self) -> None:
        """Start the run: the instants of changes count from now."""
        self.started_at = time.monotonic()

    def url(self, host: Host, path: str) -> str:
        """Return the URL of a path on a host."""
        return f"http://{host.address}:{self.port}{path}"

    def urls(self) -> list[str]:
        """Return the URLs of all pages."""
        world = self.world
        return [
            self.url(world.hosts[page // PAGES_PER_HOST], world.path(page))
            for page in range(len(world))
        ]

    # -- answers

    def answer(self, host: Host, path: str, headers: dict[str, str], n: int, at: float) -> Answer:
        """Return the answer of a host to a request of an instant, and write the request down."""
        page = self._page(host, path)
        visit = Visit(at, f"{host.address}:{self.port}", path, headers, None, n)
        named = self._page(host, visit.place)
        if named is not None:
            version = self.world.version(named, at)
            visit = Visit(at, visit.host, path, headers, version, n)
        behaves_well = host.behaviour.in_outages and host.outage(at) is None
        try:
            answer = plain(visit) if behaves_well else host.behaviour.answer(visit)
        except Exception as error:  # noqa: BLE001 - the checker reports it
            self.faults.append(f"{host.behaviour.name} {path}: {error!r}")
            answer = says(HTTPStatus.INTERNAL_SERVER_ERROR)(visit)
        asked_s = retry_seconds(dict(answer.headers).get("Retry-After", ""))
        status = 0 if answer.unreadable else answer.code
        content, links, read_at = answer.content, answer.links, self.now()
        self.log.append(
            Request(at, host.number, path, page, status, content, asked_s, links, read_at)
        )
        return answer

    def _page(self, host: Host, path: str) -> int | None:
        number = path.removeprefix("/p")
        if path == number or not number.isdigit() or int(number) >= PAGES_PER_HOST:
            return None
        return host.number * PAGES_PER_HOST + int(number)

    # -- connections

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Serve from a thread until the block ends."""
        loop = asyncio.new_event_loop()
        ready, stop = threading.Event(), asyncio.Event()
        failed: list[BaseException] = []

        def run() -> None:
            asyncio.set_event_loop(loop)
            try:
                loop.run_until_complete(self._serve(ready, stop))
            except OSError as error:
                failed.append(error)
                ready.set()

        thread = threading.Thread(target=run, name="rough-web", daemon=True)
        thread.start()
        ready.wait()
        try:
            if failed:
                raise failed[0]
            yield
        finally:
            if not failed:
                loop.call_soon_threadsafe(stop.set)
            thread.join()
            loop.close()

    async def _serve(self, ready: threading.Event, stop: asyncio.Event) -> None:
        by_address = {host.address: host for host in self.world.hosts}
        counts = dict.fromkeys(by_address, 0)
        arrived: dict[int, float] = {}
        tasks: set[asyncio.Task[None]] = set()

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            address: str = writer.get_extra_info("sockname")[0]
            descriptor = writer.get_extra_info("socket").fileno()
            task = asyncio.current_task()
            assert task is not None
            tasks.add(task)
            try:
                # a crawler may leave at any time
                with suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                    while head := (await reader.readuntil(b"\r\n\r\n")).decode("latin-1"):
                        at = arrived[descriptor] - self.started_at
                        answer = self._answered(by_address[address], counts, head, at)
                        await send(answer, writer)
                        if answer.closes:
                            break
            except asyncio.CancelledError:
                pass  # the run has ended
            finally:
                tasks.discard(task)
                writer.close()

        servers = [
            await asyncio.start_server(connected, sock=one, limit=LONGEST_HEAD)
            for one in listening(by_address, self.port, arrived)
        ]
        ready.set()
        await stop.wait()
        for server in servers:
            server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _answered(self, host: Host, counts: dict[str, int], head: str, at: float) -> Answer:
        """Return the answer to the request of a head, and count it."""
        first, *lines = head.split("\r\n")
        path = [*first.split(" "), "", ""][1]
        pairs = (line.split(":", 1) for line in lines if ":" in line)
        headers = {name.strip().lower(): value.strip() for name, value in pairs}
        answer = self.answer(host, path, headers, counts[host.address], at)
        counts[host.address] += 1
        return answer


def listening(
    addresses: Iterable[str], port: int, arrived: dict[int, float]
) -> list[ArrivalSocket]:
    """Return a socket for each address, or none if one of them cannot listen."""
    found: list[ArrivalSocket] = []
    try:
        # what was opened before a failure is in the list
        found.extend(ArrivalSocket.listening(address, port, arrived) for address in addresses)
    except OSError:
        for one in found:
            one.close()
        raise
    return found


async def send(answer: Answer, writer: asyncio.StreamWriter) -> None:
    """Send an answer piece by piece."""
    if answer.wait_s:
        await asyncio.sleep(answer.wait_s)
    writer.write(answer.head())
    for _ in range(answer.times):
        for start in range(0, len(answer.body), answer.piece):
            writer.write(answer.body[start : start + answer.piece])
            await writer.drain()
            if answer.pause_s:
                await asyncio.sleep(answer.pause_s)
    await writer.drain()
    if answer.cut:
        writer.transport.abort()
