"""Keep the archive and epochs waiting while a logical shard moves."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

from recrawl_cluster.store.database import ShardDatabase
from service.model.errors import ArchiveRunning, EpochRunning, RecrawlError

PATIENCE_S = 1800.0
"""Maximum wait for an epoch or for the archive, seconds."""
PAUSE_S = 0.2
"""Time between two attempts, seconds."""
Wait = Callable[[float], None]


@contextmanager
def archive_kept_out(databases: Iterable[ShardDatabase], wait: Wait) -> Iterator[None]:
    """Keep the archive from dropping entries of the databases; raise `ArchiveRunning`."""
    with ExitStack() as stack:
        for database in sorted(set(databases), key=lambda each: each.position):
            _patiently(stack, database.archiving, ArchiveRunning, wait)
        yield


@contextmanager
def epochs_kept_out(
    coordinator: ShardDatabase, databases: Iterable[ShardDatabase], wait: Wait
) -> Iterator[None]:
    """Take the lead of epochs, the coordinator's first; raise `EpochRunning`."""
    with ExitStack() as stack:
        for database in sorted(
            {coordinator, *databases}, key=lambda each: (each is not coordinator, each.position)
        ):
            _patiently(stack, database.lead, EpochRunning, wait)
        yield


def _patiently(
    stack: ExitStack,
    enter: Callable[[], AbstractContextManager[object]],
    busy: type[RecrawlError],
    wait: Wait,
) -> None:
    """Enter a context as soon as nobody else holds it; raise `busy` after `PATIENCE_S`."""
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            stack.enter_context(enter())
        except busy:
            if time.monotonic() > until:
                raise
            wait(PAUSE_S)
        else:
            return
