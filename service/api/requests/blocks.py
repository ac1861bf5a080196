"""Blocks: evidence that becomes columns before it is submitted.

A JSON array is one block, and so is the report of a lease request to several databases. NDJSON may
have any length: it is taken as it arrives, in blocks of whole lines.

While the database writes one block, the service reads and decodes the next one. Two blocks are
never written at once, so that a page's crawls are recorded in the order of the lines. Memory holds
at most two blocks, because the service reads no faster than the database writes.

A stream may end early: the client is gone, the database is away, or a line is too long. The
committed blocks stay, and the problem contains the number of their lines.
"""

import asyncio
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import aclosing, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Generic, TypeVar

from fastapi import Request
from starlette.requests import ClientDisconnect

from recrawl_client.wire.evidence import Observation
from service.access.callers import Caller
from service.api.assembly import Service
from service.api.encodings import BOMB
from service.api.requests.bodies import (
    LINES,
    Body,
    arrival,
    arriving,
    as_text,
    drain,
    heavy,
    media_type,
    read_body,
)
from service.api.requests.decode import Decoded, EvidenceT, decode_crawls
from service.api.requests.items import Batch, ItemT, decode_batch
from service.api.requests.key_limits import admitted
from service.api.requests.meter import SMALL, BodyLimits, Meter
from service.api.requests.posts import SMALL_BYTES, Counts, Post
from service.api.requests.settling import settled
from service.api.responses.outcomes import add_counts, crawl_counts, measure_crawls
from service.api.threads import in_thread
from service.batching.batcher import Batcher, JobT, ResultT
from service.batching.reports import CommittedCrawls, CrawlReport, lost
from service.model.columns import CrawlColumns
from service.model.errors import (
    BodyTooLarge,
    Overloaded,
    RecrawlError,
    ShardUnavailable,
    StreamRefused,
    TooManyItems,
)
from service.model.words import counted
from service.runtime.requests import ask_again

T = TypeVar("T")

BLANKS = re.compile(rb"\n[ \t\r\n]*\n")

BLOCK_BYTES = 1_000_000
"""Maximum size of a block of several lines, bytes."""

PART = 65_536
"""Maximum size of a part of a stream between two turns of other requests, bytes."""


MOST_REFUSED = 50_000
"""Maximum number of refused lines of a stream beyond the number of well-formed lines."""


@dataclass(frozen=True, slots=True)
class BlockReader(Generic[ItemT, EvidenceT]):
    """Reader of the blocks of one request: bytes become columns."""

    service: Service
    caller: Caller
    kind: type[ItemT]
    columns: Callable[[Batch[ItemT], datetime], Decoded[EvidenceT]]

    def batch(self, block: Body) -> Batch[ItemT]:
        """Return the items that the caller's key may send."""
        batch = decode_batch(block, self.kind, self.service.max_items)
        return admitted(batch, self.caller, self.service.store)

    async def read(self, block: Body, now: datetime) -> Decoded[EvidenceT]:
        """Return the columns of a block."""
        decode = partial(self._decode, block, now)
        return await beside(block.content, self.caller, decode)

    def _decode(self, block: Body, now: datetime) -> Decoded[EvidenceT]:
        return self.columns(self.batch(block), now)


async def beside(content: bytes, caller: Caller, decode: Callable[[], T]) -> T:
    """Return the result of decoding, in a thread if it may hold up the event loop.

    Large bodies take long, and the pages of a limited key's leases are read from the store.
    """
    if heavy(content) or caller.boundary is not None:
        return await in_thread(decode)
    return decode()


async def record_report(service: Service, caller: Caller, content: bytes, post: Post) -> Counts:
    """Record the report of a lease request as a block, and return the counts of its outcomes.

    Crawls whose database is away are rejected; the others count, and leases follow.
    """
    now = service.now()
    decoded = await beside(
        content, caller, partial(decode_crawls, post.batch, now, service.budget.unit)
    )
    writing = service.crawl_reports.submit(decoded.report(now, register=post.register))
    try:
        committed = await settled(writing)
    except ShardUnavailable:
        committed = lost(CommittedCrawls, len(decoded.columns))
    counts = count_block(service, decoded, committed)
    service.lease_waiters.wake(counts["leases_ended"])
    return counts


