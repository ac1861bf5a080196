"""The errors of the client, one tree.

ClientError
├── Unavailable      no answer, or only busy ones, within the patience.
├── Undelivered      items were left at the end of sending.
└── Refused          the service refuses the request, with a reason.
    ├── Rejected         an item has an invalid field.
    ├── TooLarge         too many bytes or items for one request.
    ├── Unauthorized     no valid API key.
    ├── NotFound         no such page, host, epoch, or other thing that a call names.
    ├── LeaseNotHeld     the lease has ended.
    └── CursorExpired    what the cursor continues is no longer kept; start again.
"""

from collections.abc import Sequence
from typing import Any

import httpx
from msgspec import DecodeError, json

from recrawl_client.wire.common import Problem


class ClientError(Exception):
    """A call failed."""


class Unavailable(ClientError):
    """The service did not answer, or was busy, for the whole wait of the call."""


class Undelivered(ClientError):
    """Sending ended before the service had answered for all items: send the rest again."""

    def __init__(self, items: Sequence[Any], cause: Exception) -> None:
        were = "1 item was" if len(items) == 1 else f"{len(items)} items were"
        super().__init__(f"{were} not delivered: {cause}")
        self.items = list(items)


class Refused(ClientError):
    """The service refuses the request; `problem` has the reason."""

    def __init__(self, status: int, problem: Problem) -> None:
        super().__init__(f"{status} {problem.title}: {problem.detail}")
        self.status = status
        self.problem = problem

    @property
    def code(self) -> str:
        """Last word of the problem's type, such as lease-not-held; empty where a proxy answered."""
        return problem_code(self.problem.type)


class Rejected(Refused):
    """An item has an invalid field; `problem.rejected` lists each item."""


class TooLarge(Refused):
    """More bytes or items than one request may have."""


class Unauthorized(Refused):
    """The request has no valid API key."""


class NotFound(Refused):
    """No such page, host, group, epoch, webhook, need, or other thing that a call names."""


class LeaseNotHeld(Refused):
    """The lease has ended: the crawl was reported or released, or the lease has expired."""


class CursorExpired(Refused):
    """The schedule, or the changes, after this cursor are no longer kept; start again."""


BY_CODE: dict[str, type[Refused]] = {
    "batch-rejected": Rejected,
    "invalid-field": Rejected,
    "invalid-url": Rejected,
    "unauthorized": Unauthorized,
    "lease-not-held": LeaseNotHeld,
    "cursor-expired": CursorExpired,
}


TOO_LARGE = 413


def problem_code(kind: str) -> str:
    """Return the last word of a problem's type, after a # or a colon.

    >>> problem_code("https://example.org/problems.md#lease-not-held")
    'lease-not-held'
    """
    return kind.replace("#", ":").rpartition(":")[2]


def refusal(response: httpx.Response) -> Refused:
    """Return the error of a refusing answer, also of a proxy that sends no problem document."""
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
    code = problem_code(problem.type)
    if code.endswith("-not-found"):
        otherwise = NotFound
    kind = BY_CODE.get(code, otherwise)
    return kind(response.status_code, problem)
