"""Which IndexNow keys their sites have shown; looked at beside the requests, and remembered."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime, timedelta

from service.errors import Overloaded
from service.sources.indexnow import Submission, shows_key

N_FETCHERS = 4
MAX_PENDING = 1_000
MAX_KNOWN = 100_000
TRUE_FOR, FALSE_FOR = timedelta(days=1), timedelta(minutes=5)
"""How long what was found is believed."""


class KeyChecks:
    """Verdicts by key and place, each looked at by one thread at a time.

    Threads start with the first question.
    """

    def __init__(
        self, now: Callable[[], datetime], look: Callable[[Submission], bool] = shows_key
    ) -> None:
        self.now = now
        self.look = look
        self._fetchers = ThreadPoolExecutor(N_FETCHERS, thread_name_prefix="indexnow")
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str], tuple[bool, datetime]] = {}
        self._pending: dict[tuple[str, str], Future[bool]] = {}
        self._n_waiting = 0

    def ask(self, asked: Submission, then: Callable[[], object]) -> bool | None:
        """Tell whether the site shows the key; None if that is being found out.

        `then` is called once it has been found so. Raises `Overloaded` when too many wait.
        """
        of = asked.key, asked.key_location
        with self._lock:
            verdict, until = self._known.get(of, (False, self.now()))
            if self.now() < until:
                return verdict
            if self._n_waiting >= MAX_PENDING:
                raise Overloaded("too many keys wait to be checked; try again later")
            self._n_waiting += 1
            if (looking := self._pending.get(of)) is None:
                looking = self._pending[of] = self._fetchers.submit(self._look, asked)
        looking.add_done_callback(lambda done: self._settle(done, then))
        return None

    def stop(self) -> None:
        """Look at nothing more; what waits is forgotten."""
        self._fetchers.shutdown(cancel_futures=True)

    def _look(self, asked: Submission) -> bool:
        of = asked.key, asked.key_location
        verdict = False
        try:
            verdict = self.look(asked)
        finally:
            with self._lock:
                while len(self._known) >= MAX_KNOWN:
                    self._known.pop(next(iter(self._known)))
                self._known.pop(of, None)
                self._known[of] = verdict, self.now() + (TRUE_FOR if verdict else FALSE_FOR)
                self._pending.pop(of)
        return verdict

    def _settle(self, done: Future[bool], then: Callable[[], object]) -> None:
        with self._lock:
            self._n_waiting -= 1
        if not done.cancelled() and done.exception() is None and done.result():
            then()
