"""Watch the feed for readers who wait, and end sessions that hold up its commits."""

import time

import structlog
from typing_extensions import override

from service.events.reading import feed_id
from service.storage import Store
from service.storage.stores.newest import NewestWatch

UNBLOCK_EVERY_S = 1.0
"""Time between two searches for a session that holds up commits, seconds."""

log = structlog.get_logger()


class FeedWatch(NewestWatch):
    """The newest number of the feed, read at each look while a reader waits.

    Commits do not ring for readers: each ring would wake a session and a thread of each process.
    """

    every_s = 0.1

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._unblocked_at = time.monotonic()
        self._feed_id = ""

    @property
    def feed_id(self) -> str:
        """Id of the database's feed, read once."""
        self._feed_id = self._feed_id or feed_id(self.store)
        return self._feed_id

    def forget(self) -> None:
        """Forget the newest number and the id, because the database was restored."""
        with self.turn:
            self.newest, self._feed_id = 0, ""

    @override
    def look(self) -> None:
        if self.n_waiting:
            self.poll()
        self.unblock()

    @override
    def poll(self) -> None:
        with self.store.begin(write=False) as tx:
            self.note_newest(tx.newest_change())

    def unblock(self) -> None:
        """End a session that holds up commits (`Transaction.end_stuck_commit`), once a second.

        Without a long transaction of this process, no commit of this process waits.
        """
        if time.monotonic() - self._unblocked_at < UNBLOCK_EVERY_S or not self.store.writes_long():
            return
        self._unblocked_at = time.monotonic()
        with self.store.begin(write=False) as tx:
            if tx.end_stuck_commit():
                log.warning("a session that held up the feed of changes was ended")
