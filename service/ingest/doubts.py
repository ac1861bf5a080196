"""Doubts about crawls: those that show the sign of an incident of their host teach nothing.

`ingest.incidents` has the rules. A batch whose crawls show no sign costs nothing while no host is
under suspicion, and otherwise one statement. The rows of hosts are locked after the states of pages
and before host queues.
"""

from collections.abc import Iterable
from datetime import datetime
from functools import partial
from typing import NamedTuple

import numpy as np

from service.ingest.incidents import (
    NEVER,
    TEACHES,
    CrawlVerdict,
    HostWatch,
    PageSeen,
    SuspectCrawl,
    incidents_of,
    judged,
    numbers_of,
    watches_of,
)
from service.ingest.past import without_past_answers
from service.ingest.recent_digests import NewDigests, RecentDigests, Shared
from service.model.arrays import (
    Bools,
    Codes,
    Groups,
    Ints,
    datetime_at,
    distinct,
    instant,
    is_among,
    positions,
)
from service.model.columns import CrawlColumns, PageStates
from service.model.incidents import EndedIncident, HostIncidents
from service.model.outcomes import (
    CONTENT,
    IS_ABSENT,
    NOT_MODIFIED,
    REFUSED,
    Outcome,
    all_content,
)
from service.storage import Transaction

NO_HOSTS = np.zeros(0, np.int64)


class Doubts(NamedTuple):
    """(N,) crawls, by page and time, that teach nothing or confirm nothing."""

    doubtful: Bools
    in_incident: Bools
    """True if the crawl shows the sign of an incident in force, which pauses the host."""
    waits: Bools
    """True if the crawl does not confirm the absence of its page yet."""
    ended: tuple[EndedIncident, ...]


def doubts(
    tx: Transaction,
    states: PageStates,
    groups: Groups,
    crawls: CrawlColumns,
    outcome: Codes,
    recent: RecentDigests,
) -> Doubts | None:
    """Return which crawls are doubtful, and note them in the watches over their hosts.

    `outcome` has the outcomes by the crawls alone. None: no crawl is doubtful, or ends an incident.
    """
    shared = _shared(states, groups, crawls, outcome, recent)
    if shared is None and all_content(outcome) and not tx.has_incidents():  # most batches
        return None
    shared = shared or Shared.none(len(crawls))
    outcome = _by_site(tx, crawls, outcome)
    states = without_past_answers(tx, states, groups, outcome)
    signs = _signs(states, groups, outcome) | shared.is_shared
    if not signs.any() and not tx.has_incidents():
        return None
    host_id = states.host_id[groups.page]
    incidents = tx.lock_incidents(distinct(host_id), distinct(host_id[signs]))
    if not len(incidents):
        return None
    watches = watches_of(incidents)
    row = positions(is_among(host_id, incidents.host_id))
    row = row[np.lexsort((crawls.page_id[row], crawls.observed_at[row], host_id[row]))]
    verdict = np.zeros(len(crawls), np.int16)
    listed = _listed(crawls.take(row), outcome[row], shared.take(row))
    hosts = Groups.of(host_id[row])
    for start, end in zip(hosts.start.tolist(), (hosts.end + 1).tolist(), strict=True):
        watch = watches[int(host_id[row[start]])]
        pages = _pages(states.take(distinct(groups.page[row[start:end]])))
        watch.crawled_before = partial(_crawled_before, tx, watch.host_id, pages)
        verdict[row[start:end]] = judged(watch, listed[start:end], pages)
    _save(tx, incidents, watches.values())
    ended = ended_incidents(watches.values())
    if not verdict.any() and not ended:
        return None
    return Doubts(
        doubtful=~np.isin(verdict, list(TEACHES)),
        in_incident=verdict == CrawlVerdict.incident,
        waits=verdict == CrawlVerdict.waits,
        ended=ended,
    )


def _shared(
    states: PageStates,
    groups: Groups,
    crawls: CrawlColumns,
    outcome: Codes,
    recent: RecentDigests,
) -> Shared | None:
    """Return which of the crawls found a digest that other pages began to show of late.

    None: none did.
    """
    if not crawls.digest.any():
        return None
    page, digest = groups.page, crawls.digest
    before = states.digest[page]
    new = (digest != before) & (digest != 0) & (before != 0)
    new &= (outcome == CONTENT) & ~_unchanged(crawls)
    if not new.any():
        return None
    row = positions(new)
    digests = NewDigests(
        host_id=states.host_id[page[row]],
        page_id=crawls.page_id[row],
        digest=digest[row],
        digest_before=before[row],
        at=crawls.observed_at[row],
    )
    some = recent.add(digests)
    if some is None:
        return None
    shared = Shared.none(len(crawls))
    for column, values in zip(shared, some, strict=True):
        column[row] = values
    return shared


def _unchanged(crawls: CrawlColumns) -> Bools:
    """Return which crawls state that the page is as it was."""
    unchanged: Bools = (crawls.status == NOT_MODIFIED) | (crawls.changed == 0)
    return unchanged


