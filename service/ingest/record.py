"""Record crawls and pings.

An entry that is not newer than the last entry of its page changes nothing. Therefore a batch may
arrive any number of times, in any order.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.budget.admission import NO_CRAWLS
from service.estimation.rules import InForce, Rules
from service.history.counting import CrawlEvents
from service.ingest.changes import changes
from service.ingest.crawls import Began, CrawlComparison, needs_rates, observe, outcomes
from service.ingest.doubts import Doubts, doubts
from service.ingest.false_304 import contradicted, proofs, unlearnt
from service.ingest.first_crawls import (
    admitted,
    first_crawls,
    forget_moved,
    with_unlinked,
)
from service.ingest.late import late_events, late_requests
from service.ingest.past import past_crawls
from service.ingest.pings import notice
from service.ingest.recent_digests import RecentDigests
from service.ingest.redirects import (
    NO_PAGES,
    relink,
    relinked,
    walls,
)
from service.ingest.validators import has_values, reset_pages, validator_changes
from service.leases.open_due import openings
from service.model.arrays import (
    UNSPECIFIED,
    Bools,
    Codes,
    Columns,
    Groups,
    Instants,
    Ints,
    Numbers,
    distinct,
    instant,
    positions,
)
from service.model.columns import CrawlColumns, PageColumns, PageStates, PingColumns
from service.model.domain import ItemVerdict, PingReason
from service.model.history import HostEvents
from service.model.incarnations import lost_pages
from service.model.incidents import EndedIncident
from service.model.outcomes import DOUBTFUL, OFFER, Outcome
from service.storage import Transaction

# Python 3.11 looks members up slowly, and a batch may be one crawl
ACCEPTED, DUPLICATE, LATE, UNKNOWN, ELSEWHERE = (
    int(ItemVerdict[name]) for name in ("accepted", "duplicate", "late", "unknown", "elsewhere")
)


class CrawlOutcome(NamedTuple):
    """(N,) outcomes of crawls."""

    verdict: Codes
    sooner: Bools
    """True if the page may be due sooner than by its rate, because it fails or is gone, or was."""
    again: Ints
    """Pages, ascending, to which a redirect leads again, and new pages that are admitted."""
    states: PageStates
    """(P,) states of the registered pages after the crawls, by ascending page_id."""
    accepted: Ints
    """(K,) rows of the accepted crawls, by page and time."""
    events: CrawlEvents | None
    """The accepted crawls, past ones too; None: there are none."""
    in_incident: Bools | None = None
    """True if the crawl shows the sign of an incident of its host; None: no crawl does."""
    past: Bools | None = None
    """True if an accepted crawl is past (`model.past`); None: none is."""
    late: Bools | None = None
    """True if a late crawl counts as a request (`ingest.late`); None: none does."""
    ended: tuple[EndedIncident, ...] = ()
    """Incidents that the crawls have ended, whose pages are looked at again (`batching.apart`)."""

    @property
    def is_request(self) -> Bools:
        """True if the crawl counts against the budget of its day."""
        accepted: Bools = self.verdict == ACCEPTED
        return accepted if self.late is None else accepted | self.late

    @property
    def is_news(self) -> Bools:
        """True if the crawl was accepted, and is not past, so that it shows its host as it is."""
        accepted: Bools = self.verdict == ACCEPTED
        return accepted if self.past is None else accepted & ~self.past


@dataclass(frozen=True, slots=True, kw_only=True)
class PingOutcome(Columns):
    """(N,) outcomes of pings."""

    page_id: Ints
    """Id of the page; 0 where no page has the URL."""
    verdict: Codes
    crawl: Bools
    """True if the page should be crawled now."""
    reason: NDArray[np.object_]

    @property
    def requested(self) -> Bools:
        """True if the page should be crawled now, or as soon as its host opens."""
        requested: Bools = self.crawl | (self.reason == PingReason.window_closed)
        return requested


def record(
    tx: Transaction,
    crawls: CrawlColumns,
    rules: Rules | InForce,
    states: PageStates | None = None,
    starts: Instants | None = None,
    recent: RecentDigests | None = None,
    added: PageColumns | None = None,
) -> CrawlOutcome:
    """Record crawls, those of one page in the order of their times.

    `states` are the locked states of their pages; None: lock them. `starts` are the (N,) instants
    up to which crawls answer requests and pings (`leases.starts`); None: their times. `recent`
    remembers the digests of earlier crawls; None: those of these crawls are compared with each
    other only. `added` are pages that the same transaction has registered.
    """
    if states is None:
        needs_rate = rules.estimator.needs_crawl_rate or needs_rates(crawls)
        states = tx.lock_states(pages_of(crawls.page_id), scheduled=needs_rate)
    row = _rows_of(states, crawls.page_id)
    if crawls.verdict is not None:
        row[crawls.refused] = -1
    verdict, newer = _judge(row, crawls.observed_at, states.last_crawl_at)
    note_lost(tx, verdict, crawls.page_id)
    verdict[crawls.page_id == UNSPECIFIED] = ELSEWHERE
    late = _count_late(tx, states, row, crawls, verdict, rules)
    if crawls.verdict is not None:
        verdict = np.where(crawls.refused, crawls.verdict, verdict)
    sooner, events, again, unlinked = np.zeros(len(crawls), np.bool_), None, NO_PAGES, NO_PAGES
    in_incident, past, first = None, None, NO_CRAWLS
    ended: tuple[EndedIncident, ...] = ()
    if len(newer):
        groups = Groups.of(row[newer])
        before = _of(groups, states, row[newer])
        accepted = crawls.in_order(newer)
        in_force = rules.of(tx)
        if (proven := proofs(tx, before, groups, accepted)) is not None:
            before = unlearnt(tx, before, proven, in_force)
        outcome, some = _judged(tx, before, groups, accepted, recent)
        if some is not None:
            in_incident = _spread_out(some.in_incident, newer, len(crawls))
            ended = some.ended
        began_at = accepted.observed_at if starts is None else starts[newer]
        began = Began(began_at, pings_ahead(tx, before, groups, began_at))
        waits = None if some is None else some.waits
        after, entries, comparison = observe(
            before, groups, accepted, in_force, began, outcome, waits
        )
        events = _events(before, groups, accepted, comparison, in_force)
        own_past = past_crawls(tx, before, groups, accepted)
        past = _spread_out(own_past, newer, len(crawls))
        tx.count(events if own_past is None else events.where(~own_past))
        sooner[newer] = ((before.n_failures > 0) | (after.n_failures > 0))[groups.page]
        tx.append_log(entries)
        forget_moved(tx, before, groups, accepted)
        tx.save_states(after)
        if (relinks := relinked(before, after, accepted)) is not None:
            again, unlinked = relink(tx, relinks)
        tx.append_changes(changes(before, groups, accepted, comparison, own_past))
        _save_validators(tx, after, groups, accepted, comparison)
        denied = contradicted(before, groups, accepted, comparison.answer)
        if len(denied):
            tx.doubt_validators(denied)
        states = _with(states, after)
        first = first_crawls(before, after, groups, accepted, comparison)
        first = with_unlinked(tx, first, unlinked)
    again = distinct(np.append(again, admitted(tx, added, first)))
    return CrawlOutcome(
        verdict, sooner, again, states, newer, events, in_incident, past, late, ended
    )


def _judged(
    tx: Transaction,
    before: PageStates,
    groups: Groups,
    crawls: CrawlColumns,
    recent: RecentDigests | None,
) -> tuple[Codes, Doubts | None]:
    """Return the (N,) outcomes of crawls, and the doubts about them; None: there are none."""
    outcome = outcomes(crawls)
    some = doubts(tx, before, groups, crawls, outcome, recent or RecentDigests(bits=1))
    if some is not None:
        outcome[some.doubtful] = DOUBTFUL
    if (behind := walls(tx, before, groups, crawls, outcome)) is not None:
        outcome[behind] = Outcome.absent
    return outcome, some


def _save_validators(
    tx: Transaction,
    after: PageStates,
    groups: Groups,
    crawls: CrawlColumns,
    comparison: CrawlComparison,
) -> None:
    answer, gone, doubtful = comparison.answer, comparison.gone, comparison.outcome == DOUBTFUL
    if has_values(crawls):
        tx.save_validators(validator_changes(after.page_id, groups, crawls, answer, gone, doubtful))
    else:
        tx.clear_validators(reset_pages(after.page_id, groups, crawls, answer))


def ping(
    tx: Transaction, pings: PingColumns, rules: Rules | InForce, now: datetime | None = None
) -> PingOutcome:
    """Record pings and decide for each whether to crawl its page now.

    A ping dated within `ping_delay_s` after its page's last crawl is dropped. `now` is the arrival
    of the pings, after which a crawl must start to answer them; None: their own times. A page whose
    host is closed is crawled from the opening on.
    """
    states = tx.lock_states(pages_of(pings.page_id), scheduled=True)
    row = _rows_of(states, pings.page_id)
    rules = rules.of(tx)
    verdict, newer = _judge(row, pings.changed_at, states.last_ping_at)
    note_lost(tx, verdict, pings.page_id)
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
            before, groups, pings.take(newer), rules, now
        )
        tx.append_log(entries)
        tx.save_states(after)
        tx.count(HostEvents("n_pings", before.host_id[groups.page]))
    if tx.calendars.in_use and crawl.any():
        due = positions(crawl)
        closed = due[_is_closed(tx, states.host_id[row[due]])]
        crawl[closed], reason[closed] = False, PingReason.window_closed
    return PingOutcome(page_id=pings.page_id, verdict=verdict, crawl=crawl, reason=reason)


def _is_closed(tx: Transaction, host_id: Ints) -> Bools:
    """Return which of (N,) hosts are closed now."""
    now = tx.now()
    return ~np.isnat(openings(tx.calendars.of_hosts(host_id, now), instant(now)))


def note_lost(tx: Transaction, verdict: Codes, page_id: Ints) -> None:
    """Set the verdict of ids that a restore of the database has lost."""
    unknown = positions((verdict == UNKNOWN) & (page_id > 0))
    if len(unknown):
        lost = lost_pages(page_id[unknown], tx.incarnations())
        verdict[unknown[lost]] = ItemVerdict.lost


def pings_ahead(tx: Transaction, states: PageStates, groups: Groups, at: Instants) -> Ints:
    """Return (N,) numbers of the pings of each crawl's page that are dated after its start.

    The log is read only for pages with several pings since their last answer, one of them later.
    """
    page = groups.page
    later: Bools = states.last_ping_at[page] > at
    ahead = later.astype(np.int64)
    several = positions(later & (states.pings_since_crawl[page] > 1))
    if len(several):
        page_id = states.page_id[page[several]]
        ahead[several] = tx.pings_after(page_id, at[several])
    return ahead


def pages_of(page_id: Ints) -> Ints:
    """Return the pages of a batch, ascending."""
    return distinct(page_id[page_id > 0])


def _events(
    before: PageStates,
    groups: Groups,
    crawls: CrawlColumns,
    comparison: CrawlComparison,
    rules: Rules,
) -> CrawlEvents:
    return CrawlEvents(
        before,
        groups.page,
        crawls.observed_at,
        comparison.interval,
        comparison.changed,
        comparison.failing,
        comparison.taught_nothing,
        comparison.is_evidence,
        comparison.n_pings,
        rules,
        _paid(crawls, comparison),
        None if comparison.weight is None else comparison.counted,
    )


def _paid(crawls: CrawlColumns, comparison: CrawlComparison) -> Numbers:
    """Return the costs of crawls, NaN for a price that a site has only asked."""
    if crawls.cost is None:
        return None
    return np.where(comparison.outcome == OFFER, np.nan, crawls.cost)


def _spread_out(of_newer: Bools | None, newer: Ints, n: int) -> Bools | None:
    """Return a mask of accepted crawls as one of all n crawls."""
    if of_newer is None:
        return None
    mask = np.zeros(n, np.bool_)
    mask[newer] = of_newer
    return mask


def _count_late(
    tx: Transaction,
    states: PageStates,
    row: Ints,
    crawls: CrawlColumns,
    verdict: Codes,
    rules: Rules | InForce,
) -> Bools | None:
    """Count late crawls that were requests, and return which they are; None: none is."""
    late = positions(verdict == LATE)
    if not len(late):
        return None
    late = late[late_requests(tx, states, row[late], crawls.take(late))]
    if not len(late):
        return None
    tx.count(late_events(states, row[late], crawls.take(late), rules.of(tx)))
    return _spread_out(np.ones(len(late), np.bool_), late, len(crawls))


def _rows_of(states: PageStates, page_id: Ints) -> Ints:
    """Return the row of each item's page, -1 for no page."""
    if not len(states):
        return np.full(len(page_id), -1)
    row = np.minimum(states.page_id.searchsorted(page_id), len(states) - 1)
    return np.where(states.page_id[row] == page_id, row, -1)


