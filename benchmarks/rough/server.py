"""The server of all hosts: raw sockets, so that it may break HTTP; it writes down each request."""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus

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

    def answer(self, host: Host, path: str, headers: dict[str, str], n: int) -> Answer:
        """Return the answer of a host to a request now, and write the request down."""
        at = self.now()
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
        self.log.append(
            Request(at, host.number, path, page, status, answer.content, asked_s, answer.links)
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
        tasks: set[asyncio.Task[None]] = set()

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            address: str = writer.get_extra_info("sockname")[0]
            task = asyncio.current_task()
            assert task is not None
            tasks.add(task)
            try:
                # a crawler may leave at any time
                with suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                    while await self._exchange(by_address[address], counts, reader, writer):
                        pass
            except asyncio.CancelledError:
                pass  # the run has ended
            finally:
                tasks.discard(task)
                writer.close()

        server = await asyncio.start_server(
            connected, list(by_address), self.port, limit=LONGEST_HEAD
        )
        ready.set()
        await stop.wait()
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _exchange(
        self,
        host: Host,
        counts: dict[str, int],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> bool:
        """Answer one request; return whether the connection may have another one."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.split("\r\n")
        path = [*first.split(" "), "", ""][1]
        pairs = (line.split(":", 1) for line in lines if ":" in line)
        headers = {name.strip().lower(): value.strip() for name, value in pairs}
        answer = self.answer(host, path, headers, counts[host.address])
        counts[host.address] += 1
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
        return not answer.closes
