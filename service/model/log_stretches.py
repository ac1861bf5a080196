"""Stretches between the crawls in a log: whether their page changed in them. Pure."""

from typing import NamedTuple

import numpy as np

from service.model.arrays import NO_TIME, Bools, Instants, Ints
from service.model.columns import LogColumns
from service.model.domain import Kind
from service.model.outcomes import ABSENT, MOVED

DAY_US = 86_400e6


class LoggedStretches(NamedTuple):
    """(K,) stretches between two crawls that showed their page, by page and time."""

    entry: Ints
    """Entry of the crawl that ended the stretch."""
    begin: Instants
    end: Instants
    changed: Bools
    """True if the crawl at the end found a change."""
    was_gone: Bools
    """True if the page was gone at the beginning."""
    gone: Bools
    """True if the page was gone at the end."""


def logged_stretches(log: LogColumns) -> LoggedStretches:
    """Return the stretches of a log that is ordered by page and time.

    The log has the length of most stretches. A page whose pings announce every change has none in
    its entries, so that the crawl before counts.
    """
    entry = np.flatnonzero((log.kind == Kind.crawl) & (log.changed >= 0))
    end, page = log.observed_at[entry], log.page_id[entry]
    gone = np.isin(log.status[entry], ABSENT + MOVED)
    follows = np.diff(page, prepend=-1) == 0
    before = np.where(follows, np.roll(end, 1), NO_TIME)
    interval = log.interval[entry]
    begin = end - (np.nan_to_num(interval) * DAY_US).round().astype("m8[us]")
    begin = np.where(np.isnan(interval), before, begin)
    has_length = begin < end  # NaT has none
    return LoggedStretches(
        entry[has_length],
        begin[has_length],
        end[has_length],
        log.changed[entry][has_length] == 1,
        (follows & np.roll(gone, 1))[has_length],
        gone[has_length],
    )
