"""New pages that come faster than they are crawled, from the steps of the history. Pure."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import NamedTuple

from service.storage.history.measured import MeasuredStep

QUARTER = timedelta(hours=6)
QUARTERS = 4
"""Number of quarters of a day in which the waiting pages grow."""
FIRST_DAYS = timedelta(days=2)
"""Time from the first pages on in which a new corpus is imported."""
SHARE, FEWEST = 0.5, 1_000
"""Share of pages never crawled from which they are shown, and the least number."""


class Growth(NamedTuple):
    """Pages without a first crawl that have grown in each quarter of a day."""

    since: datetime
    n_waiting: int
    n_pages: int
    n_more: int
    """Growth within the day."""


def growth(steps: Sequence[MeasuredStep], at: datetime) -> Growth | None:
    """Return how the pages without a first crawl grow; None: they do not, or are few.

    An import grows for hours only, and a new corpus in its first days.
    """
    sizes = [
        (step.measured_at, step.n_pages, step.n_never_crawled)
        for step in steps
        if step.measured_at is not None and step.n_pages and step.n_never_crawled is not None
    ]
    if not sizes or at - sizes[0][0] < FIRST_DAYS:
        return None
    ends = [at - n * QUARTER for n in range(QUARTERS, -1, -1)]
    sizes_then = [[each for each in sizes if each[0] <= end] for end in ends]
    waiting = [before[-1][2] for before in sizes_then]
    (since, *_), (_, n_pages, n_waiting) = sizes_then[0][-1], sizes[-1]
    grows = all(later > before for before, later in pairwise(waiting))
    if not grows or n_waiting < max(FEWEST, SHARE * n_pages):
        return None
    return Growth(since, n_waiting, n_pages, n_waiting - waiting[0])
