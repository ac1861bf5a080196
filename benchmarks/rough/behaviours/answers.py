"""Visits, answers and behaviours; the answers of a host that behaves well."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http import HTTPStatus
from typing import TypeAlias

Headers: TypeAlias = tuple[tuple[str, str], ...]

ROBOTS_PATH = "/robots.txt"
CLOSES = -1
"""Length of a body that ends with the connection, and of one that never ends."""
DELAY_S = 1.0
"""Delay of a host without one in its robots.txt, seconds: the default of the service."""


@dataclass(frozen=True, slots=True)
class Visit:
    """One request, with what its page shows now."""

    at: float
    """Instant, seconds since the start of the run."""
    host: str
    """Address and port."""
    path: str
    """Path and query."""
    headers: dict[str, str]
    """Headers by lower-case name."""
    version: int | None
    """Version of the page; None: no page has the path."""
    n: int
    """Number of requests to the host before this one."""

    @property
    def for_robots(self) -> bool:
        """True for a request of robots.txt."""
        return self.path == ROBOTS_PATH

    @property
    def place(self) -> str:
        """Path without its query and without what follows the page's name."""
        return "/" + self.path[1:].partition("?")[0].partition(";")[0].partition("/")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer, in the form in which it is sent."""

    status: str = "200 OK"
    """Status line after the version; its first word is the status."""
    headers: Headers = ()
    body: bytes = b""
    times: int = 1
    """Number of times that the body is sent."""
    length: int | None = None
    """Content-Length; None: the true one, CLOSES: no header, the connection ends the body."""
    raw: bytes | None = None
    """Bytes in place of status line and headers."""
    wait_s: float = 0.0
    """Time before the first byte, seconds."""
    piece: int = 65_536
    """Number of bytes that are sent at a time."""
    pause_s: float = 0.0
    """Time after each piece, seconds."""
    cut: bool = False
    """True if the connection is reset after the body."""
    unreadable: bool = False
    """True if no crawler can read the body to its end, or to a limit of its own."""
    links: tuple[str, ...] = ()
    """Paths that the body links to and no page of the world has."""

    @property
    def code(self) -> int:
        """Status as a number; 0 without one."""
        word = self.status.split(" ")[0]
        return int(word) if word.isdigit() else 0

    @property
    def content(self) -> bool:
        """True for an answer that a crawler should report as content: a readable 2xx, or a 304."""
        success = self.code // 100 == 2 or self.code == HTTPStatus.NOT_MODIFIED
        return success and not self.unreadable

    def head(self) -> bytes:
        """Return the bytes before the body."""
        if self.raw is not None:
            return self.raw
        length = len(self.body) * self.times if self.length is None else self.length
        framing = ("Connection", "close") if length == CLOSES else ("Content-Length", f"{length}")
        lines = [f"HTTP/1.1 {self.status}", *(f"{k}: {v}" for k, v in (framing, *self.headers))]
        return "\r\n".join([*lines, "", ""]).encode("latin-1")

    @property
    def closes(self) -> bool:
        """True if the connection ends after the answer."""
        return self.cut or self.raw is not None or self.length is not None


@dataclass(frozen=True, slots=True)
class Behaviour:
    """How a host answers."""

    name: str
    answer: Callable[[Visit], Answer]
    in_outages: bool = False
    """True if the host behaves so in its outages only."""
    delay_s: float = DELAY_S
    """Delay that the host may expect, seconds."""


HTML = ("Content-Type", "text/html; charset=utf-8")


def text(visit: Visit, links: tuple[str, ...] = ()) -> bytes:
    """Return the document of a page: it links to the other pages of the host, and to `links`."""
    paths = (*(f"/p{k}" for k in range(10)), *links)
    anchors = "".join(f'<a href="{path}">{path}</a> ' for path in paths)
    title = f"{visit.host}{visit.place}"
    return (
        f"<html><head><title>{title}</title></head><body><p>{title}, version {visit.version}</p>"
        f"<p>{anchors}</p></body></html>"
    ).encode()


def shown(visit: Visit, *headers: tuple[str, str], links: tuple[str, ...] = ()) -> Answer:
    """Return the content of a page, without validators of its own."""
    return Answer(headers=(HTML, *headers), body=text(visit, links), links=links)


def plain(visit: Visit) -> Answer:
    """Return the answer of a host that behaves well: content with a true ETag, or a 304."""
    if visit.for_robots:
        return Answer(headers=(("Content-Type", "text/plain"),), body=b"User-agent: *\nAllow: /\n")
    if visit.version is None:
        return says(HTTPStatus.NOT_FOUND)(visit)
    return validated(visit, f'"{visit.version}"')


def validated(visit: Visit, etag: str, *headers: tuple[str, str]) -> Answer:
    """Return the content with an ETag, or a 304 where the request names this ETag."""
    if visit.headers.get("if-none-match") == etag:
        return Answer(status="304 Not Modified", headers=(("ETag", etag), *headers))
    return shown(visit, ("ETag", etag), *headers)


def says(status: HTTPStatus, *headers: tuple[str, str]) -> Callable[[Visit], Answer]:
    """Return the behaviour of one status for every path."""
    body = f"<html><body><h1>{status.value} {status.phrase}</h1></body></html>".encode()
    return lambda _: Answer(
        status=f"{status.value} {status.phrase}", headers=(HTML, *headers), body=body
    )


def pages_only(answer: Callable[[Visit], Answer]) -> Callable[[Visit], Answer]:
    """Return a behaviour for pages; robots.txt and unknown paths answer as they should."""
    return lambda visit: plain(visit) if visit.version is None else answer(visit)


def with_robots(answer: Callable[[Visit], Answer]) -> Callable[[Visit], Answer]:
    """Return a behaviour for every path but robots.txt, which allows all."""
    return lambda visit: plain(visit) if visit.for_robots else answer(visit)


def http_date(later_s: float) -> str:
    """Return the date of a header, some seconds from now."""
    return format_datetime(datetime.now(UTC) + timedelta(seconds=later_s), usegmt=True)


WELL_BEHAVED = Behaviour("well-behaved", plain)
