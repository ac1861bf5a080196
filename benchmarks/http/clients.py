"""Light clients: prepared requests, raw keep-alive sockets, a few processes.

Each client has one connection and one request under way. A process serves its clients by one
selector, so that the service is the bottleneck and not its clients. The CPU time of the clients
is reported.
"""

import re
import selectors
import socket
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from benchmarks.http.data import TEMPLATES, TICK, url_of
from benchmarks.http.processes import Failed, Group

PROCESSES = 2
ACCEPTED = re.compile(rb'"accepted":\s*(\d+)')
CREATED = re.compile(rb'"created":\s*(\d+)')
CURSOR = re.compile(rb'"next_cursor":\s*(?:"([^"]*)"|null)')


class Answer(NamedTuple):
    """One answer of the server."""

    status: int
    body: bytes


Requests = Generator[bytes, Answer, None]
Going = Callable[[], bool]


class Work(Protocol):
    """A client's requests, prepared before the first is sent, and the count of items per answer."""

    def requests(self, client: int) -> Requests: ...

    def count(self, answer: Answer) -> int: ...


def post(path: str, body: bytes, *headers: str) -> bytes:
    """Return the bytes of a POST."""
    own = ("Host: bench", "Content-Type: application/json", *headers)
    head = "\r\n".join((f"POST {path} HTTP/1.1", *own, f"Content-Length: {len(body)}", "", ""))
    return head.encode() + body


def get(path: str, *headers: str) -> bytes:
    """Return the bytes of a GET."""
    return "\r\n".join((f"GET {path} HTTP/1.1", "Host: bench", *headers, "", "")).encode()


def own_pages(n_pages: int, client: int, n_clients: int) -> NDArray[np.int64]:
    """Return every n-th copied page, so that no two clients report the same page."""
    return np.arange(TEMPLATES + 1 + client, n_pages + 1, n_clients)


@dataclass(frozen=True)
class Crawls:
    """Batches of crawl results of random pages; each batch is newer than all batches before it."""

    n_pages: int
    n_clients: int
    batch: int
    n_requests: int
    first: datetime
    """Instant of the first batch; each further batch is a tick later."""
    by_url: bool = False

    def requests(self, client: int) -> Requests:
        rng = np.random.default_rng([client, int(self.first.timestamp() * 1_000)])
        pages = own_pages(self.n_pages, client, self.n_clients)
        prepared = []
        for k in range(self.n_requests):
            chosen = rng.choice(pages, self.batch, replace=False).tolist()
            changed = np.where(rng.random(self.batch) < 0.3, "true", "false").tolist()
            at = (self.first + k * TICK).isoformat()
            names = (
                [f'"url":"{url_of(page)}"' for page in chosen]
                if self.by_url
                else [f'"page_id":{page}' for page in chosen]
            )
            items = ",".join(
                f'{{{name},"observed_at":"{at}","changed":{c}}}'
                for name, c in zip(names, changed, strict=True)
            )
            prepared.append(post("/observations", f"[{items}]".encode()))
        for request in prepared:  # noqa: UP028 - `yield from` a list cannot receive answers
            yield request

    def count(self, answer: Answer) -> int:
        return _counted(ACCEPTED, answer, self.batch)


@dataclass(frozen=True)
class NewPages:
    """Batches of pages that are not registered yet."""

    first: int
    n_clients: int
    batch: int
    n_requests: int

    def requests(self, client: int) -> Requests:
        prepared = []
        for k in range(self.n_requests):
            start = self.first + (k * self.n_clients + client) * self.batch
            urls = ",".join(f'{{"url":"{url_of(i)}"}}' for i in range(start, start + self.batch))
            prepared.append(post("/pages", f"[{urls}]".encode()))
        for request in prepared:  # noqa: UP028 - `yield from` a list cannot receive answers
            yield request

    def count(self, answer: Answer) -> int:
        return _counted(CREATED, answer, self.batch)


@dataclass(frozen=True)
class Pages:
    """The schedule page by page, repeated; each client begins at another place."""

    limit: int
    cursors: tuple[str, ...]
    """Cursor at which each client begins; "" is the beginning."""

    def requests(self, client: int) -> Requests:
        cursor = self.cursors[client]
        while True:
            place = f"&cursor={cursor}" if cursor else ""
            answer = yield get(f"/schedule?limit={self.limit}{place}")
            match = CURSOR.search(answer.body, len(answer.body) - 200)
            cursor = match[1].decode() if match and match[1] else ""

    def count(self, answer: Answer) -> int:
        if answer.status != 200:
            raise Failed(f"{answer.status}: {answer.body[:300]!r}")
        return answer.body.count(b'"page_id":')


