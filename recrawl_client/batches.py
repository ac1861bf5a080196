"""Items in batches, sent from a thread of their own, that outlast a service that is away."""

import logging
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from msgspec import Struct, json, structs

from recrawl_client.errors import Unavailable, Undelivered
from recrawl_client.wire.common import LISTS, Counts, Rejection, added

T = TypeVar("T", bound=Struct)
C = TypeVar("C", bound=Counts)

log = logging.getLogger(__name__)


def log_rejection(item: Struct, rejection: Rejection) -> None:
    """Log an item that the service will never take."""
    log.error("rejected: %s (%s): %s", item, rejection.field, rejection.detail)


class Batches(Generic[T, C]):
    """Takes items at once and sends them soon, in the order in which they came.

    Each item is sent until the service has answered for it: what arrives twice counts once. A
    batch is sent when it has `size` items or its first item is `every_s` old. While the service
    is away, items wait, as many as there are leased crawls. `on_rejected` receives each item that
    the service will never take. Leaving the context sends the rest. It raises `Undelivered`, which
    holds the rest, when the service stays away for the client's patience.
    """

    def __init__(
        self,
        send: Callable[[list[T]], C],
        nothing: C,
        *,
        size: int = 200,
        every_s: float = 1.0,
        on_rejected: Callable[[T, Rejection], None] = log_rejection,
    ) -> None:
        self.send = send
        self.size, self.every_s = size, every_s
        self.on_rejected = on_rejected
        self.total = nothing
        self._waiting: list[T] = []
        self._since = 0.0
        self._problem: Exception | None = None
        self._closing = False
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
        """Send what is left; raises `Undelivered`."""
        self.close()

    @property
    def n_waiting(self) -> int:
        """Items that the service has not answered for."""
        return len(self._waiting)

    def add(self, item: T) -> None:
        """Take one item; raises what has ended the sending.

        Raises TypeError or ValueError for an item that cannot be written as JSON, because it
        would take the others of its batch with it.
        """
        json.encode(item)
        with self._change:
            if self._problem is not None:
                raise self._problem
            if not self._waiting:
                self._since = time.monotonic()
            self._waiting.append(item)
            self._change.notify()

    def close(self) -> None:
        """Send what is left and end; raises `Undelivered`."""
        with self._change:
            self._closing = True
            self._change.notify()
        self._thread.join()
        if self._problem is not None:
            raise Undelivered(self._waiting, self._problem) from self._problem

    def _run(self) -> None:
        try:
            while batch := self._next():
                self._send(batch)
        except Exception as error:  # noqa: BLE001 - raised by the next `add`, and by `close`
            self._problem = error

    def _next(self) -> list[T]:
        """Return the next batch that is full or old enough; empty at the end."""
        with self._change:
            while not self._closing and len(self._waiting) < self.size:
                left_s = self._since + self.every_s - time.monotonic() if self._waiting else None
                if left_s is not None and left_s <= 0:
                    break
                self._change.wait(left_s)
            return self._waiting[: self.size]

    def _send(self, batch: list[T]) -> None:
        last_try = self._closing
        try:
            answer = self.send(batch)
        except Unavailable as error:
            if last_try:
                raise
            log.warning("%d items wait: %s", len(self._waiting), error)
        else:
            self._settle(batch, answer)

    def _settle(self, batch: list[T], answer: C) -> None:
        with self._change:
            del self._waiting[: len(batch)]
        self.total = added(self.total, without_lists(answer))
        for rejection in answer.rejected:
            self.on_rejected(batch[rejection.index], rejection)


def without_lists(answer: C) -> C:
    """Return the counts of an answer alone, so that a total does not grow with the items."""
    lists: dict[str, Any] = {name: [] for name in LISTS.intersection(answer.__struct_fields__)}
    return structs.replace(answer, **lists)
