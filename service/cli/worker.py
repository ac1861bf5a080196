"""`recrawl worker`: epochs without HTTP."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from service.cli.options import DatabaseUrl, settings

LOOK_S = 1.0
"""Time between two looks of a worker at the thread of its rounds, seconds."""
GRACE_S, ABORTED_S = 5.0, 3.0
"""Time for a worker to end its round, and then to notice that it failed, seconds."""


def worker(database_url: DatabaseUrl = None) -> None:
    """Run epochs: by the clock, and when POST /epochs asks for one.

    Any number of workers may run; one leads at a time, another takes over when it dies. SIGTERM
    ends an epoch that takes more than 5 s; the next worker starts it over.
    """
    from service.runtime.bootstrap import joined, opened
    from service.runtime.logs import configure_logging

    chosen = settings(database_url)
    configure_logging(chosen.log_level)
    base = opened(chosen)
    stopping = threading.Event()
    rounds = threading.Thread(target=base.runner.run_every, name="epochs", daemon=True)
    with closing(base.store), stopped_by_signals(stopping.set):
        rounds.start()
        while rounds.is_alive() and not stopping.wait(LOOK_S):
            pass
        base.runner.stop()
        if not joined([rounds], GRACE_S):
            base.store.abort()
            joined([rounds], ABORTED_S)


@contextmanager
def stopped_by_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` in a thread at SIGTERM and SIGINT, so that a loop ends after its round."""

    def handle(_signal: int, _frame: object) -> None:
        threading.Thread(target=stop).start()

    previous = {s: signal.signal(s, handle) for s in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for signum, handler in previous.items():
            signal.signal(signum, handler)
