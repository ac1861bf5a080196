"""What the answer to a crawl says of its page: there, gone, elsewhere, or nothing at all.

All functions are pure and take (N,) crawls in runs of (P,) pages.
"""

import numpy as np

from service.arrays import UNSAID, Bools, Codes, Floats, Instants, Ints, days
from service.columns import CrawlColumns, PageStates
from service.domain import MOST_FAILURES, Observability
from service.runs import Runs
from service.storage.base import GONE_CHECKS

NOT_MODIFIED = 304
GONE = (404, 410)
MOVED = (301, 308)
SUCCESS = range(200, 400)
MADE_FOR_IT = np.timedelta64(1, "m")
"""A page that was modified no longer before its crawl was made for it."""
PATIENCE = np.timedelta64(1 << (GONE_CHECKS - 1), "D")
"""A notice that need not be true has a retired page crawled if it was not for so long."""


def answered(crawls: CrawlColumns) -> tuple[Bools, Bools]:
    """Tell which crawls say what the page was like, and which of them that it is gone.

    What comes with a redirect is of another page.
    """
    status, away = crawls.status, crawls.redirects_to != 0
    gone: Bools = (status == GONE[0]) | (status == GONE[1])
    gone |= away & ((status == MOVED[0]) | (status == MOVED[1]))
    answered = (status == UNSAID) | gone | (status == NOT_MODIFIED)
    content = ((crawls.changed != UNSAID) | (crawls.digest != 0)) & ~away
    return answered | (content & (status >= SUCCESS.start) & (status < SUCCESS.stop)), gone


def failing(status: Codes, answered: Bools) -> Bools:
    """Tell which crawls got no answer; a redirect or a success without content told is one."""
    failing: Bools = ~answered & ((status < SUCCESS.start) | (status >= SUCCESS.stop))
    return failing


def failures(
    states: PageStates, runs: Runs, answered: Bools, gone: Bools, failing: Bools, was_gone: Bools
) -> Ints:
    """Count on: failures in a row of a page that is there, confirmations of one that is gone.

    A gone page's count outlasts crawls that say nothing of it.
    """
    if not (states.n_failures.any() or gone.any() or failing.any()):
        return states.n_failures
    counts = gone | (failing & ~was_gone)
    resets = (answered & ~gone) | (~was_gone & ~failing)
    so_far: Ints = np.cumsum(counts)
    others: Ints = so_far - counts
    found = states.n_failures - others[runs.start]
    n_failures = so_far[runs.end] + runs.after(found, resets, -others)
    return np.minimum(n_failures, MOST_FAILURES)


def redirects(states: PageStates, runs: Runs, crawls: CrawlColumns, failing: Bools) -> Ints:
    """Give the page that each page redirected to when it answered last, 0 where it did not."""
    if not (states.redirects_to.any() or crawls.redirects_to.any()):
        return states.redirects_to
    return runs.after(states.redirects_to, ~failing, np.maximum(crawls.redirects_to, 0))


def told(crawls: CrawlColumns, last_observed_at: Instants, was_gone: Bools, gone: Bools) -> Codes:
    """Did the page change since it was last observed? UNSAID where only digests may tell."""
    changed = np.where(crawls.status == NOT_MODIFIED, 0, crawls.changed)
    changed = np.where(gone | was_gone, gone != was_gone, changed)
    return np.where(np.isnat(last_observed_at), UNSAID, changed).astype(np.int16)


def age(crawls: CrawlColumns) -> Floats:
    """Give the days since each page was last modified, as its site says; NaN where it does not.

    Of pages that are made anew for every visitor many servers say that they were modified just
    now: the date of the answer, within `MADE_FOR_IT`, is none.
    """
    since = crawls.observed_at - crawls.last_modified
    age = days(since)
    return np.where(since > MADE_FOR_IT, age, np.nan)


def may_be_back(states: PageStates, runs: Runs, at: Instants) -> Bools:
    """Tell which pings are reason enough to look whether a page that is gone is back.

    A site that announces every change is believed. Others, which may go on to list what they
    have deleted, have a retired page crawled, but no more often than it was checked at last.
    """
    if not states.gone.any():
        return np.zeros(len(at), np.bool_)
    believed = states.gone & (states.observability == Observability.complete)
    retired = states.gone & (states.n_failures > GONE_CHECKS)
    waited = at >= (states.last_crawl_at + PATIENCE)[runs.page]
    back: Bools = believed[runs.page] | (retired[runs.page] & waited)
    return back
