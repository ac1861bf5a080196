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
"""Longer waits are not believed."""


T = TypeVar("T")


class Line:
    """A line to one service; `wait` takes seconds, and whoever ends it early ends the patience."""

    def __init__(
        self, http: httpx.Client, patience_s: float, wait: Callable[[float], object] = time.sleep
    ) -> None:
        self.http = http
        self.patience_s = patience_s
        self.wait = wait

    def call(self, method: str, path: str, **given: Any) -> httpx.Response:
        """Give the first answer that is not "busy", and is the service's own.

        Raises
        ------
        Unavailable
            There was none for `patience_s`, the service asked for a longer wait than is left, or
            its address is none.
        """
        deadline = time.monotonic() + self.patience_s
        for attempt in count():
            try:
                response = self.http.request(method, path, **given)
            except BROKEN as error:
                problem, asked_s = str(error) or type(error).__name__, 0.0
            except (httpx.RequestError, httpx.InvalidURL) as error:
                raise Unavailable(f"{method} {self._url(path)}: {error}") from error
            else:
                if response.status_code not in BUSY and not foreign(response):
                    return response
                problem, asked_s = f"it answered {described(response)}", retry_after(response)
            pause_s = max(asked_s, backoff(attempt))
            if time.monotonic() + pause_s > deadline or self.wait(pause_s):
                break
        raise Unavailable(f"{method} {self._url(path)}: {problem}")

    def _url(self, path: str) -> str:
        return str(self.http.base_url).rstrip("/") + path


def foreign(response: httpx.Response) -> bool:
    """Tell whether a success was answered by something in between, such as a page to log in at."""
    return response.is_success and bool(response.content) and _media(response) != "application/json"


def described(response: httpx.Response) -> str:
    """Name an answer that is not the one hoped for."""
    what = f"{response.status_code}"
    return f"{what} with {_media(response) or 'no JSON'}" if foreign(response) else what


def decoded(response: httpx.Response, kind: type[T]) -> T:
    """Read an answer; raises `Unavailable` where something in between has given it."""
    try:
        return json.decode(response.content, type=kind)
    except (DecodeError, UnicodeDecodeError) as error:
        told = f"{response.status_code} without what Recrawl answers ({error})"
        raise Unavailable(
            f"{response.request.method} {response.url}: it answered {told}"
        ) from error


def _media(response: httpx.Response) -> str:
    media: str = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    return media


def backoff(attempt: int) -> float:
    """Give seconds that double, up to ten, and that many clients do not wait alike."""
    longest = min(FIRST_PAUSE_S * 2.0 ** min(attempt, 20), LONGEST_PAUSE_S)
    return longest * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, hides nothing


def retry_after(response: httpx.Response) -> float:
    """Give the seconds that an answer's Retry-After asks for; 0 where it does not.

    >>> retry_after(httpx.Response(503, headers={"Retry-After": "7"}))
    7.0
    """
    return retry_seconds(response.headers.get("Retry-After", ""))


def retry_seconds(told: str) -> float:
    """Read a Retry-After, seconds or a date; 0 where it cannot be read."""
    if told.isascii() and told.isdigit():
        return min(float(told), LONGEST_RETRY_S)
    at = http_date(told)
    if at is None:
        return 0.0
    return min(max((at - datetime.now(UTC)).total_seconds(), 0.0), LONGEST_RETRY_S)


def last_modified(response: httpx.Response) -> datetime | None:
    """Give the date of an answer's Last-Modified; None where it has none that can be read.

    >>> dated = {"Last-Modified": "Fri, 01 May 2026 09:30:00 GMT"}
    >>> last_modified(httpx.Response(200, headers=dated)).isoformat()
    '2026-05-01T09:30:00+00:00'
    """
    return http_date(response.headers.get("Last-Modified", ""))


def http_date(told: str) -> datetime | None:
    """Read a date of a header; None where it cannot be read."""
    try:
        at = parsedate_to_datetime(told)
    except (ValueError, OverflowError):
        return None
    return at if at.tzinfo else at.replace(tzinfo=UTC)
