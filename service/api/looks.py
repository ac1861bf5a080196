"""Questions that must be answered soon, whatever the database does."""

from collections.abc import Callable
from functools import cached_property
from typing import TypeVar

from anyio import CapacityLimiter, fail_after, to_thread

WITHIN_S = 1.5
"""Limit on the answer to one question, seconds."""

T = TypeVar("T")


class Look:
    """A question that one thread at a time may ask; threads of requests have no part in it."""

    @cached_property
    def limiter(self) -> CapacityLimiter:
        """The limit of one thread; made on the event loop that it belongs to."""
        return CapacityLimiter(1)

    async def ask(self, question: Callable[[], T]) -> T:
        """Return the answer; raise `TimeoutError` when it takes too long.

        The thread is left behind then: its own limits end it, and until then nobody else asks.
        """
        with fail_after(WITHIN_S):
            return await to_thread.run_sync(question, limiter=self.limiter, abandon_on_cancel=True)
