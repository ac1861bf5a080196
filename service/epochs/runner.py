"""Run epochs whenever one is due, and keep the queue of due pages filled."""

import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta

import structlog

from service.epochs.plan import Plan
from service.epochs.run import TROUBLE, run_epoch
from service.leases import lease
from service.leases.politeness import Politeness
from service.leases.redating import redate
from service.model.domain import Epoch, EpochStatus
from service.model.errors import EpochRunning
from service.storage import Store
from service.storage.clock import SET_BACK, Clock

FILL_EVERY = timedelta(hours=1)
"""Maximum time between two fills of the queue, however long the interval of epochs is."""

POLITE = Politeness()

log = structlog.get_logger()


class Runner:
    """Run an epoch when the interval has passed, on request, or after a run that died.

    Any number of runners may share a store. One of them leads at a time; the others find
    nothing due. `stop` ends `run_every` after the round in progress.
    """

    POLL_S = 1.0

    def __init__(
        self,
        store: Store,
        plan: Plan,
        interval: timedelta,
        now: Clock,
        polite: Politeness = POLITE,
    ) -> None:
        self.store = store
        self.plan = plan
        self.interval = interval
        self.now = now
        self.polite = polite
        self._latest = now()
        self._wake = threading.Event()
        self._stopped = threading.Event()

    def wake(self) -> None:
        """Check at once whether an epoch is due."""
        self._wake.set()

    def stop(self) -> None:
        """End `run_every`."""
        self._stopped.set()
        self._wake.set()

    def due(self) -> bool:
        """Return whether an epoch should start now."""
        with self.store.begin(write=False) as tx:
            newest = tx.newest_epoch()
            if newest is None:
                return len(tx.next_page_ids(0, 1)) > 0
        if newest.started_at is None or newest.status is EpochStatus.running:
            return True
        # abs: a clock that was set back would otherwise stop epochs until it has caught up
        return abs(self.now() - newest.started_at) >= self.interval

    def run_once(self) -> Epoch | None:
        """Run an epoch if one is due and no other runner runs it; then queue the pages due soon."""
        epoch = None
        self.store.keep_time()
        with suppress(EpochRunning):
            epoch = run_epoch(self.store, self.plan, self.now) if self.due() else None
            self.fill_queue()
        return epoch

    @property
    def ahead(self) -> timedelta:
        """Time ahead for which pages are queued: one round may fail without a gap."""
        return 2 * min(self.interval, FILL_EVERY)

    def fill_queue(self) -> None:
        """Queue the pages due soon after every new schedule, and in time; one process at a time."""
        if not self.store.has_queue:
            return
        with self.store.begin(write=False) as tx:
            mark, in_force = tx.filled(), tx.number_in_force()
        now = self.now()
        in_time = now + self.ahead / 2 < mark.until <= now + self.ahead
        set_back = mark.until > now + self.ahead or now < self._latest - SET_BACK
        if mark.epoch != in_force or not in_time or set_back:
            with self.store.lead():
                if set_back:
                    log.warning("the clock was set back; what is dated later is dated now")
                    redate(self.store, self.polite, self.now)
                lease.fill(self.store, now + self.ahead, self._stopped.is_set)
        self._latest = now

    def run_every(
        self, loops: int | None = None, after_each: Callable[[], None] = lambda: None
    ) -> None:
        """Run `run_once` until stopped, or `loops` times; log what it raises and go on.

        `after_each` is called after every epoch that ran here.
        """
        done = 0
        while not self._stopped.is_set() and done != loops:
            started = self.now()
            try:
                if self.run_once() is not None:
                    after_each()
            except TROUBLE as error:
                cause = repr(error.__cause__)
                log.warning(
                    "the round failed; the next one tries again", reason=str(error), cause=cause
                )
            except Exception:
                log.exception("the round failed; the next one tries again")
            if (took := self.now() - started) > self.interval:
                log.warning("an epoch outlasts its interval", took_s=took.total_seconds())
            self._wake.wait(self.POLL_S)
            self._wake.clear()
            done += 1
