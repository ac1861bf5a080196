"""Checks that must end soon, whatever the database does."""

from collections.abc import Callable
from functools import cached_property
from typing import TypeVar

from anyio import CapacityLimiter, fail_after, to_thread

WITHIN_S = 1.5
"""Maximum time of one check, seconds."""

ResultT = TypeVar("ResultT")


class BoundedCheck:
    """A check that one thread at a time may run, beside the threads of requests."""

    @cached_property
    def limiter(self) -> CapacityLimiter:
        """The limit of one thread; made on the event loop that it belongs to."""
        return CapacityLimiter(1)

    async def run(self, check: Callable[[], ResultT]) -> ResultT:
        """Return the result; raise `TimeoutError` when it takes too long.

        The thread then runs on until its own limits end it, and no other check starts before.
        """
        with fail_after(WITHIN_S):
            return await to_thread.run_sync(check, limiter=self.limiter, abandon_on_cancel=True)
