"""Requests of several blocks: they wait for room in a queue, and say how far they came."""

import time
from concurrent.futures import Future

from service.batching.batcher import Batcher, JobT, ResultT
from service.model.errors import Overloaded, RecrawlError

PATIENCE_S = 30.0
"""How long a request that has begun waits for room in the queue, seconds."""
POLL_S = 0.05
"""Time between two attempts, seconds."""


def deadline(*, begun: bool) -> float:
    """Return until when a request waits; one that has not begun is refused at once."""
    return time.monotonic() + (PATIENCE_S if begun else 0.0)


def attempt(
    batcher: Batcher[JobT, ResultT], job: JobT, give_up_at: float
) -> Future[ResultT] | None:
    """Return the future of a job, or None while its queue is full.

    Raises
    ------
    Overloaded
        The queue is full, and the deadline is over.
    """
    try:
        return batcher.submit(job)
    except Overloaded:
        if time.monotonic() >= give_up_at:
            raise
    return None


def cut_short(error: RecrawlError, progress: str, **extra: int) -> RecrawlError:
    """Return the same error that also says how far the request came."""
    detail = error.detail
    if progress:
        reason = detail.partition(";")[0].rstrip(".")
        detail = f"{reason}; {progress}"
    return type(error)(detail, **error.extra, **extra)
