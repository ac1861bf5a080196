"""The errors of the client, one tree.

ClientError
├── Unavailable      the service did not answer, or was busy, for as long as was waited
├── Undelivered      sending ended with items that the service did not take
└── Refused          the service will not do this, and why
    ├── Rejected         an item has a field that cannot be
    ├── TooLarge         more bytes or items than one request may have
    ├── Unauthorized     no valid API key
    ├── NotFound         no such page, epoch or host
    ├── LeaseNotHeld     the lease has ended
    └── CursorExpired    the schedule has moved on; start again
"""

from collections.abc import Sequence
from typing import Any

import httpx
from msgspec import DecodeError, json

from recrawl_client.wire.common import Problem


class ClientError(Exception):
    """A call failed."""


class Unavailable(ClientError):
    """The service did not answer, or was busy, for as long as was waited."""


class Undelivered(ClientError):
    """Sending ended with items that the service did not take: send them again."""

    def __init__(self, items: Sequence[Any], cause: Exception) -> None:
        super().__init__(f"{len(items)} items were not delivered: {cause}")
        self.items = list(items)


class Refused(ClientError):
    """The service will not do this."""

    def __init__(self, status: int, problem: Problem) -> None:
        super().__init__(f"{status} {problem.title}: {problem.detail}")
        self.status = status
        self.problem = problem

    @property
    def code(self) -> str:
        """Last word of the problem's type, such as lease-not-held; empty where a proxy answered."""
        return problem_code(self.problem.type)


class Rejected(Refused):
    """An item has a field that cannot be; `problem.rejected` lists each."""


class TooLarge(Refused):
    """More bytes or items than one request may have."""


class Unauthorized(Refused):
    """No valid API key was shown."""


class NotFound(Refused):
    """No such page, epoch or host."""


class LeaseNotHeld(Refused):
    """The lease has ended: it was reported, released or has expired."""


class CursorExpired(Refused):
    """The schedule of this cursor is no longer kept; start again."""


BY_CODE: dict[str, type[Refused]] = {
    "batch-rejected": Rejected,
    "invalid-field": Rejected,
    "invalid-url": Rejected,
    "unauthorized": Unauthorized,
    "page-not-found": NotFound,
    "epoch-not-found": NotFound,
    "host-not-found": NotFound,
    "lease-not-held": LeaseNotHeld,
    "cursor-expired": CursorExpired,
}


TOO_LARGE = 413


def problem_code(kind: str) -> str:
    """Return the last word of a problem's type, which stands after a # or a colon.

    >>> problem_code("https://example.org/problems.md#lease-not-held")
    'lease-not-held'
    """
    return kind.replace("#", ":").rpartition(":")[2]


def refusal(response: httpx.Response) -> Refused:
    """Return the refusal that an answer means; a proxy in between sends no problem document."""
    try:
        problem = json.decode(response.content, type=Problem)
    except (DecodeError, UnicodeDecodeError):
        detail = " ".join(response.text[:200].split())
        if response.has_redirect_location:
            detail = f"call it at {response.headers['Location'][:200]}"
        problem = Problem(
            type="", title=response.reason_phrase, status=response.status_code, detail=detail
        )
    otherwise = TooLarge if response.status_code == TOO_LARGE else Refused
    kind = BY_CODE.get(problem_code(problem.type), otherwise)
    return kind(response.status_code, problem)