def _signs(states: PageStates, groups: Groups, outcome: Codes) -> Bools:
    """Return which crawls show their page newly absent, or newly refused."""
    if all_content(outcome):
        return np.zeros(len(outcome), np.bool_)
    answered = ~np.isnat(states.last_observed_at) & ~states.gone
    refused = outcome == Outcome.refused
    refused &= (states.outcome != Outcome.refused)[groups.page]
    signs: Bools = (IS_ABSENT[outcome] & answered[groups.page]) | refused
    return signs


def _by_site(tx: Transaction, crawls: CrawlColumns, outcome: Codes) -> Codes:
    """Return the outcomes, with `elsewhere` for crawls that show no sign whatever the site is like.

    robots.txt refuses a page in place of the site. No site in trouble leads each page to its own
    address under https, at `www.` or with a slash at its end.
    """
    if all_content(outcome):
        return outcome
    calm = (outcome == Outcome.refused) & ~np.isin(crawls.status, REFUSED)
    row = positions((outcome == Outcome.moved) & (crawls.redirects_to > 0))
    if len(row):
        calm[row] |= _keeps_address(tx, crawls.page_id[row], crawls.redirects_to[row])
    return np.where(calm, Outcome.elsewhere, outcome).astype(np.int16)


def _keeps_address(tx: Transaction, page_id: Ints, target: Ints) -> Bools:
    """Return which targets have the addresses of their pages, in another form (`_bare`)."""
    urls = tx.urls_of_pages(distinct(np.append(page_id, target)))
    bare = {page: _bare(url) for page, url in urls.items()}
    pairs = zip(page_id.tolist(), target.tolist(), strict=True)
    return np.array([own in bare and bare[own] == bare.get(other) for own, other in pairs])


def _bare(url: str) -> str:
    """Return an address without the parts that sites change on all their pages at once.

    >>> _bare("http://example.com/a"), _bare("https://www.example.com/a/")
    ('example.com/a', 'example.com/a')
    """
    return url.partition("://")[2].removeprefix("www.").rstrip("/")


def _listed(crawls: CrawlColumns, outcome: Codes, shared: Shared) -> list[SuspectCrawl]:
    columns = (
        crawls.page_id,
        numbers_of(crawls.observed_at),
        outcome,
        crawls.digest,
        _unchanged(crawls),
        *shared,
    )
    return [
        SuspectCrawl(*row) for row in zip(*(column.tolist() for column in columns), strict=True)
    ]


def _pages(states: PageStates) -> dict[int, PageSeen]:
    doubted = states.outcome == Outcome.doubtful
    columns = (
        numbers_of(states.last_crawl_at),
        states.outcome,
        states.digest,
        ~np.isnat(states.last_observed_at) & ~states.gone,
        states.gone,
        np.where(doubted, numbers_of(states.absent_since), NEVER),
        np.where(doubted, NEVER, numbers_of(states.absent_since)),
    )
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return dict(zip(states.page_id.tolist(), (PageSeen(*row) for row in rows), strict=True))


def _crawled_before(
    tx: Transaction, host_id: int, pages: dict[int, PageSeen], after: int, before: int
) -> int:
    """Return the number of pages of a host whose last crawl lies between two instants."""
    here = sum(after <= page.last_at < before for page in pages.values())
    others = np.array(sorted(pages), np.int64)
    return here + tx.crawled_between(host_id, datetime_at(after), datetime_at(before), others)


def ended_incidents(watches: Iterable[HostWatch]) -> tuple[EndedIncident, ...]:
    """Return the incidents of absent or moved pages that have ended."""
    return tuple(
        EndedIncident(watch.host_id, datetime_at(watch.lost_since))
        for watch in watches
        if watch.lost_since != NEVER
    )


def end_incident(
    tx: Transaction, host_id: int, now: datetime
) -> tuple[bool, tuple[EndedIncident, ...]]:
    """End the incident of a host by hand.

    Return whether one was in force, and the incident if its pages were absent or had moved.
    """
    incidents = tx.lock_incidents(np.array([host_id]), NO_HOSTS)
    watches = watches_of(incidents).values()
    ended = [watch.end_by_hand(instant(now).astype(np.int64).item()) for watch in watches]
    _save(tx, incidents, watches)
    return any(ended), ended_incidents(watches)


def _save(tx: Transaction, before: HostIncidents, watches: Iterable[HostWatch]) -> None:
    """Write the watches that have changed, and delete those that have nothing to remember."""
    every = list(watches)
    after = incidents_of(every)
    is_over = np.array([watch.is_over for watch in every], np.bool_)
    differs = np.zeros(len(after), np.bool_)
    for name, column in after.arrays().items():
        differs |= numbers_of(column) != numbers_of(getattr(before, name))
    tx.save_incidents(after.take(differs & ~is_over))
    tx.drop_incidents(after.host_id[is_over])
