"""Pages that are registered at the same moment share one commit.

A request hands its pages over and waits for a turn. Who has the turn registers, besides its own,
whatever waits by then, in one transaction; the others find theirs done. New pages fall all over
the index of keys: four requests written together cost little more than one.

**Answered means committed**, as in `service.commits`; and one's trouble is one's own: what fails
for another reason than the database is registered again request by request, and so are requests
that bring a page in common, in the order in which they came.
"""

import threading
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import datetime
from itertools import accumulate, pairwise

import numpy as np

from service.columns import PageColumns
from service.crawls import Desk
from service.errors import OUTAGES
from service.storage import QueueStore, Registered

MOST_TOGETHER = 50_000
"""Pages that are written in one commit, unless one request brings more."""


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """The pages of one request, each distinct."""

    pages: PageColumns
    now: datetime
    done: Future[Registered] = field(default_factory=Future)


class Registering:
    """The requests that wait, and the turns to write them: so many at a time."""

    def __init__(self, store: QueueStore, desk: Desk, n_writers: int = 1) -> None:
        self.store = store
        self.desk = desk
        self._waiting: deque[Request] = deque()
        self._taking = threading.Lock()
        self._turns = threading.Semaphore(n_writers)

    def register(self, pages: PageColumns, now: datetime) -> Registered:
        """Register distinct pages and queue the new ones; raises what the store does."""
        mine = Request(pages, now)
        self._waiting.append(mine)
        with self._turns:
            while requests := self._take(mine):
                self._settle(requests)
        return mine.done.result()

    def _take(self, mine: Request) -> list[Request]:
        """Take who waits, the oldest first; nobody where the one who asks has been taken."""
        taken: list[Request] = []
        n_pages = 0
        with self._taking:
            if mine not in self._waiting:
                return taken
            while self._waiting and (
                not taken or n_pages + len(self._waiting[0].pages) <= MOST_TOGETHER
            ):
                taken.append(self._waiting.popleft())
                n_pages += len(taken[-1].pages)
        return taken

    def _settle(self, requests: list[Request]) -> None:
        """Commit the requests together, or those alone that cannot be."""
        alone, done = len(requests) == 1, None
        try:
            pages = PageColumns.concatenate([request.pages for request in requests])
            if alone or len(np.unique(pages.key)) == len(pages):
                done = self._commit(requests, pages)
        except Exception as error:  # noqa: BLE001 - whatever it is, who asked is told
            if alone or isinstance(error, OUTAGES):
                for request in requests:
                    request.done.set_exception(error)
                return
        if done is None:
            for request in requests:
                self._settle([request])
            return
        for request, registered in zip(requests, done, strict=True):
            request.done.set_result(registered)

    def _commit(self, requests: list[Request], pages: PageColumns) -> list[Registered]:
        """Register the pages of all in one transaction."""
        now = max(request.now for request in requests)
        with self.store.begin() as tx:
            page_id, created = tx.register(pages, now)
            self.desk.hear_pings(tx, page_id[created], now)
        ends = accumulate(len(request.pages) for request in requests)
        return [Registered(page_id[a:b], created[a:b]) for a, b in pairwise([0, *ends])]
