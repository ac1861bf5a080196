"""Requests of robots.txt with a deadline and a limit on the size."""

import asyncio
import functools
import ssl
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx

from recrawl_client.robots_rules import MAX_BYTES

DEADLINE_S = 15.0
"""Longest time of a request, from its start to the end of the body, seconds."""
KEPT_HEADERS = ("X-Location", "Retry-After")
"""Headers of an answer that a reader uses."""


async def fetched(user_agent: str, url: str) -> httpx.Response:
    """Return the answer to one request, with at most one byte beyond the limit of its body.

    Raise TimeoutError after the deadline, however slowly the answer arrives.
    """
    headers = {"User-Agent": user_agent, "Accept": "text/plain,*/*;q=0.5"}
    hooks: dict[str, list[Callable[..., object]]] = {"response": [_set_location_aside]}
    content = bytearray()
    async with (
        asyncio.timeout(DEADLINE_S),
        httpx.AsyncClient(
            headers=headers, timeout=DEADLINE_S, verify=_tls(), event_hooks=hooks
        ) as web,
        web.stream("GET", url) as response,
    ):
        if response.is_success:
            async for part in response.aiter_bytes():
                content += part
                if len(content) > MAX_BYTES:
                    break
    kept = {
        name.removeprefix("X-"): response.headers[name]
        for name in KEPT_HEADERS
        if name in response.headers
    }
    return httpx.Response(
        response.status_code, headers=kept, content=bytes(content[: MAX_BYTES + 1])
    )


async def _set_location_aside(response: httpx.Response) -> None:
    """Rename the Location, because httpx raises for one that it could not follow."""
    if "Location" in response.headers:
        response.headers["X-Location"] = response.headers.pop("Location")


def fetched_in_thread(user_agent: str, url: str) -> httpx.Response:
    """Return the answer as `fetched` does, for callers without an event loop.

    A thread of its own runs the loop, because the caller's thread may run another one.
    """
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, fetched(user_agent, url)).result()


@functools.cache
def _tls() -> ssl.SSLContext:
    return httpx.create_ssl_context()
