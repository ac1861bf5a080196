"""Send batches to a running service, patiently."""

import json
import time
from types import TracebackType
from typing import Any, Self

import httpx

from service.errors import UnexpectedAnswer

ATTEMPTS = 5
PATIENCE_S = 30.0
"""The longest wait for a Retry-After."""
BUSY = (429, 503)
JSON = {"Content-Type": "application/json"}


class Poster:
    """A client of POST /pages that waits while the service is busy or restarting."""

    def __init__(self, url: str, api_key: str | None = None) -> None:
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self.client = httpx.Client(base_url=url, headers=headers, timeout=60)

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
        response = self._patiently("/pages", items)
        answer: dict[str, Any] = response.json()
        if "rejected" not in answer:
            raise UnexpectedAnswer(f"POST /pages: {response.status_code} {answer.get('detail')}")
        return {"created": 0, **answer}

    def _patiently(self, path: str, items: list[dict[str, Any]]) -> httpx.Response:
        problem = ""
        for attempt in range(ATTEMPTS):
            try:
                response = self.client.post(path, content=json.dumps(items), headers=JSON)
            except httpx.TransportError as error:
                problem, wait = str(error), float(2**attempt)
            else:
                if response.status_code not in BUSY:
                    return response
                problem = f"{response.status_code}"
                wait = float(response.headers.get("Retry-After", 2**attempt))
            if attempt < ATTEMPTS - 1:
                time.sleep(min(wait, PATIENCE_S))
        raise UnexpectedAnswer(f"{self.client.base_url} did not answer: {problem}; is it running?")
