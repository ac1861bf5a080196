"""Batches of items, sent from a thread or a task, that survive outages of the service."""

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from msgspec import Struct, json, structs

from recrawl_client.errors import Unavailable, Undelivered
from recrawl_client.wire.common import LISTS, Counts, Rejection, added

T = TypeVar("T", bound=Struct)
C = TypeVar("C", bound=Counts)

BATCH_SIZE = 200
"""Default number of items of a full batch."""
EVERY_S = 0.05
"""Default age at which an incomplete batch is sent, seconds.

A longer age costs crawls, because a host may wait for the report before its next crawl."""

log = logging.getLogger(__name__)


def log_rejection(item: Struct, rejection: Rejection) -> None:
    """Log an item that the service rejects."""
    log.error("rejected: %s (%s): %s", item, rejection.field, rejection.detail)


class Buffer(Generic[T, C]):
    """Waiting items, oldest first, and the counts of the others.

    Each item is sent until the service answers; an item that arrives twice counts once. A batch
    is sent when the batch has `size` items or the age `every_s`, or after `flush`. While the
    service is away, items wait; there are at most as many as leased crawls. `on_rejected` receives
    each item that the service rejects.
    """

    def __init__(
        self, nothing: C, size: int, every_s: float, on_rejected: Callable[[T, Rejection], None]
    ) -> None:
        self.size, self.every_s = size, every_s
        self.on_rejected = on_rejected
        self.total = nothing
        self._waiting: list[T] = []
        self._n_sending = self._n_carried = 0
        self._since = 0.0
        self._flushing = False
        self._problem: Exception | None = None
        self._closing = self._ended = False

    @property
    def n_waiting(self) -> int:
        """Number of items without an answer of the service."""
        return len(self._waiting) + self._n_carried

    def _put(self, item: T) -> None:
        if self._problem is not None:
            raise self._problem
        if self._ended:
            raise RuntimeError("the batches have ended and send nothing more; open new ones")
        if not self._waiting:
            self._since = time.monotonic()
        self._waiting.append(item)

    def _due_in_s(self) -> float | None:
        """Return the time until the next batch, seconds; None without items."""
        if self._closing and not self._waiting and self._n_carried:
            return None
        if self._closing or len(self._waiting) >= self.size or (self._flushing and self._waiting):
            return 0.0
        return max(self._since + self.every_s - time.monotonic(), 0.0) if self._waiting else None

    def _batch(self) -> list[T]:
        self._flushing = False
        batch = self._waiting[: self.size]
        self._n_sending = len(batch)
        self._ended = not batch
        return batch

    def _sent(self, n_items: int) -> None:
        """Remove items with an answer from the front; the other items wait for the next batch."""
        del self._waiting[:n_items]
        self._n_sending = 0
        self._since = time.monotonic()

    def _carry(self) -> list[T]:
        """Remove and return items for another request, except those that are being sent."""
        carried = self._waiting[self._n_sending :][: self.size]
        del self._waiting[self._n_sending : self._n_sending + len(carried)]
        self._n_carried += len(carried)
        return carried

    def _put_back(self, carried: list[T], n_left: int) -> None:
        """End a request with carried items; the first `n_left` items wait again."""
        self._n_carried -= len(carried)
        self._waiting[self._n_sending : self._n_sending] = carried[:n_left]

    def _settle(self, batch: list[T], answer: C) -> None:
        self._count(answer)
        for rejection in answer.rejected:
            self.on_rejected(batch[rejection.index], rejection)

    def _count(self, answer: C) -> None:
        self.total = added(self.total, without_lists(answer))

    def _postpone(self, error: Unavailable, *, last_try: bool) -> None:
        """Log that items wait; raise the error after the last try."""
        if last_try:
            raise error
        n = len(self._waiting)
        log.warning("%s: %s", "1 item waits" if n == 1 else f"{n} items wait", error)

    def _raise_undelivered(self) -> None:
        if self._problem is not None:
            raise Undelivered(self._waiting, self._problem) from self._problem