def count_block(
    service: Service, decoded: Decoded[CrawlColumns], committed: CommittedCrawls
) -> Counts:
    """Return the counts of a committed block, and add them to the metrics."""
    counts = crawl_counts(decoded, committed)
    measure_crawls(service.telemetry, decoded.columns, counts)
    return counts[0]


class CrawlStream:
    """The crawl results of one request: a post that waits undecoded, or blocks in sequence."""

    def __init__(self, reader: BlockReader[Observation, CrawlColumns], *, register: bool) -> None:
        self.reader = reader
        self.service, self.caller = reader.service, reader.caller
        self.register = register
        self.n_decoded = self.n_taken = self.n_refused = 0
        self.counts: Counts | None = None
        self._writing: tuple[Future[CommittedCrawls], Decoded[CrawlColumns]] | None = None

    async def write(self, request: Request) -> Counts:
        """Write the stream to its end and return the counts of its outcomes.

        Raises
        ------
        RecrawlError
            The error that ended the stream; for NDJSON with `lines_taken`.
        """
        if media_type(request) in LINES:
            await self._write_blocks(request)
            return self.counts or {}
        body = await read_body(request)
        is_small = len(body.content) <= SMALL_BYTES and self.caller.boundary is None
        if is_small and not self.service.divided:
            post = Post(self.reader.batch(body), self.register)
            return await settled(self.service.small_posts.submit(post))
        await self._take(body)
        await self._settle()
        return self.counts or {}

    async def _write_blocks(self, request: Request) -> None:
        limits = self.service.max_items, self.service.max_body_bytes
        try:
            async with aclosing(read_blocks(request, *limits)) as blocks:
                async for block in blocks:
                    await self._take(block)
                    await self._pace()
                    self._check_refused()
            await self._settle()
        except (RecrawlError, ClientDisconnect) as error:
            with suppress(RecrawlError):
                await self._settle()
            if isinstance(error, ClientDisconnect):
                raise
            raise self._cut_short(error) from error.__cause__

    def _cut_short(self, error: RecrawlError) -> RecrawlError:
        before = counted(self.n_taken, "line before was", "lines before were")
        progress = f"the {before} accepted, sending all again is safe"
        return cut_short(error, progress if self.n_taken else "", lines_taken=self.n_taken)

    async def _take(self, block: Body) -> None:
        """Decode a block and submit it."""
        now = self.service.now()
        decoded = await self.reader.read(block._replace(first=self.n_decoded), now)
        self.n_decoded += decoded.n_items
        self.n_refused += len(decoded.refusals)
        await self._settle()
        self._writing = await self._submit(decoded.report(now, register=self.register)), decoded

    def _check_refused(self) -> None:
        """Raise `StreamRefused` for a stream whose lines are nearly all refused."""
        if self.n_refused > MOST_REFUSED + (self.n_decoded - self.n_refused):
            raise StreamRefused(
                f"{self.n_refused} of {self.n_decoded} lines were refused; correct the program "
                "that writes them"
            )

    async def _pace(self) -> None:
        """Wait until the key has paid for its items; raise `RateLimited` where that takes long."""
        bucket = self.caller.bucket
        if bucket is None:
            return
        while wait_s := bucket.wait_s(time.monotonic()):
            if wait_s > PATIENCE_S:
                raise bucket.refusal(time.monotonic())
            await asyncio.sleep(wait_s)

    async def _submit(self, job: CrawlReport) -> Future[CommittedCrawls]:
        """Return the future of a block; only the first block is refused at once by a full queue.

        Raise as `ask_again`: the lines before stay committed.
        """
        give_up_at = deadline(begun=self.n_taken > 0)
        while True:
            ask_again()
            writing = attempt(self.service.crawl_reports, job, give_up_at)
            if writing is not None:
                return writing
            await asyncio.sleep(POLL_S)

    async def _settle(self) -> None:
        """Wait for the commit of the current block, and count its outcomes."""
        if self._writing is None:
            return
        (writing, decoded), self._writing = self._writing, None
        self.counts = add_counts(
            self.counts, count_block(self.service, decoded, await settled(writing))
        )
        self.n_taken += decoded.n_items


