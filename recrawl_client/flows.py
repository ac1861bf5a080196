"""Flows: the requests and answers of each method, without input or output.

A `Flow` yields requests, receives the answers and returns the result. `Client` and `AsyncClient`
run the same flows, in threads and on an event loop.
"""

import json as standard_json
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import chain, islice
from typing import Any, Generic, TypeAlias, TypeVar

import httpx
from msgspec import UNSET, DecodeError, Struct, UnsetType, json, structs, to_builtins

from recrawl_client.errors import Rejected, TooLarge, Unavailable, refusal
from recrawl_client.wire.common import Counts, Problem, Rejection, added, empty
from recrawl_client.wire.evidence import Reported
from recrawl_client.wire.pages import Registered

UNPROCESSABLE = 422
PART = 1_000
"""Number of items of one part of a list."""

T = TypeVar("T")
ItemT = TypeVar("ItemT")
C = TypeVar("C", bound=Counts)


@dataclass(frozen=True, slots=True)
class Call:
    """One request."""

    method: str
    path: str
    params: Mapping[str, Any] | None = None
    content: bytes | None = None
    headers: Mapping[str, str] | None = None

    def options(self) -> dict[str, Any]:
        """Return the options of a request of httpx."""
        return {"params": self.params, "content": self.content, "headers": self.headers}


Flow: TypeAlias = Generator[Call, httpx.Response, T]
"""Generator of the requests of one method, which receives the answers and returns the result."""


class Listing(Generic[ItemT]):
    """A list in parts: each call of `part` requests the next part, while there is `more`."""

    def __init__(self, path: str, kind: type[Any], params: Mapping[str, Any] | None = None) -> None:
        self.path = path
        self.kind = kind
        self.params = {"limit": PART, **(params or {})}
        self.more = True

    def part(self) -> Flow[list[ItemT]]:
        """Return the items of the next part."""
        part = yield from ask("GET", self.path, self.kind, params=self.params)
        self.more = part.next_cursor is not None
        self.params = {**self.params, "cursor": part.next_cursor}
        items: list[ItemT] = part.items
        return items


def call(method: str, path: str, **request: Any) -> Flow[httpx.Response]:
    """Return the answer to one request; raise the `Refused` of a refusal."""
    if "content" in request:
        request.setdefault("headers", {"Content-Type": "application/json"})
    response = yield Call(method, path, **request)
    if not response.is_success:
        raise refusal(response)
    return response


def ask(method: str, path: str, kind: type[T], **request: Any) -> Flow[T]:
    """Return the content of the answer to one request."""
    return decoded((yield from call(method, path, **request)), kind)


def decoded(response: httpx.Response, kind: type[T]) -> T:
    """Return the content of an answer; raise `Unavailable` for an answer of another server."""
    try:
        return json.decode(response.content, type=kind)
    except (DecodeError, UnicodeDecodeError) as error:
        where = f"{response.request.method} {response.url}"
        answer = f"{response.status_code} without an answer of Recrawl ({error})"
        raise Unavailable(f"{where}: it answered {answer}; is that the service?") from error


def batches(
    path: str,
    items: Iterable[Any],
    kind: type[C],
    most: int,
    params: Mapping[str, Any] | None = None,
) -> Flow[C]:
    """Send items in batches and return the sum of the answers.

    A batch whose items are all rejected has an answer too. Batches are halved where the service,
    or a proxy before the service, refuses their size.
    """
    rest, total, n_sent = iter(items), empty(kind), 0
    while batch := list(islice(rest, most)):
        try:
            answer = yield from ask("POST", path, kind, content=encoded(batch), params=params)
            _check_whole(answer, len(batch))
        except TooLarge as error:
            if len(batch) > 1:
                rest, most = chain(batch, rest), len(batch) // 2
                continue
            code = error.code or "too-large"
            alone = Rejection(index=0, code=code, detail=error.problem.detail)
            answer = _without(kind, [alone])
        except Rejected as error:
            if not error.problem.rejected:
                raise
            answer = _without(kind, error.problem.rejected, error.problem.leases_ended)
        total = added(total, answer, n_sent)
        n_sent += len(batch)
    return total


def accepted(flow: Flow[C]) -> Flow[C]:
    """Return the answer to items; raise `Rejected` for a rejected item."""
    answer = yield from flow
    if not answer.rejected:
        return answer
    first = answer.rejected[0]
    others = f" (and {len(answer.rejected) - 1} more)" if len(answer.rejected) > 1 else ""
    problem = Problem(
        type="",
        title="Rejected",
        status=UNPROCESSABLE,
        detail=first.detail + others,
        field=first.field,
        accepted=answer.accepted,
        duplicate=answer.duplicate,
        late=answer.late,
        n_rejected=answer.n_rejected,
        rejected=answer.rejected,
        leases_ended=answer.leases_ended if isinstance(answer, Reported) else UNSET,
    )
    raise Rejected(UNPROCESSABLE, problem)


def encoded(body: Any) -> bytes:
    """Return JSON, even of NaN and lone surrogates; the service then names the wrong field.

    Other values of Python, such as dates, are written as text.
    """
    if isinstance(body, list) and all(isinstance(item, Struct) for item in body):
        return json.encode(body)
    return standard_json.dumps(body, default=_plain).encode()


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return to_builtins(value) if isinstance(value, Struct) else str(value)


def _without(kind: type[C], rejected: list[Rejection], ended: int | UnsetType = UNSET) -> C:
    """Return the answer to a batch whose items are all rejected, and end `ended` leases."""
    answer = structs.replace(empty(kind), rejected=rejected, n_rejected=len(rejected))
    if isinstance(answer, Registered):
        return structs.replace(answer, page_ids=[None] * len(rejected))
    if isinstance(answer, Reported):
        return structs.replace(answer, leases_ended=ended or 0)
    return answer


def _check_whole(answer: Counts, n_sent: int) -> None:
    """Raise `Unavailable` unless the answer counts every item."""
    n = answer.accepted + answer.duplicate + answer.late + answer.n_rejected
    if n != n_sent:
        raise Unavailable(f"the answer counts {n} of what was sent, {n_sent}; is that the service?")
