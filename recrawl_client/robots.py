"""Readers of robots.txt: whether a page may be fetched, and when (RFC 9309).

    with Client() as recrawl, recrawl.reporter() as reporter:
        robots = Robots("MyBot/1.0", recrawl)
        for crawl in reporter.lease().items:
            entry = robots.enter(crawl)
            if entry.allowed:
                ...  # fetch the page and report it
            elif entry.evidence:
                reporter.report(crawl, **entry.evidence)

`enter` waits for the delay that the robots.txt requests, and reports the delay to the service.
`AsyncRobots` has the same methods for asyncio.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

import httpx

from recrawl_client.async_client import AsyncClient
from recrawl_client.base import utc_now
from recrawl_client.client import Client
from recrawl_client.errors import ClientError
from recrawl_client.robots_fetch import fetched, fetched_in_thread
from recrawl_client.robots_flows import (
    Entry,
    Fetch,
    Join,
    Pause,
    Release,
    RobotsFlow,
    RobotsFlows,
    SetDelay,
    Step,
    at_once,
    driven,
)
from recrawl_client.wire.leases import Crawl

T = TypeVar("T")


class Robots:
    """A reader of robots.txt, shared by any number of threads.

    Parameters
    ----------
    user_agent
        User-Agent of the crawler, or its product token.
    client
        Client that reports delays and returns leases; None: neither.
    fetch
        Function that requests a URL without redirects, and returns the response or raises an
        exception; without it, a request with a deadline and a limit on the size.
    wait
        Function that waits for a number of seconds. A true result, such as that of
        `threading.Event.wait`, ends the wait, and the lease is returned.
    now, clock
        Clock of delays, seconds; clock of leases.
    """

    def __init__(
        self,
        user_agent: str,
        client: Client | None = None,
        *,
        fetch: Callable[[str], httpx.Response] | None = None,
        wait: Callable[[float], object] = time.sleep,
        now: Callable[[], float] = time.monotonic,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        self.flows = RobotsFlows(user_agent, now, clock, releases=client is not None)
        self.client = client
        self.fetch = fetch or partial(fetched_in_thread, user_agent)
        self.wait = wait

    def enter(self, crawl: Crawl) -> Entry:
        """Decide on a leased page, after a wait for the delay of its host."""
        return self._run(self.flows.enter(crawl))

    def allowed(self, url: str) -> bool:
        """Return whether the robots.txt of a URL allows a request.

        While the robots.txt is unreachable, nothing is allowed.
        """
        return self._run(self.flows.allowed(url))

    def crawl_delay(self, url: str) -> float | None:
        """Return the delay that the robots.txt of a URL requests, seconds; None without one."""
        return self._run(self.flows.crawl_delay(url))

    def _run(self, flow: RobotsFlow[T]) -> T:
        async def take(step: Step) -> Any:
            return self._take(step)

        return at_once(driven(flow, take))

    def _take(self, step: Step) -> Any:
        match step:
            case Fetch(url):
                return self._fetched(url)
            case Join(reading):
                return reading.result()
            case Pause(seconds):
                return self.wait(seconds)
            case SetDelay(host, delay_s) if self.client is not None:
                return self._tried(partial(self.client.set_host, host, robots_delay_s=delay_s))
            case Release(crawl) if self.client is not None:
                return self._tried(partial(self.client.release, crawl))
        return None

    def _fetched(self, url: str) -> httpx.Response | Exception:
        try:
            return self.fetch(url)
        except Exception as error:  # noqa: BLE001 - any fault of a site is no answer
            return error

    def _tried(self, call: Callable[[], object]) -> ClientError | None:
        try:
            call()
        except ClientError as error:
            return error
        return None


class AsyncRobots:
    """A reader of robots.txt for asyncio; parameters and methods as those of `Robots`."""

    def __init__(
        self,
        user_agent: str,
        client: AsyncClient | None = None,
        *,
        fetch: Callable[[str], Awaitable[httpx.Response]] | None = None,
        wait: Callable[[float], Awaitable[object]] = asyncio.sleep,
        now: Callable[[], float] = time.monotonic,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        self.flows = RobotsFlows(user_agent, now, clock, releases=client is not None)
        self.client = client
        self.fetch = fetch or partial(fetched, user_agent)
        self.wait = wait

    async def enter(self, crawl: Crawl) -> Entry:
        """Decide on a leased page, after a wait for the delay of its host."""
        return await self._run(self.flows.enter(crawl))

    async def allowed(self, url: str) -> bool:
        """Return whether the robots.txt of a URL allows a request.

        While the robots.txt is unreachable, nothing is allowed.
        """
        return await self._run(self.flows.allowed(url))

    async def crawl_delay(self, url: str) -> float | None:
        """Return the delay that the robots.txt of a URL requests, seconds; None without one."""
        return await self._run(self.flows.crawl_delay(url))

    async def _run(self, flow: RobotsFlow[T]) -> T:
        return await driven(flow, self._take)

    async def _take(self, step: Step) -> Any:
        match step:
            case Fetch(url):
                return await self._fetched(url)
            case Join(reading):
                # a cancelled flow does not cancel the reading of the other one
                return await asyncio.shield(asyncio.wrap_future(reading))
            case Pause(seconds):
                return await self.wait(seconds)
            case SetDelay(host, delay_s) if self.client is not None:
                return await self._tried(self.client.set_host(host, robots_delay_s=delay_s))
            case Release(crawl) if self.client is not None:
                return await self._tried(self.client.release(crawl))
        return None

    async def _fetched(self, url: str) -> httpx.Response | Exception:
        try:
            return await self.fetch(url)
        except Exception as error:  # noqa: BLE001 - any fault of a site is no answer
            return error

    async def _tried(self, call: Awaitable[object]) -> ClientError | None:
        try:
            await call
        except ClientError as error:
            return error
        return None
