"""Evidence as it arrives: NDJSON of any length, in blocks of whole lines.

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
from datetime import datetime
from typing import Any

from fastapi import Request
from fastapi.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect

from recrawl_client.wire.evidence import Observation
from service.access.callers import Caller
from service.api.requests.bodies import (
    LINES,
    Body,
    decode_batch,
    drain,
    heavy,
    inflated,
    media_type,
    read_body,
)
from service.api.requests.decode import Decoded
from service.api.requests.limited import admitted
from service.api.requests.settling import settled
from service.api.requests.small_posts import SMALL_BYTES, SmallPost
from service.api.responses.encode import add_counts, batch_counts
from service.api.service import Service
from service.batching.batcher import Batcher, JobT, ResultT
from service.batching.reports import CommittedCrawls, CrawlReport
from service.model.columns import CrawlColumns
from service.model.errors import BodyTooLarge, Overloaded, RecrawlError

BLANKS = re.compile(rb"\n[ \t\r\n]*\n")

BLOCK_BYTES = 1_000_000
"""Maximum size of a block of several lines, bytes."""

PART = 65_536
"""Maximum size of a part of a stream between two turns of other requests, bytes."""


class CrawlStream:
    """The stream of crawl results of one request."""

    def __init__(
        self,
        service: Service,
        decode: Callable[[Body, datetime], Decoded[CrawlColumns]],
        *,
        register: bool,
        caller: Caller,
    ) -> None:
        self.service = service
        self.caller = caller
        self.decode = decode
        self.is_limited = caller.boundary is not None
        self.register = register
        self.n_decoded = self.n_taken = 0
        self.counts: dict[str, Any] | None = None
        self._writing: tuple[Future[CommittedCrawls], Decoded[CrawlColumns]] | None = None

    async def write(self, request: Request) -> dict[str, Any]:
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
        if len(body.content) <= SMALL_BYTES and not (self.service.divided or self.is_limited):
            batch = decode_batch(body, Observation, self.service.max_items)
            post = SmallPost(admitted(batch, self.caller, self.service.store), self.register)
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
            await self._settle()
        except (RecrawlError, ClientDisconnect) as error:
            with suppress(RecrawlError):
                await self._settle()
            if isinstance(error, ClientDisconnect):
                raise
            raise self._cut_short(error) from error.__cause__

    def _cut_short(self, error: RecrawlError) -> RecrawlError:
        progress = f"the {self.n_taken} lines before were accepted, sending them again is safe"
        return cut_short(error, progress if self.n_taken else "", lines_taken=self.n_taken)

    async def _take(self, block: Body) -> None:
        """Decode a block, a big one or that of a limited key in a thread, and submit it."""
        now, block = self.service.now(), block._replace(first=self.n_decoded)
        if not (heavy(block.content) or self.is_limited):
            decoded = self.decode(block, now)
        else:
            decoded = await run_in_threadpool(self.decode, block, now)
        self.n_decoded += decoded.n_items
        await self._settle()
        job = CrawlReport(decoded.columns, decoded.named, self.register, now)
        self._writing = await self._submit(job), decoded

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
        """Return the future of a block; only the first block is refused at once by a full queue."""
        give_up_at = deadline(begun=self.n_taken > 0)
        while True:
            writing = attempt(self.service.crawl_reports, job, give_up_at)
            if writing is not None:
                return writing
            await asyncio.sleep(POLL_S)

    async def _settle(self) -> None:
        """Wait for the commit of the current block, and count its outcomes."""
        if self._writing is None:
            return
        (writing, decoded), self._writing = self._writing, None
        committed = await settled(writing)
        counts = batch_counts(
            committed.verdict, decoded.index, decoded.named.page_id, decoded.rejected
        )
        n_leases = int((decoded.columns.token != 0).sum())
        counts["leases_ended"] = n_ended = int(committed.lease_ended.sum())
        self.service.telemetry.count_reported_leases(n_leases, n_ended)
        self.service.telemetry.count_items("observation", counts)
        self.counts = add_counts(self.counts, counts)
        self.n_taken += decoded.n_items


async def read_blocks(request: Request, max_items: int, max_bytes: int) -> AsyncGenerator[Body]:
    """Yield arriving NDJSON in blocks."""
    kind, arriving = media_type(request), request.stream()
    try:
        async for block in cut(inflated(request, arriving), max_items, max_bytes):
            yield Body(block, kind)
    except BodyTooLarge:
        await drain(arriving, max_bytes)
        raise


async def cut(chunks: AsyncIterator[bytes], max_items: int, max_bytes: int) -> AsyncIterator[bytes]:
    """Yield a stream in blocks of whole lines without blank lines, at least one block.

    Raises
    ------
    BodyTooLarge
        A line has more than `max_bytes`.
    """
    line, lines = bytearray(), list[bytes]()
    n_before, n_bytes, limit = 0, 0, min(BLOCK_BYTES, max_bytes)
    async for part in _parts(chunks):
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
            if len(line) > max_bytes:
                index = n_before + len(lines)
                raise BodyTooLarge(f"the line of index {index} has over {max_bytes} bytes")
    if lines or not n_before:
        yield b"\n".join(lines)


async def _parts(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield a stream in small parts, with turns of other requests between; end its last line."""
    async for chunk in chunks:
        for start in range(0, len(chunk), PART):
            yield BLANKS.sub(b"\n", chunk[start : start + PART])
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
