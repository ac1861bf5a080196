"""Counts of crawls and leases in steps of ten minutes, as the history of a database has them."""

from datetime import datetime
from typing import Any

import numpy as np

from service.history.counting import CrawlEvents
from service.model.arrays import Instants, instant, moment
from service.model.history import COUNTS, STEP, HostEvents
from service.storage.history.contract import SummedSteps

STEP_LENGTH = np.timedelta64(STEP)


class StepCounts:
    """Counts of all hosts by step, from the step of the first event on.

    A crawl counts at its own instant, because a simulated fleet reports the crawls of hours at
    once.
    """

    def __init__(self) -> None:
        self._begin: np.datetime64 | None = None
        self._counts = np.zeros((0, len(COUNTS)), np.int64)

    def add(self, events: Any, now: datetime) -> None:
        """Count the crawls or leases of a transaction."""
        if isinstance(events, HostEvents):
            self._put(np.full(len(events.host_id), instant(now)), events.name)
        if isinstance(events, CrawlEvents):
            self._put(events.at, "n_reported")
            self._put(events.at[events.failing], "n_failed")
            self._put(events.at[events.taught_nothing], "n_taught_nothing")

    def _put(self, at: Instants, name: str) -> None:
        if not len(at):
            return
        if self._begin is None:
            self._begin = at.min().astype("M8[D]").astype(at.dtype)
        step = np.maximum((at - self._begin) // STEP_LENGTH, 0)
        missing = int(step.max()) + 1 - len(self._counts)
        if missing > 0:
            room = np.zeros((missing + len(self._counts), len(COUNTS)), np.int64)
            self._counts = np.concatenate([self._counts, room])
        np.add.at(self._counts[:, COUNTS.index(name)], step, 1)

    def sums(self, since: datetime, until: datetime) -> SummedSteps:
        """Return the sums of the steps with since <= at < until."""
        if self._begin is None:
            return SummedSteps(None, (0,) * len(COUNTS))
        edges = [-((self._begin - instant(at)) // STEP_LENGTH) for at in (since, until)]
        begin, end = (int(np.clip(edge, 0, len(self._counts))) for edge in edges)
        counts = self._counts[begin:end]
        used = np.flatnonzero(counts.any(axis=1))
        if not used.size:
            return SummedSteps(None, (0,) * len(COUNTS))
        first = moment(self._begin + (begin + used[0]) * STEP_LENGTH)
        return SummedSteps(first, tuple(counts.sum(axis=0).tolist()))
