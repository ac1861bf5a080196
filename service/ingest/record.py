"""Record what crawlers saw and what sites announced.

Both ways read and lock the states of the pages, compute the new states on arrays, write them and
append to the log. Per page, time moves forward: an entry that is not newer than the page's last
one changes nothing. A batch may therefore arrive any number of times, in any order.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.estimation.estimates import InForce, Rules
from service.ingest.states import notice, observe
from service.model.arrays import UNSPECIFIED, Bools, Codes, Groups, Instants, Ints, distinct
from service.model.columns import CrawlColumns, PageStates, PingColumns
from service.model.domain import PingReason, Verdict
from service.storage import Transaction


class CrawlOutcome(NamedTuple):
    """(N,) outcomes of crawls."""

    verdict: Codes
    sooner: Bools
    """Whether the page may be due sooner than its rate says: it fails or is gone, or was."""


class PingOutcome(NamedTuple):
    """(N,) outcomes of pings."""

    verdict: Codes
    crawl: Bools
    """Whether to crawl the page now."""
    reason: NDArray[np.object_]


def record(tx: Transaction, crawls: CrawlColumns, rules: Rules | InForce) -> CrawlOutcome:
    """Record crawls; several crawls of one page are applied in the order of their time.

    The pages are locked before the rules in force are read, which may come with the lock.
    """
    states, row = _lock(tx, crawls.page_id, scheduled=rules.estimator.needs_crawl_rate)
    verdict, newer = _judge(row, crawls.observed_at, states.last_crawl_at)
    verdict[crawls.page_id == UNSPECIFIED] = Verdict.elsewhere
    sooner = np.zeros(len(crawls), np.bool_)
    if len(newer):
        groups = Groups.of(row[newer])
        before = _of(groups, states, row[newer])
        after, entries = observe(before, groups, crawls.take(newer), rules.of(tx))
        sooner[newer] = ((before.n_failures > 0) | (after.n_failures > 0))[groups.page]
        tx.append_log(entries)
        tx.save_states(after)
    return CrawlOutcome(verdict, sooner)


def ping(tx: Transaction, pings: PingColumns, rules: Rules | InForce) -> PingOutcome:
    """Record pings and decide for each whether to crawl its page now.

    A ping dated within `ping_delay_s` after its page's last crawl is dropped.
    """
    states, row = _lock(tx, pings.page_id, scheduled=True)
    rules = rules.of(tx)
    verdict, newer = _judge(row, pings.changed_at, states.last_ping_at)
    crawl = np.zeros(len(pings), np.bool_)
    reason = np.where(row < 0, PingReason.unknown_page, PingReason.not_newer).astype(object)
    if rules.ping_delay_s and len(newer):
        last, at = states.last_crawl_at[row[newer]], pings.changed_by[newer]
        delay = np.timedelta64(round(1e6 * rules.ping_delay_s), "us")
        late = (at > last) & (at <= last + delay)
        reason[newer[late]] = PingReason.crawled_since
        newer = newer[~late]
    if len(newer):
        groups = Groups.of(row[newer])
        before = _of(groups, states, row[newer])
        after, entries, crawl[newer], reason[newer] = notice(
            before, groups, pings.take(newer), rules
        )
        tx.append_log(entries)
        tx.save_states(after)
    return PingOutcome(verdict, crawl, reason)


def _lock(tx: Transaction, page_id: Ints, *, scheduled: bool) -> tuple[PageStates, Ints]:
    """Lock the pages of a batch; return the row of each item's page, -1 where there is none."""
    states = tx.lock_states(distinct(page_id[page_id > 0]), scheduled=scheduled)
    if not len(states):
        return states, np.full(len(page_id), -1)
    row = np.minimum(states.page_id.searchsorted(page_id), len(states) - 1)
    return states, np.where(states.page_id[row] == page_id, row, -1)


def _judge(row: Ints, at: Instants, last: Instants) -> tuple[Codes, Ints]:
    """Return the verdict of every item, and the accepted items ordered by page and time."""
    verdict = np.full(len(row), Verdict.unknown, np.int16)
    order = np.lexsort((at, row))[np.count_nonzero(row < 0) :]
    row, at = row[order], at[order]
    newest = last[row]
    again = 1 + np.flatnonzero(row[1:] == row[:-1])
    newest[again] = np.fmax(newest[again], at[again - 1])
    verdict[order] = ordered = _verdict(at, newest)
    return verdict, order[ordered == Verdict.accepted]


def _verdict(at: Instants, last: Instants) -> Codes:
    verdict = np.full(len(at), Verdict.accepted, np.int16)
    verdict[at == last] = Verdict.duplicate
    verdict[at < last] = Verdict.late
    return verdict


def _of(groups: Groups, states: PageStates, row: Ints) -> PageStates:
    """Return the states of the pages that have entries."""
    return states if len(groups.start) == len(states) else states.take(row[groups.start])
