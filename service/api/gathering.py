"""Small batches that come at the same moment: decoded together, written as one job.

Arrays of one item take as long to make as arrays of fifty. So requests that are read in one turn
of the event loop put their items together; each is answered by what became of its own.
"""

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import replace

from service import ingest
from service.api.bodies import Batch
from service.api.decode import Decoded, decode_crawls
from service.api.encode import batch_counts
from service.api.schemas import ObservationItem
from service.arrays import Bools
from service.columns import CrawlColumns
from service.commits import Commits, Done, Job
from service.domain import Verdict
from service.errors import OUTAGES, RecrawlError
from service.ingest import Recorded
from service.telemetry import Telemetry

SMALL = 2_048
"""A body of more bytes is worth a job of its own."""
MOST = 100
"""So many requests share a job, so that neither the event loop nor a writer is held up long."""

Counts = dict[str, Any]


class Part(NamedTuple):
    """The items of one request, and what becomes of them."""

    batch: Batch[ObservationItem]
    counts: asyncio.Future[Counts]


class Gathering:
    """The small batches of this turn of the event loop."""

    def __init__(self, commits: Commits, telemetry: Telemetry, now: Callable[[], datetime]) -> None:
        self.commits = commits
        self.telemetry = telemetry
        self.now = now
        self._parts: dict[bool, list[Part]] = {True: [], False: []}

    async def write(self, batch: Batch[ObservationItem], *, register: bool) -> Counts:
        """Write the crawl results of one request with those of others, and count them.

        Raises
        ------
        RecrawlError
            As `Commits.submit`, and what kept the store from taking them.
        """
        loop, parts = asyncio.get_running_loop(), self._parts[register]
        part = Part(batch, loop.create_future())
        parts.append(part)
        if len(parts) == 1:
            loop.call_soon(partial(self._gathered, register=register))
        return await part.counts

    def _gathered(self, *, register: bool) -> None:
        parts, self._parts[register] = self._parts[register], []
        for start in range(0, len(parts), MOST):
            self._submit(parts[start : start + MOST], register=register)

    def _submit(self, parts: Sequence[Part], *, register: bool) -> None:
        """Decode the parts as one batch and put it in the line."""
        loop, now = parts[0].counts.get_loop(), self.now()
        items = [item for part in parts for item in part.batch.items]
        given = decode_crawls(Batch(items, np.arange(len(items)), []), now)
        job = Job(ingest.record, given.columns, given.named, register, now, n_requests=len(parts))
        settle = partial(self._settle, parts, given, job)
        try:
            self.commits.submit(job)
        except RecrawlError as error:
            fail(parts, error)
        else:
            job.done.add_done_callback(
                lambda _: loop.is_closed() or loop.call_soon_threadsafe(settle)
            )

    def _settle(
        self, parts: Sequence[Part], given: Decoded[CrawlColumns], job: Job[CrawlColumns, Recorded]
    ) -> None:
        """Answer each part; where one is at fault, the others are written without it."""
        error = job.done.exception()
        if error is None:
            self._count(parts, given, job.done.result())
        elif len(parts) == 1 or isinstance(error, OUTAGES):
            fail(parts, error)
        else:
            for part in parts:
                self._submit([part], register=job.register)

    def _count(
        self, parts: Sequence[Part], given: Decoded[CrawlColumns], done: Done[Recorded]
    ) -> None:
        ends = accumulate((len(part.batch.items) for part in parts), initial=0)
        verdict, held = done.made.verdict.tolist(), done.held.tolist()
        refused = len(given.rejected) > 0 or max(verdict, default=0) > Verdict.late
        found = []
        for part, (start, end) in zip(parts, pairwise(ends), strict=True):
            if refused or part.batch.rejected:
                counts = counted(part.batch, start, end, given, done)
            else:
                counts = all_taken(verdict[start:end], held[start:end])
            found.append(counts)
            if not part.counts.done():
                part.counts.set_result(counts)
        names = ("accepted", "duplicate", "late", "n_rejected")
        totals = {name: sum(counts[name] for counts in found) for name in names}
        n_leases, n_ended = n_true(given.columns.token != 0), n_true(done.held)
        self.telemetry.count_items("observation", totals)
        self.telemetry.count_leases("ended", n_ended)
        self.telemetry.count_leases("late", n_leases - n_ended)


def all_taken(verdict: list[int], held: list[bool]) -> Counts:
    """Count what became of the items of a request none of which was refused."""
    return {
        "accepted": verdict.count(Verdict.accepted),
        "duplicate": verdict.count(Verdict.duplicate),
        "late": verdict.count(Verdict.late),
        "n_rejected": 0,
        "rejected": [],
        "leases_ended": held.count(True),
    }


def counted(
    batch: Batch[ObservationItem],
    start: int,
    end: int,
    given: Decoded[CrawlColumns],
    done: Done[Recorded],
) -> Counts:
    """Count what became of one request's items, those from `start` to `end` of all."""
    first, after = np.searchsorted(given.index, (start, end)).tolist()
    rows = slice(first, after)
    said = [r for r in given.rejected if start <= r.index < end]
    rejected = [replace(r, index=int(batch.index[r.index - start])) for r in said]
    index = batch.index[given.index[rows] - start]
    counts = batch_counts(
        done.made.verdict[rows], index, given.named.page_id[rows], [*batch.rejected, *rejected]
    )
    return counts | {"leases_ended": n_true(done.held[rows])}


def n_true(mask: Bools) -> int:
    """Count without the detour of a sum, which takes longer than all else about a few."""
    return int(np.count_nonzero(mask))


def fail(parts: Sequence[Part], error: BaseException) -> None:
    """Fail the requests."""
    for part in parts:
        if not part.counts.done():
            part.counts.set_exception(error)
