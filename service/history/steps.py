"""Rows of the history: parts of commits are merged, and become rows when their step has ended.

The process that runs epochs does this, under the lead. A part that was committed late is added to
its step by the next round.
"""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import numpy as np

from service.core.estimators.base import Estimator
from service.history.gauges import measure
from service.model.arrays import Ints
from service.model.domain import Epoch
from service.model.history import ALL_HOSTS, STEP, Gauges, StepSums, Tally, merged_parts, step_of
from service.storage import Store, Transaction
from service.storage.clock import Clock

MERGE_EVERY = timedelta(seconds=15)
"""Time between two rounds of merging."""
MANY_PARTS = 1_000
"""Number of parts above which they are merged before their step ends."""
MOST_TAKEN = 5_000
"""Maximum number of parts that one transaction merges."""
FEW_PAGES = 100_000
"""Maximum page_ids of a corpus whose loads are measured after each epoch, beside each step."""
LOADS_KEPT = timedelta(hours=1)
"""Time for which a measurement of loads is kept, and with it the cursors through its order."""
MOST_EPOCHS = 200
"""Maximum number of epochs among which a step looks for its own."""
NO_HOSTS = np.zeros(0, np.int64)


class HistoryKeeper:
    """Keeps the history of a store; one process at a time calls `keep`."""

    def __init__(
        self, store: Store, estimator: Estimator[Any], retention: timedelta | None, now: Clock
    ) -> None:
        self.store = store
        self.estimator = estimator
        self.retention = retention
        self.now = now
        self._kept_at: datetime | None = None
        """Time of the last round."""
        self._measured_epoch = 0
        """Epoch in force when loads were measured last."""

    def due(self) -> bool:
        """Return whether a step has ended since the last round, or parts may have to be merged."""
        now, last = self.now(), self._kept_at
        return last is None or abs(now - last) >= MERGE_EVERY or step_of(now) != step_of(last)

    def keep(self) -> None:
        """Merge parts; write the rows of steps that have ended, and of their late parts."""
        self.store.counter.write()
        now = self.now()
        begin = step_of(now)
        with self.store.begin(write=False) as tx:
            late = tx.n_parts(begin) > 0
        if late or self._kept_at is None or step_of(self._kept_at) != begin:
            self._merge(begin, fewest=1)
            self._write_rows(begin)
        if self._few_pages_were_scheduled():
            self._measure(NO_HOSTS)
        self._merge(begin + STEP, fewest=MANY_PARTS)
        self._kept_at = now

    def _merge(self, before: datetime, fewest: int) -> None:
        """Merge the parts of steps before an instant until there are few, or one for each key."""
        while True:
            with self.store.begin() as tx:
                if tx.n_parts(before) <= fewest:
                    return
                taken = tx.take_parts(before, MOST_TAKEN)
                parts = merged_parts(taken)
                for part in parts:
                    tx.add_part(part)
            if len(parts) == len(taken):
                return

    def _write_rows(self, begin: datetime) -> None:
        """Write the rows of the steps that ended before `begin`, with gauges of the last one."""
        last = begin - STEP
        with self.store.begin(write=False) as tx:
            newest = tx.newest_measured()
            busiest = _hosts(tx.parts_from(last, MOST_TAKEN), last)
        gauges: dict[int, Gauges] = {}
        # gauges are of the present, so only the step that has just ended gets some
        if newest is None or newest.at < last:
            gauges = self._measure(busiest)
        with self.store.begin() as tx:
            self._write(tx, begin, last, gauges)
            if self.retention is not None:
                tx.cut_history(self.now() - self.retention)

    def _measure(self, busiest: Ints) -> dict[int, Gauges]:
        """Save the loads of all hosts, and return the gauges of all pages and of busy hosts."""
        gauges, loads = measure(self.store, self.estimator, busiest, self.now)
        with self.store.begin() as tx:
            self._measured_epoch = tx.number_in_force()
            tx.save_host_loads(loads, self.now() - LOADS_KEPT)
        return gauges

    def _few_pages_were_scheduled(self) -> bool:
        with self.store.begin(write=False) as tx:
            is_new = tx.number_in_force() != self._measured_epoch
            return is_new and tx.page_ranges().size <= FEW_PAGES

    def _write(
        self, tx: Transaction, begin: datetime, last: datetime, gauges: dict[int, Gauges]
    ) -> None:
        by_step: dict[datetime, list[StepSums]] = defaultdict(list)
        for part in merged_parts(tx.take_parts(begin, MOST_TAKEN)):
            by_step[part.at].append(part)
            tx.add_calibrations(part.at, part.epoch, part.tally.calibrations)
        # a step without parts has a row too, with its gauges
        by_step[last] += []
        epochs = [each for each in tx.epochs(None, MOST_EPOCHS) if each.certificate is not None]
        for at, parts in sorted(by_step.items()):
            epoch = in_force_at(epochs, at + STEP)
            tally = Tally.merged(part.tally for part in parts)
            own = gauges if at == last else {}
            tx.add_to_step(ALL_HOSTS, at, epoch, tally, own.get(ALL_HOSTS))
            hosts = tally.busiest()
            for row, host_id in enumerate(hosts.host_id.tolist()):
                one = Tally(hosts.host_id[row : row + 1], hosts.counts[row : row + 1])
                tx.add_to_step(host_id, at, epoch, one, own.get(host_id))


def in_force_at(epochs: Sequence[Epoch], at: datetime) -> int | None:
    """Return the number of the epoch, of some with the newest first, that was in force at an end.

    None: none was in force, or it is older than these.
    """
    numbers = (each.epoch for each in epochs if each.finished_at and each.finished_at < at)
    return next(numbers, None)


def _hosts(parts: list[StepSums], at: datetime) -> Ints:
    """Return the busiest hosts of a step, ascending."""
    tally = Tally.merged(part.tally for part in parts if part.at == at)
    return np.asarray(tally.busiest().host_id, np.int64)