async def read_blocks(request: Request, max_items: int, max_bytes: int) -> AsyncGenerator[Body]:
    """Yield arriving NDJSON in blocks; raise as `read_body`."""
    kind, chunks = media_type(request), arrival(request)
    limits = BodyLimits.of(max_items, max_bytes)
    hold = partial(request.app.state.service.bodies.hold, request.scope)
    pieces, n_lines = arriving(request, chunks, as_text), 0
    try:
        async for block in cut(pieces, max_items, max_bytes, hold):
            meter = Meter(limits, lines=True)
            for start in range(0, len(block) if len(block) > SMALL else 0, PART):
                meter.feed(block[start : start + PART])
            meter.check(f"the part from index {n_lines} on")
            await _room(partial(hold, meter.weight), begun=n_lines > 0)
            yield Body(block, kind, n_items=meter.n_items)
            n_lines += meter.n_items or block.count(b"\n") + 1
    except (BodyTooLarge, Overloaded, TooManyItems) as error:
        await drain(chunks, max_bytes)
        if error.detail == BOMB:
            raise BodyTooLarge(f"{BOMB} from index {n_lines} on; send it plain") from error
        raise


async def _room(hold: Callable[[], None], *, begun: bool) -> None:
    """Charge the memory of a block; a begun stream waits for room, others raise `Overloaded`."""
    give_up_at = deadline(begun=begun)
    while True:
        try:
            return hold()
        except Overloaded:
            if time.monotonic() >= give_up_at:
                raise
        await asyncio.sleep(POLL_S)


async def cut(
    chunks: AsyncIterator[bytes],
    max_items: int,
    max_bytes: int,
    hold: Callable[[int], None] = lambda _: None,
) -> AsyncIterator[bytes]:
    """Yield a stream in blocks of whole lines without blank lines, at least one block.

    `hold` receives the size of a long line while it arrives.

    Raises
    ------
    BodyTooLarge
        A line has more than `max_bytes`, or blank lines in a row have.
    """
    line, lines = bytearray(), list[bytes]()
    n_before, n_bytes, limit = 0, 0, min(BLOCK_BYTES, max_bytes)
    async for part in _parts(chunks, max_bytes):
        for i, piece in enumerate(part.split(b"\n")):
            if i and line and not line.isspace():
                n_bytes += len(line) + 1
                if lines and (len(lines) == max_items or n_bytes > limit):
                    yield b"\n".join(lines)
                    n_before, n_bytes = n_before + len(lines), len(line) + 1
                    lines.clear()
                lines.append(bytes(line))
            if i:
                line = bytearray()
            line += piece
            if len(line) > limit:
                hold(len(line))
            if len(line) > max_bytes:
                index = n_before + len(lines)
                raise BodyTooLarge(f"the line of index {index} has over {max_bytes} bytes")
    if lines or not n_before:
        yield b"\n".join(lines)


async def _parts(chunks: AsyncIterator[bytes], max_blank: int) -> AsyncIterator[bytes]:
    """Yield a stream in small parts, with turns of other requests between; end its last line."""
    n_blank = 0
    async for chunk in chunks:
        for start in range(0, len(chunk), PART):
            part = chunk[start : start + PART]
            n_blank = n_blank + len(part) if part.isspace() else 0
            if n_blank > max_blank:
                raise BodyTooLarge(f"the stream has over {max_blank} blank bytes in a row")
            yield BLANKS.sub(b"\n", part)
            await asyncio.sleep(0)
    yield b"\n"


PATIENCE_S = 30.0
"""Maximum wait of a begun request for room in the queue, seconds."""
POLL_S = 0.05
"""Time between two attempts, seconds."""


def deadline(*, begun: bool) -> float:
    """Return the deadline of a wait; a request that has not begun has no time to wait."""
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
    """Return the same error with the progress of the request in its sentence."""
    detail = error.detail
    if progress:
        reason = detail.partition(";")[0].rstrip(".")
        detail = f"{reason}; {progress}"
    return type(error)(detail, **error.extra, **extra)
