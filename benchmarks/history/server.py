"""`python -m benchmarks.history.server`: the service, which measures the history's CPU time."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from typing_extensions import override

from benchmarks.history.counters import Counters, session_s
from service.cli import main
from service.history import counting
from service.runtime import bootstrap
from service.storage import Store
from service.storage.history import Counted, HistoryStatements

counters = Counters.of_environment()
lock = threading.Lock()
in_thread = threading.local()
"""CPU seconds of `tx.count` since this thread's last commit, as `count`."""


class MeasuredCounter(counting.HistoryCounter):
    """A counter that measures its own CPU time."""

    def __init__(self, store: Store) -> None:
        super().__init__(MeasuredStore(store))  # type: ignore[arg-type]

    @override
    def add(self, counted: list[Counted]) -> None:
        began = time.thread_time()
        super().add(counted)
        spent = time.thread_time() - began + getattr(in_thread, "count", 0.0)
        in_thread.count = 0.0
        if counted:
            with lock:
                counters.add("commit", spent)
                counters.add("commits", 1)

    @override
    def _write_later(self) -> None:
        super()._write_later()
        with lock:
            counters.add("write", time.thread_time())  # a thread writes once, and ends


class MeasuredStore:
    """A store whose transactions add the CPU time of their database sessions."""

    def __init__(self, store: Store) -> None:
        self.store = store

    @contextmanager
    def begin(self, *, write: bool = True) -> Iterator[Any]:
        """Begin a transaction of the store."""
        with self.store.begin(write=write) as tx:
            pid = 0 if self.store.embedded else tx.statements.driver.info.backend_pid  # type: ignore[attr-defined]
            before = session_s(pid) if pid else 0.0
            yield tx
        if pid:
            counters.add("backend", session_s(pid) - before)


def measured_count(tx: HistoryStatements, events: Any) -> None:
    """Count events unless counting is off, and measure the CPU time."""
    if counters.off:
        return
    began = time.thread_time()
    unmeasured_count(tx, events)
    in_thread.count = getattr(in_thread, "count", 0.0) + time.thread_time() - began


if __name__ == "__main__":
    unmeasured_count = HistoryStatements.count
    HistoryStatements.count = measured_count  # type: ignore[assignment, method-assign]
    bootstrap.HistoryCounter = MeasuredCounter  # type: ignore[attr-defined]
    main()
