"""One client's connection, which moves to the next replica when a replica does not answer."""

import json
import time
from collections.abc import Mapping, Sequence
from http.client import HTTPConnection, HTTPException, HTTPResponse
from itertools import cycle
from typing import Any

from benchmarks.faults.history import Answer, Book, Silence, now

TIMEOUT_S = 15.0
"""Maximum wait for one answer, seconds."""
PAUSE_S = 0.05
"""Wait after a refusal or silence, seconds; a Retry-After would exceed a campaign's time."""
ANNOUNCED = (503, 507)
"""Statuses by which the service may report an outage."""


class Caller:
    """Requests of one client, with a line of history for every answer and every silence."""

    def __init__(self, ports: Sequence[int], book: Book) -> None:
        self.ports = cycle(ports)
        self.book = book
        self.connection: HTTPConnection | None = None

    def post(self, path: str, body: Any) -> Any:
        """Return the decoded answer to a POST, or None after a refusal or silence."""
        content = json.dumps(body).encode()
        answer = self.call("POST", path, content, {"Content-Type": "application/json"})
        return json.loads(answer[2]) if answer and answer[0] == 200 else None

    def call(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> tuple[int, Mapping[str, str], bytes] | None:
        """Return status, headers (names in lower case) and content, or None after silence."""
        request = f"{method} {path.partition('?')[0]}"
        try:
            response, content = self._exchange(method, path, body, dict(headers or {}))
        except (OSError, HTTPException) as error:
            silence = Silence(
                client=self.book.client, at=now(), request=request, error=repr(error)[:200]
            )
            self.book.write(silence)
            self._leave()
            return None
        received = {name.lower(): value for name, value in response.getheaders()}
        complaint = objection(response.status, received, content)
        self.book.write(
            Answer(
                client=self.book.client,
                at=now(),
                request=request,
                status=response.status,
                complaint=complaint,
            )
        )
        if response.status >= 500:
            self._leave()
        return response.status, received, content

    def _exchange(
        self, method: str, path: str, body: bytes, headers: dict[str, str]
    ) -> tuple[HTTPResponse, bytes]:
        if self.connection is None:
            self.connection = HTTPConnection("127.0.0.1", next(self.ports), timeout=TIMEOUT_S)
        self.connection.request(method, path, body or None, headers)
        response = self.connection.getresponse()
        return response, response.read()

    def _leave(self) -> None:
        """Close the connection, so that the next request goes to the next replica."""
        if self.connection is not None:
            self.connection.close()
        self.connection = None
        time.sleep(PAUSE_S)


def objection(status: int, headers: Mapping[str, str], content: bytes) -> str:
    """Return the fault in the form of an answer, or "" where there is none."""
    if status < 400:
        return ""
    if status >= 500 and status not in ANNOUNCED:
        return f"{status}: {content[:200]!r}"
    if headers.get("content-type") != "application/problem+json":
        return f"{status} is not problem+json: {content[:200]!r}"
    if status in ANNOUNCED and not headers.get("retry-after", "").isdigit():
        return f"{status} without Retry-After: {content[:200]!r}"
    if b"Traceback (most recent call last)" in content:
        return f"{status} shows a traceback"
    return ""