def _judge(row: Ints, at: Instants, last: Instants) -> tuple[Codes, Ints]:
    """Return the verdict of every item, and the accepted items ordered by page and time."""
    verdict = np.full(len(row), UNKNOWN, np.int16)
    # items without a page have row -1 and come first
    order = np.lexsort((at, row))[np.count_nonzero(row < 0) :]
    row, at = row[order], at[order]
    newest = last[row]
    again = 1 + positions(row[1:] == row[:-1])
    # the entry before it in the batch may be newer than the last one of its page
    newest[again] = np.fmax(newest[again], at[again - 1])
    verdict[order] = ordered = _verdict(at, newest)
    return verdict, order[ordered == ACCEPTED]


def _verdict(at: Instants, last: Instants) -> Codes:
    verdict = np.full(len(at), ACCEPTED, np.int16)
    verdict[at == last] = DUPLICATE
    verdict[at < last] = LATE
    return verdict


def _of(groups: Groups, states: PageStates, row: Ints) -> PageStates:
    return states if len(groups.start) == len(states) else states.take(row[groups.start])


def _with(states: PageStates, after: PageStates) -> PageStates:
    """Return the states, with the states `after` in place of those of the same pages."""
    if len(after) == len(states):
        return after
    every = PageStates.concatenate([after, states])
    # np.unique returns the first of two states, which is the one in `after`
    return every.take(np.unique(every.page_id, return_index=True)[1])
