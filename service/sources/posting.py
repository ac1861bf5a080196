"""Call a running service, patiently."""

import json
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

import httpx

from recrawl_client import Unavailable
from recrawl_client.calls import Line
from service.errors import NotReached, SitemapRefused, UnexpectedAnswer

PATIENCE_S = 60.0
"""So long a service that is busy, restarting or out of reach is waited for."""
NO_CONTENT = 204
UNWELCOME = (401, 404, 405)
"""No key, or no such service."""
JSON = {"Content-Type": "application/json"}


class Poster:
    """A client that waits while the service is busy or restarting."""

    def __init__(self, url: str, api_key: str | None = None) -> None:
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self.client = httpx.Client(base_url=url, headers=headers, timeout=60)
        self.line = Line(self.client, PATIENCE_S)

    def __enter__(self) -> Self:
        """Use the connection."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it."""
        self.client.close()

    def post_pages(self, items: list[dict[str, Any]]) -> dict[str, Any]:
        """Send one batch; a batch of which nothing could be taken is an answer too.

        Raises
        ------
        UnexpectedAnswer
            The service cannot be reached, or refuses the call as a whole.
        """
        if not items:
            return {"created": 0, "rejected": []}
        content = json.dumps(items, default=str).encode()  # such as dates, to be refused by name
        response = self._patiently("POST", "/pages", content=content, headers=JSON)
        answer = _json(response)
        if "rejected" not in answer:
            raise UnexpectedAnswer(f"POST /pages: {response.status_code} {answer.get('detail')}")
        return {"created": 0, **answer}

    def post_sitemap(
        self, url: str, content: bytes, coding: dict[str, str], *, cross_host: bool
    ) -> dict[str, Any]:
        """Send one document, fetched from `url`.

        Raises
        ------
        SitemapRefused
            Nothing of it could be taken.
        UnexpectedAnswer
            The service cannot be reached, or does not let this client in.
        """
        response = self._patiently(
            "POST",
            "/sitemaps",
            content=content,
            headers={"Content-Type": "application/octet-stream", **coding},
            params={"url": url, "cross_host": cross_host},
        )
        answer = _json(response)
        if response.status_code in UNWELCOME:
            raise UnexpectedAnswer(f"POST /sitemaps: {response.status_code} {answer.get('detail')}")
        if "kind" not in answer:
            raise SitemapRefused(f"{response.status_code} {answer.get('detail')}")
        return answer

    def call(self, method: str, path: str, body: Any = None, *needed: str) -> dict[str, Any]:
        """Make one call and give its answer, which has the fields that are needed.

        Raises
        ------
        UnexpectedAnswer
            The service cannot be reached, or refuses the call.
        """
        content = None if body is None else json.dumps(body).encode()
        response = self._patiently(method, path, content=content, headers=JSON)
        if response.status_code == NO_CONTENT:
            return {}
        answer = _json(response)
        missing = response.is_success and not answer.keys() >= {*needed}
        if missing or not response.is_success:
            detail = answer.get("detail", "not an answer of Recrawl")
            raise UnexpectedAnswer(f"{method} {path}: {response.status_code} {detail}")
        return answer

    def listed(self, path: str) -> Iterator[dict[str, Any]]:
        """Give all items of a list, part by part; raises as `call`."""
        cursor: str | None = ""
        while cursor is not None:
            where = f"{path}?limit=1000{cursor and f'&cursor={cursor}'}"
            part = self.call("GET", where, None, "items", "next_cursor")
            yield from part["items"]
            cursor = part["next_cursor"]

    def _patiently(self, method: str, path: str, **request: Any) -> httpx.Response:
        try:
            return self.line.call(method, path, **request)
        except Unavailable as error:
            raise NotReached(f"{error}; is it running?") from error


def _json(response: httpx.Response) -> dict[str, Any]:
    try:
        answer = response.json()
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        said = f"{response.url} answered {response.status_code} without a JSON object"
        if response.has_redirect_location:
            said = f"{response.url} redirects to {response.headers['Location'][:200]}"
        raise UnexpectedAnswer(f"{said}; is that the service?")
    return answer
