"""Threads of requests, shared fairly: one caller holds at most a third of them.

Requests of a caller beyond its share wait in the order of their arrival, without a thread. So the
slow requests of one key leave threads for those of others. Callers without keys count by address.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from anyio import to_thread

SHARE = 3
"""Divisor of the number of threads that is the share of one caller."""
CALLER_NAME: ContextVar[str] = ContextVar("caller_name", default="")
"""Name of the caller in work: id of a key, subject of a token, or address."""

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(slots=True)
class CallerThreads:
    """The threads of one caller."""

    places: asyncio.Semaphore
    n_users: int = 0
    """Number of requests that have a thread or wait for one."""


_BY_LOOP: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, CallerThreads]] = (
    WeakKeyDictionary()
)


def share(n_threads: float) -> int:
    """Return the number of threads that one caller may hold, at least one.

    >>> [share(n) for n in (24, 3, 2, 1)]
    [8, 1, 1, 1]
    """
    return max(int(n_threads) // SHARE, 1)


@asynccontextmanager
async def turn() -> AsyncIterator[None]:
    """Wait until the caller may hold one more thread, and hold it until the end of the block."""
    threads_by_name = _BY_LOOP.setdefault(asyncio.get_running_loop(), {})
    name = CALLER_NAME.get()
    if name not in threads_by_name:
        n_threads = to_thread.current_default_thread_limiter().total_tokens
        threads_by_name[name] = CallerThreads(asyncio.Semaphore(share(n_threads)))
    turns = threads_by_name[name]
    turns.n_users += 1
    try:
        async with turns.places:
            yield
    finally:
        turns.n_users -= 1
        if not turns.n_users:
            threads_by_name.pop(name, None)


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return the result of a function that runs in a thread, within the caller's share."""
    async with turn():
        return await to_thread.run_sync(partial(function, *args, **kwargs))


async def read_in_thread(
    readers: asyncio.Semaphore, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Return the result of a function that needs a place among the readers too.

    A request without a turn takes no such place; else one caller would hold them all.
    """
    async with turn(), readers:
        return await to_thread.run_sync(partial(function, *args, **kwargs))


async def iterated(parts: Iterator[T]) -> AsyncIterator[T]:
    """Yield the parts of an iterator, each computed in a thread within the caller's share."""
    end = object()
    while (part := await in_thread(next, parts, end)) is not end:
        yield part  # type: ignore[misc]
