"""Items in batches, sent from a thread of their own, that outlast a service that is away."""

import logging
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from msgspec import Struct, json, structs

from recrawl_client.errors import Unavailable, Undelivered
from recrawl_client.values import Counts, Rejection

T = TypeVar("T", bound=Struct)
C = TypeVar("C", bound=Counts)

log = logging.getLogger(__name__)


def tell(item: Struct, rejection: Rejection) -> None:
    """Log an item that the service will never take."""
    log.error("rejected: %s (%s): %s", item, rejection.field, rejection.detail)


class Batches(Generic[T, C]):
    """Takes items at once and sends them soon, in the order in which they came.

    Each is sent until the service has answered for it: what arrives twice counts once. A batch
    goes out when it has `size` items or its first is `every_s` old. It grows while the service
    is away, by no more than the crawls that are leased. `on_rejected` is told of each item that
    can never be taken. Leaving the context sends the rest and raises `Undelivered`, which holds
    it, when the service stays away for the client's patience.
    """

    def __init__(
        self,
        send: Callable[[list[T]], C],
        nothing: C,
        *,
        size: int = 200,
        every_s: float = 1.0,
        on_rejected: Callable[[T, Rejection], None] = tell,
    ) -> None:
        self.send = send
        self.size, self.every_s = size, every_s
        self.on_rejected = on_rejected
        self.total = nothing
        self._waiting: list[T] = []
        self._since = 0.0
        self._problem: Exception | None = None
        self._closing = False
        self._news = threading.Condition()
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

        One that cannot be written as JSON raises here (TypeError, ValueError): it would take the
        others of its batch with it.
        """
        json.encode(item)
        with self._news:
            if self._problem is not None:
                raise self._problem
            if not self._waiting:
                self._since = time.monotonic()
            self._waiting.append(item)
            self._news.notify()

    def close(self) -> None:
        """Send what is left and end; raises `Undelivered`."""
        with self._news:
            self._closing = True
            self._news.notify()
        self._thread.join()
        if self._problem is not None:
            raise Undelivered(self._waiting, self._problem) from self._problem

    def _run(self) -> None:
        try:
            while batch := self._next():
                self._send(batch)
        except Exception as error:  # noqa: BLE001 - told by the next item, and by close
            self._problem = error

    def _next(self) -> list[T]:
        """Wait for a batch that is full or old enough; without items: it is over."""
        with self._news:
            while not self._closing and len(self._waiting) < self.size:
                left_s = self._since + self.every_s - time.monotonic() if self._waiting else None
                if left_s is not None and left_s <= 0:
                    break
                self._news.wait(left_s)
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
        with self._news:
            del self._waiting[: len(batch)]
        told: dict[str, Any] = structs.asdict(answer)
        sums = {n: getattr(self.total, n) + v for n, v in told.items() if isinstance(v, int)}
        self.total = structs.replace(self.total, **sums)
        for rejection in answer.rejected:
            self.on_rejected(batch[rejection.index], rejection)
