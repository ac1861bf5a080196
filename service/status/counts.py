"""Numbers of pages: counted now where pages are few, else as of the last step of the history."""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np

from service.core.estimators.base import Estimator
from service.history.gauges import Blocks, measure
from service.history.reading import counts_between
from service.model.domain import Epoch
from service.model.history import Gauges
from service.storage import Store, Transaction

MOST_COUNTED = 20_000
"""Maximum number of pages that are counted at each question."""
OUTGROWN = 1.1
"""Pages of a newer epoch over those of a step from which on the step is too old."""
NO_HOSTS = np.zeros(0, np.int64)
DAY = timedelta(days=1)


class CountedBy(StrEnum):
    """The way in which pages were counted."""

    now = "now"
    """All pages, at the question."""
    last_step = "last_step"
    """As of the end of the last step of the history."""
    ids = "ids"
    """By their numbers alone, because many pages have come since the last step, or all."""


class PageCounts(NamedTuple):
    """Numbers of pages."""

    by: CountedBy
    n_pages: int
    """Pages that are not gone; by ids, an upper bound."""
    n_gone: int | None
    """None: not counted."""
    gauges: Gauges | None
    """Other numbers; None: not counted."""


def count_pages(store: Store, estimator: Estimator[Any], at: datetime) -> PageCounts:
    """Return the numbers of pages; `estimator` is that of the settings."""
    with store.begin(write=False) as tx:
        n = len(tx.next_page_ids(0, MOST_COUNTED + 1))
        space = tx.page_ranges()
        newest = tx.newest_measured() if n > MOST_COUNTED else None
        epoch = tx.epoch_in_force() if n > MOST_COUNTED else None
    if n <= MOST_COUNTED:
        blocks = Blocks(space, length=max(space.size, 1))
        gauges = measure(store, estimator, NO_HOSTS, lambda: at, blocks=blocks).all_pages
        return PageCounts(CountedBy.now, gauges.n_pages, max(n - gauges.n_pages, 0), gauges)
    if newest is None or newest.gauges is None or _outgrown(newest.gauges, epoch):
        return PageCounts(CountedBy.ids, space.size, None, None)
    return PageCounts(CountedBy.last_step, newest.gauges.n_pages, None, newest.gauges)


def _outgrown(step: Gauges, epoch: Epoch | None) -> bool:
    """Return whether many pages have come since a step, by an import for example."""
    if not step.n_pages:
        return True
    if epoch is None or epoch.certificate is None or epoch.finished_at is None:
        return False
    is_newer = epoch.finished_at > step.measured_at
    return is_newer and epoch.certificate.n_pages > OUTGROWN * step.n_pages


def counts_of_today(tx: Transaction, at: datetime) -> dict[str, int]:
    """Return the counts of the running UTC day."""
    midnight = at.replace(hour=0, minute=0, second=0, microsecond=0)
    return counts_between(tx, midnight, midnight + DAY).counts
