"""Requests that are sent again while the service is busy, restarting or out of reach."""

import random
import time
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from itertools import count
from typing import Any, TypeVar

import httpx
from msgspec import DecodeError, json

from recrawl_client.errors import Unavailable

BUSY = frozenset({429, 502, 503, 504, 507})
BROKEN = (httpx.NetworkError, httpx.TimeoutException, httpx.RemoteProtocolError)
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 10.0
LONGEST_RETRY_S = 1e6
"""Longest wait that an answer may ask for, seconds."""


T = TypeVar("T")


class Line:
    """Requests to one service; `wait` takes seconds, a true result of it ends the patience."""

    def __init__(
        self, http: httpx.Client, patience_s: float, wait: Callable[[float], object] = time.sleep
    ) -> None:
        self.http = http
        self.patience_s = patience_s
        self.wait = wait

    def call(self, method: str, path: str, **request: Any) -> httpx.Response:
        """Return the first answer that is not "busy", and is the service's own.

        Raises
        ------
        Unavailable
            There was none for `patience_s`, the service asked for a longer wait than is left, or
            its address is none.
        """
        deadline = time.monotonic() + self.patience_s
        for attempt in count():
            try:
                response = self.http.request(method, path, **request)
            except BROKEN as error:
                problem, pause_s = str(error) or type(error).__name__, 0.0
            except (httpx.RequestError, httpx.InvalidURL) as error:
                raise Unavailable(f"{method} {self._url(path)}: {error}") from error
            else:
                if response.status_code not in BUSY and not foreign(response):
                    return response
                problem, pause_s = f"it answered {described(response)}", retry_after(response)
            pause_s = max(pause_s, backoff(attempt))
            if time.monotonic() + pause_s > deadline or self.wait(pause_s):
                break
        raise Unavailable(f"{method} {self._url(path)}: {problem}")

    def _url(self, path: str) -> str:
        return str(self.http.base_url).rstrip("/") + path


def foreign(response: httpx.Response) -> bool:
    """Return whether something in between answered a success, such as a page to log in at."""
    return response.is_success and bool(response.content) and _media(response) != "application/json"


def described(response: httpx.Response) -> str:
    """Return the name of an answer that is not the service's."""
    what = f"{response.status_code}"
    return f"{what} with {_media(response) or 'no JSON'}" if foreign(response) else what


def decoded(response: httpx.Response, kind: type[T]) -> T:
    """Return an answer's content; raises `Unavailable` where it is not the service's."""
    try:
        return json.decode(response.content, type=kind)
    except (DecodeError, UnicodeDecodeError) as error:
        where = f"{response.request.method} {response.url}"
        answer = f"{response.status_code} without what Recrawl answers ({error})"
        raise Unavailable(f"{where}: it answered {answer}; is that the service?") from error


def _media(response: httpx.Response) -> str:
    media: str = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    return media


def backoff(attempt: int) -> float:
    """Return seconds that double, up to ten, and that differ between clients."""
    longest = min(FIRST_PAUSE_S * 2.0 ** min(attempt, 20), LONGEST_PAUSE_S)
    return longest * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, hides nothing


def retry_after(response: httpx.Response) -> float:
    """Return the seconds that an answer's Retry-After asks for; 0 where it does not.

    >>> retry_after(httpx.Response(503, headers={"Retry-After": "7"}))
    7.0
    """
    return retry_seconds(response.headers.get("Retry-After", ""))


def retry_seconds(header: str) -> float:
    """Return the seconds of a Retry-After, a number or a date; 0 where it cannot be read."""
    if header.isascii() and header.isdigit():
        return min(float(header), LONGEST_RETRY_S)
    at = http_date(header)
    if at is None:
        return 0.0
    return min(max((at - datetime.now(UTC)).total_seconds(), 0.0), LONGEST_RETRY_S)


def last_modified(response: httpx.Response) -> datetime | None:
    """Return the date of an answer's Last-Modified; None where it has none that can be read.

    >>> dated = {"Last-Modified": "Fri, 01 May 2026 09:30:00 GMT"}
    >>> last_modified(httpx.Response(200, headers=dated)).isoformat()
    '2026-05-01T09:30:00+00:00'
    """
    return http_date(response.headers.get("Last-Modified", ""))


def http_date(header: str) -> datetime | None:
    """Return the date of a header; None where it cannot be read."""
    try:
        at = parsedate_to_datetime(header)
    except (ValueError, OverflowError):
        return None
    return at if at.tzinfo else at.replace(tzinfo=UTC)
