"""Watch the feed for readers who wait, and end sessions that hold up its commits."""

import time
from functools import cached_property

import structlog
from typing_extensions import override

from service.events.reading import feed_id
from service.storage import Store
from service.storage.stores.newest import NewestWatch

UNBLOCK_EVERY_S = 1.0
"""Time between two searches for a session that holds up commits, seconds."""

log = structlog.get_logger()


class FeedWatch(NewestWatch):
    """The newest number of the feed, which is read while a reader waits."""

    every_s = 0.1

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._unblocked_at = time.monotonic()

    @cached_property
    def feed_id(self) -> str:
        """Id of the database's feed."""
        return feed_id(self.store)

    @override
    def poll(self) -> None:
        if self.n_waiting:
            with self.store.begin(write=False) as tx:
                self.note_newest(tx.newest_change())
        self.unblock()

    def unblock(self) -> None:
        """End a session that holds up commits (`Transaction.end_stuck_commit`), once a second."""
        if self.store.embedded or time.monotonic() - self._unblocked_at < UNBLOCK_EVERY_S:
            return
        self._unblocked_at = time.monotonic()
        with self.store.begin(write=False) as tx:
            if tx.end_stuck_commit():
                log.warning("a session that held up the feed of changes was ended")
