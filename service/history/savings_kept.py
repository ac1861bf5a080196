"""Savings that several readers ask for: computed once, one window at a time, and kept."""

import threading
from collections.abc import Callable
from datetime import datetime, timedelta

import numpy as np

from service.estimation.rules import InForce
from service.history.savings import Savings, read_savings
from service.history.uniform import NO_MEANS, Means
from service.storage import Store

SEED = 1
KEPT = timedelta(minutes=10)
"""Time for which an answer is given again."""
MOST_KEPT = 8
"""Maximum number of windows whose answers are kept."""


class SavingsReader:
    """The savings of windows, one computed at a time and kept for a while."""

    def __init__(
        self,
        store: Store,
        rules: InForce,
        now: Callable[[], datetime],
        means: Callable[[], Means] = lambda: NO_MEANS,
    ) -> None:
        self.store = store
        self.rules = rules
        self.now = now
        self.means = means
        self._kept: dict[int, Savings] = {}
        self._lock = threading.Lock()

    def forget(self) -> None:
        """Forget what was kept, because the database was restored."""
        self._kept = {}  # without the lock, which a long computation holds

    def ask(self, since: datetime) -> Savings:
        """Return the savings since an instant, at most `KEPT` old."""
        with self._lock:
            now = self.now()
            key = round((now - since) / timedelta(minutes=1))
            kept = self._kept.get(key)
            if kept is not None and now - kept.at < KEPT:
                return kept
            rng = np.random.default_rng(SEED)
            fresh = read_savings(self.store, self.rules, since, now, rng, means=self.means())
            while len(self._kept) >= MOST_KEPT:
                del self._kept[next(iter(self._kept))]
            self._kept.pop(key, None)
            self._kept[key] = fresh
            return fresh
