"""The history of a campaign: the requests of each client and the answers to them.

A client appends one JSON line before it sends a request and one after the answer. A line is one
`write`, so it stays whole when its client is killed next. Instants `at` are seconds of the
monotonic clock, which all processes of one machine share and which no nemesis changes.
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self, TypeVar

import msgspec
from msgspec import Struct


class Event(Struct, frozen=True, tag_field="event", tag=str.lower, kw_only=True):
    """One line of one client."""

    client: str
    at: float


class Numbered(Event, frozen=True, kw_only=True):
    """A request or its answer, which have the same number."""

    op: int


E = TypeVar("E", bound=Event)
Sent = TypeVar("Sent", bound=Numbered)
Reply = TypeVar("Reply", bound=Numbered)


class Report(Numbered, frozen=True, kw_only=True):
    """A report or a ping that the client will send next."""

    kind: int
    """Kind of the entries in the service's log: 0 for crawls, 1 for pings."""
    items: list[tuple[int, int]]
    """Page and instant (µs since 1970) of each item."""
    lease: str = ""


class Verdicts(Numbered, frozen=True, kw_only=True):
    """The answer to a `Report`."""

    accepted: int
    duplicate: int
    late: int
    rejected: int

    @property
    def n_logged(self) -> int:
        """Return the number of items that are in the log according to this answer."""
        return self.accepted + self.duplicate


class LeaseRequest(Numbered, frozen=True, kw_only=True):
    """A request for leases that the client will send next."""

    ttl_s: float


class Lease(Struct, frozen=True, array_like=True):
    """One crawl that the service handed out."""

    lease: str
    page_id: int
    host: str


class Grant(Numbered, frozen=True, kw_only=True):
    """The answer to a `LeaseRequest`."""

    leases: list[Lease]


class Fetch(Event, frozen=True, kw_only=True):
    """The instant at which a crawler fetched a page under a lease that was in force."""

    page_id: int
    host: str
    lease: str


class Release(Event, frozen=True, kw_only=True):
    """A release of a lease that the client will send next."""

    lease: str


class Registration(Numbered, frozen=True, kw_only=True):
    """New pages that the client will send next."""

    urls: list[str]


class Receipt(Numbered, frozen=True, kw_only=True):
    """The answer to a `Registration`."""

    page_ids: list[int | None]


class Walk(Event, frozen=True, kw_only=True):
    """A reader's pass through the schedule."""

    epochs: list[int]
    """Epoch of each answer of the pass."""
    pages: list[int]
    whole: bool
    """True for a reader that reached the end."""


class EpochList(Event, frozen=True, kw_only=True):
    """Published epochs of one answer: number, pages and instant."""

    epochs: list[tuple[int, int, str]]


class Change(Struct, frozen=True, array_like=True):
    """One change of the feed, as a reader saw it."""

    page_id: int
    at: int
    """Instant of the crawl, µs since 1970."""
    recorded_at: int
    """Instant of the commit, µs since 1970."""


class Followed(Event, frozen=True, kw_only=True):
    """A part of the feed that a reader with a cursor has handled."""

    items: list[Change]
    wall: float
    """Time of day, seconds since 1970."""


class Received(Event, frozen=True, kw_only=True):
    """A request of a webhook that its receiver is about to confirm."""

    items: list[Change]
    wall: float
    delivery: str
    signed: bool


class Answer(Event, frozen=True, kw_only=True):
    """Any answer of the service."""

    request: str
    status: int
    complaint: str = ""
    """Fault in the form of the answer; "" for none."""


class Silence(Event, frozen=True, kw_only=True):
    """A request without an answer, which the service may or may not have processed."""

    request: str
    error: str


class Incident(Event, frozen=True, kw_only=True):
    """One fault of a nemesis, from injection to healing."""

    nemesis: str
    since: float


Line = (
    Report
    | Verdicts
    | LeaseRequest
    | Grant
    | Fetch
    | Release
    | Registration
    | Receipt
    | Walk
    | EpochList
    | Followed
    | Received
    | Answer
    | Silence
    | Incident
)
"""Union of all kinds of lines."""


class Book:
    """The history file of one client."""

    def __init__(self, folder: Path, client: str) -> None:
        self.client = client
        self.file = os.open(
            folder / f"{client}.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600
        )

    def write(self, event: Event) -> None:
        """Append one line, which stays in the file after the client is killed."""
        os.write(self.file, msgspec.json.encode(event) + b"\n")


def now() -> float:
    """Return seconds of the monotonic clock, which all processes share and no nemesis changes."""
    return time.monotonic()


class History(list[Line]):
    """The lines of all clients, ordered by time."""

    @classmethod
    def read(cls, folder: Path, names: str = "*") -> Self:
        """Return the lines in the files of the clients whose names match."""
        lines = (line for path in sorted(folder.glob(f"{names}.jsonl")) for line in read(path))
        return cls(sorted(lines, key=lambda event: event.at))

    def of(self, kind: type[E]) -> list[E]:
        """Return the lines of one kind."""
        return [event for event in self if isinstance(event, kind)]

    def operations(self, sent: type[Sent], reply: type[Reply]) -> list[tuple[Sent, Reply | None]]:
        """Return every request with its answer, or with None where there was no answer."""
        replies = {(event.client, event.op): event for event in self.of(reply)}
        return [(event, replies.get((event.client, event.op))) for event in self.of(sent)]


def read(path: Path) -> Iterator[Line]:
    """Yield the lines of one client's file."""
    decoder = msgspec.json.Decoder(Line)
    for line in path.read_bytes().splitlines():
        yield decoder.decode(line)