class Batches(Buffer[T, C]):
    """A buffer that a thread sends in the order of its items.

    See `Buffer` for the times of sending. The end of the context sends the remaining items. When
    the service stays away for the client's `patience_s`, the end raises `Undelivered` with these
    items.
    """

    def __init__(
        self,
        send: Callable[[list[T]], C],
        nothing: C,
        *,
        size: int = BATCH_SIZE,
        every_s: float = EVERY_S,
        on_rejected: Callable[[T, Rejection], None] = log_rejection,
    ) -> None:
        super().__init__(nothing, size, every_s, on_rejected)
        self.send = send
        self._change = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="recrawl-batches", daemon=True)

    def __enter__(self) -> Self:
        """Start sending."""
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Send the rest; raise `Undelivered`."""
        self.close()

    def add(self, item: T) -> None:
        """Add one item; raise the error that has ended the thread, RuntimeError after the end.

        Raise TypeError or ValueError for an item that cannot be written as JSON, because its
        whole batch would fail.
        """
        json.encode(item)
        with self._change:
            self._put(item)
            self._change.notify()

    def flush(self) -> None:
        """Send what waits at once, as when no more items are to come soon."""
        with self._change:
            self._flushing = True
            self._change.notify()

    def close(self) -> None:
        """Send the rest and end; raise `Undelivered`."""
        with self._change:
            self._closing = True
            self._change.notify()
        self._thread.join()
        self._raise_undelivered()

    def _count(self, answer: C) -> None:
        with self._change:  # several threads may lease by one reporter
            super()._count(answer)

    def _run(self) -> None:
        try:
            while batch := self._next():
                self._deliver(batch)
        except Exception as error:  # noqa: BLE001 - raised by the next `add`, and by `close`
            self._problem = error

    def _next(self) -> list[T]:
        """Return the next batch that is full or old enough; empty at the end."""
        with self._change:
            while (left_s := self._due_in_s()) != 0.0:
                self._change.wait(left_s)
            return self._batch()

    def _deliver(self, batch: list[T]) -> None:
        last_try = self._closing
        try:
            answer = self.send(batch)
        except Unavailable as error:
            self._postpone(error, last_try=last_try)
            with self._change:
                self._sent(0)
        else:
            with self._change:
                self._sent(len(batch))
            self._settle(batch, answer)

    @contextmanager
    def carried(self) -> Iterator[list[T]]:
        """Yield waiting items for another request; after an exception they wait again."""
        with self._change:
            items = self._carry()
        n_left = len(items)
        try:
            yield items
            n_left = 0
        finally:
            with self._change:
                self._put_back(items, n_left)
                self._change.notify()


class AsyncBatches(Buffer[T, C]):
    """A buffer that a task sends in the order of its items; everything else is as in `Batches`."""

    def __init__(
        self,
        send: Callable[[list[T]], Awaitable[C]],
        nothing: C,
        *,
        size: int = BATCH_SIZE,
        every_s: float = EVERY_S,
        on_rejected: Callable[[T, Rejection], None] = log_rejection,
    ) -> None:
        super().__init__(nothing, size, every_s, on_rejected)
        self.send = send
        self._change = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Start sending."""
        self._task = asyncio.create_task(self._run(), name="recrawl-batches")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Send the rest; raise `Undelivered`."""
        await self.close()

    def add(self, item: T) -> None:
        """Add one item; raise as `Batches.add`."""
        json.encode(item)
        self._put(item)
        self._change.set()

    def flush(self) -> None:
        """Send what waits at once, as when no more items are to come soon."""
        self._flushing = True
        self._change.set()

    async def close(self) -> None:
        """Send the rest and end; raise `Undelivered`."""
        self._closing = True
        self._change.set()
        if self._task is not None:
            await self._task
        self._raise_undelivered()

    async def _run(self) -> None:
        try:
            while batch := await self._next():
                await self._deliver(batch)
        except Exception as error:  # noqa: BLE001 - raised by the next `add`, and by `close`
            self._problem = error

    async def _next(self) -> list[T]:
        """Return the next batch that is full or old enough; empty at the end."""
        while (left_s := self._due_in_s()) != 0.0:
            self._change.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self._change.wait()
        return self._batch()

    async def _deliver(self, batch: list[T]) -> None:
        last_try = self._closing
        try:
            answer = await self.send(batch)
        except Unavailable as error:
            self._postpone(error, last_try=last_try)
            self._sent(0)
        else:
            self._sent(len(batch))
            self._settle(batch, answer)

    @contextmanager
    def carried(self) -> Iterator[list[T]]:
        """Yield waiting items for another request; after an exception they wait again."""
        items = self._carry()
        n_left = len(items)
        try:
            yield items
            n_left = 0
        finally:
            self._put_back(items, n_left)
            self._change.set()


def without_lists(answer: C) -> C:
    """Return an answer without its lists, so that the size of a total stays constant."""
    lists: dict[str, Any] = {name: [] for name in LISTS.intersection(answer.__struct_fields__)}
    return structs.replace(answer, **lists)