def _counted(pattern: re.Pattern[bytes], answer: Answer, expected: int) -> int:
    match = pattern.search(answer.body)
    if answer.status != 200 or match is None or int(match[1]) != expected:
        raise Failed(f"{answer.status}, expected {expected} accepted items: {answer.body[:300]!r}")
    return expected


class Load(NamedTuple):
    """All answers of a round: instant, latency and number of items of each."""

    started: float
    ended: float
    """Instant of the last answer, or of the first client without further requests."""
    finished: NDArray[np.float64]
    latency: NDArray[np.float64]
    items: NDArray[np.int64]
    cpu: float
    """CPU time of the client processes, seconds per second."""

    def rate(self, since: float | None = None, until: float | None = None) -> float:
        """Return items a second, of the whole round or a part of it."""
        since = self.started if since is None else since
        until = self.ended if until is None else min(until, self.ended)
        inside = (self.finished > since) & (self.finished <= until)
        return float(self.items[inside].sum()) / (until - since)

    def quantile_ms(self, q: float) -> float:
        return float(np.quantile(self.latency, q)) * 1e3


def started(port: int, work: Work, n_clients: int, seconds: float) -> Group:
    """Start the clients of a round, which wait for `go`."""
    shares = [list(range(k, n_clients, PROCESSES)) for k in range(min(PROCESSES, n_clients))]
    return Group(drive, [(port, work, share, seconds) for share in shares])


def gathered(begun: float, group: Group) -> Load:
    """Wait for the clients' results and return their load."""
    ran_out, finished, latency, items, cpu = zip(*group.results(), strict=True)
    return Load(
        begun,
        min(*ran_out, max(part.max() for part in finished)),
        np.concatenate(finished),
        np.concatenate(latency),
        np.concatenate(items),
        sum(cpu),
    )


class Connection:
    """One client's socket, its received bytes and its requests."""

    def __init__(self, port: int, requests: Requests) -> None:
        self.requests = requests
        self.request = next(requests)
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.arrived = bytearray()
        self.sent = 0.0

    def send(self) -> None:
        self.sent = time.monotonic()
        self.socket.sendall(self.request)

    def receive(self) -> Answer | None:
        """Return the answer when all of it has arrived, or else None."""
        data = self.socket.recv(1 << 20)
        if not data:
            raise Failed("the server closed the connection")
        self.arrived += data
        head = self.arrived.find(b"\r\n\r\n")
        if head < 0:
            return None
        length = re.search(rb"content-length: (\d+)", self.arrived[:head].lower())
        end = head + 4 + (int(length[1]) if length else 0)
        if len(self.arrived) < end:
            return None
        answer = Answer(int(self.arrived[9:12]), bytes(self.arrived[head + 4 : end]))
        self.arrived.clear()
        return answer


def drive(
    port: int, work: Work, clients: list[int], seconds: float, ready: Callable[[], Going]
) -> tuple[float, NDArray[np.float64], NDArray[np.float64], NDArray[np.int64], float]:
    """Serve some clients until the time is over, the group stops, or a client has no requests."""
    connections = [Connection(port, work.requests(client)) for client in clients]
    waiting = selectors.DefaultSelector()
    for connection in connections:
        waiting.register(connection.socket, selectors.EVENT_READ, connection)
    going = ready()
    begun, cpu = time.monotonic(), time.process_time()
    deadline = begun + seconds
    ran_out = np.inf
    answers: list[tuple[float, float, int]] = []
    for connection in connections:
        connection.send()
    n_waiting = len(connections)
    while n_waiting:
        for key, _ in waiting.select(60) or _silence():
            connection = key.data
            if (answer := connection.receive()) is None:
                continue
            now = time.monotonic()
            answers.append((now, now - connection.sent, work.count(answer)))
            try:
                connection.request = connection.requests.send(answer)
            except StopIteration:
                ran_out = min(ran_out, now)
            if now >= min(deadline, ran_out) or not going():
                n_waiting -= 1
                continue
            connection.send()
    spent = (time.process_time() - cpu) / (time.monotonic() - begun)
    for connection in connections:
        connection.socket.close()
    finished, latency, items = np.array(answers, np.float64).T
    return ran_out, finished, latency, items.astype(np.int64), spent


def _silence() -> list[tuple[selectors.SelectorKey, int]]:
    raise Failed("the server was silent for a minute")
