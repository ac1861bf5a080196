"""Evidence as it arrives: NDJSON of any length, in blocks of whole lines.

A block is written while the next one is read and decoded, and never two at once, so that a
page's crawls are recorded in the order of the lines. Memory holds two blocks, however long the
stream is: the client is read no faster than the database writes.

A stream that ends half-way (the client is gone, the database away, a line too long) leaves what
was committed, whole blocks; the problem tells how many lines that were.
"""

import asyncio
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import aclosing, suppress
from datetime import datetime
from typing import Any, TypeVar

from fastapi import Request
from fastapi.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect

from service import ingest
from service.api.bodies import (
    LINES,
    Body,
    decode_batch,
    drain,
    heavy,
    inflated,
    media_type,
    read_body,
)
from service.api.decode import Decoded
from service.api.encode import add_counts, batch_counts
from service.api.gathering import SMALL
from service.api.schemas import ObservationItem
from service.api.service import Service
from service.columns import CrawlColumns
from service.commits import Done, Job
from service.errors import BodyTooLarge, Overloaded, RecrawlError
from service.ingest import Recorded

BLANKS = re.compile(rb"\n[ \t\r\n]*\n")

BLOCK_BYTES = 1_000_000
"""A block of several lines has no more."""

PART = 65_536
"""So many bytes are looked at before others get their turn."""

PATIENCE_S = 30.0
"""How long a stream that has begun waits for room in the line of what is to be written."""

POLL_S = 0.05


DoneT = TypeVar("DoneT")


class CrawlStream:
    """The crawl results of one request, on their way into the store."""

    def __init__(
        self,
        service: Service,
        decode: Callable[[Body, datetime], Decoded[CrawlColumns]],
        *,
        register: bool,
    ) -> None:
        self.service = service
        self.decode = decode
        self.register = register
        self.n_decoded = self.n_taken = 0
        self.counts: dict[str, Any] | None = None
        self._writing: tuple[Future[Done[Recorded]], Decoded[CrawlColumns]] | None = None

    async def write(self, request: Request) -> dict[str, Any]:
        """Write what arrives, to the end, and count what became of it.

        Raises
        ------
        RecrawlError
            What kept the stream from its end; of NDJSON it tells `lines_taken`.
        """
        if media_type(request) in LINES:
            await self._write_blocks(request)
            return self.counts or {}
        body = await read_body(request)
        if len(body.content) <= SMALL:
            batch = decode_batch(body, ObservationItem, self.service.max_items)
            return await self.service.gathering.write(batch, register=self.register)
        await self._take(body)
        await self._settle()
        return self.counts or {}

    async def _write_blocks(self, request: Request) -> None:
        limits = self.service.max_items, self.service.max_body_bytes
        try:
            async with aclosing(read_blocks(request, *limits)) as blocks:
                async for block in blocks:
                    await self._take(block)
            await self._settle()
        except (RecrawlError, ClientDisconnect) as error:
            with suppress(RecrawlError):
                await self._settle()
            if isinstance(error, ClientDisconnect):
                raise
            raise _cut_short(error, self.n_taken) from error.__cause__

    async def _take(self, block: Body) -> None:
        """Decode a block, beside the event loop if it is big, and let it be written."""
        now, block = self.service.now(), block._replace(first=self.n_decoded)
        if not heavy(block.content):
            given = self.decode(block, now)
        else:
            given = await run_in_threadpool(self.decode, block, now)
        self.n_decoded += given.n_items
        await self._settle()
        job = Job(ingest.record, given.columns, given.named, self.register, now)
        self._writing = await self._submit(job), given

    async def _submit(self, job: Job[CrawlColumns, Recorded]) -> Future[Done[Recorded]]:
        """Put a block in the line; only the first is refused at once when that is full."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                return self.service.commits.submit(job)
            except Overloaded:
                if not self.n_taken or time.monotonic() > deadline:
                    raise
            await asyncio.sleep(POLL_S)

    async def _settle(self) -> None:
        """Wait until the block at work is committed, and count it."""
        if self._writing is None:
            return
        (writing, given), self._writing = self._writing, None
        done = await settled(writing)
        counts = batch_counts(done.made.verdict, given.index, given.named.page_id, given.rejected)
        n_leases, n_ended = int((given.columns.token != 0).sum()), int(done.held.sum())
        counts["leases_ended"] = n_ended
        self.service.telemetry.count_leases("ended", n_ended)
        self.service.telemetry.count_leases("late", n_leases - n_ended)
        self.service.telemetry.count_items("observation", counts)
        self.counts = add_counts(self.counts, counts) if self.counts else counts
        self.n_taken += given.n_items


async def settled(job: Future[DoneT]) -> DoneT:
    """Wait on the event loop for a writer; who leaves before is not written."""
    loop = asyncio.get_running_loop()
    waiting: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not waiting.done():
            waiting.set_result(None)

    job.add_done_callback(lambda _: loop.is_closed() or loop.call_soon_threadsafe(wake))
    try:
        await waiting
    except asyncio.CancelledError:
        job.cancel()
        raise
    return job.result()


def _cut_short(error: RecrawlError, n_taken: int) -> RecrawlError:
    """Give the same condition, and how far the stream had come."""
    detail = error.detail
    if n_taken:
        reason = detail.partition(";")[0].rstrip(".")
        detail = f"{reason}; the {n_taken} lines before were taken, sending them again is safe"
    return type(error)(detail, **error.extra, lines_taken=n_taken)


async def read_blocks(request: Request, max_items: int, max_bytes: int) -> AsyncGenerator[Body]:
    """Give NDJSON in blocks as it arrives."""
    kind, arriving = media_type(request), request.stream()
    try:
        async for block in cut(inflated(request, arriving), max_items, max_bytes):
            yield Body(block, kind)
    except BodyTooLarge:
        await drain(arriving, max_bytes)
        raise


async def cut(chunks: AsyncIterator[bytes], max_items: int, max_bytes: int) -> AsyncIterator[bytes]:
    """Cut a stream into blocks of whole lines, blank ones left out; gives at least one block.

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
    """Give a stream in small parts, others having their turn between; end its last line."""
    async for chunk in chunks:
        for start in range(0, len(chunk), PART):
            yield BLANKS.sub(b"\n", chunk[start : start + PART])
            await asyncio.sleep(0)
    yield b"\n"
