"""First crawls of new pages, and what they bring."""

import numpy as np

from service.budget.admission import NO_CRAWLS, NO_PAGES, FirstCrawls, admit_new
from service.ingest.crawls import CrawlComparison
from service.model.arrays import Bools, Groups, Ints
from service.model.columns import CrawlColumns, PageColumns, PageStates
from service.model.outcomes import NO_CONTENT_AFTER, OFFER, ROBOTS_DENIED, Leads, Outcome
from service.storage import Transaction

UNCERTAIN = (Outcome.failed, Outcome.unfinished, Outcome.doubtful)
"""Outcomes that show the worth of a page only after `NO_CONTENT_AFTER` of them in a row."""
MAY_BE_NEW = (Outcome.content, Outcome.empty)
"""Outcomes that bring something new unless the digest is known. A crawler that reports no digests
has all its pages admitted."""

MOST_LED = 3
"""Maximum redirects that a chain of first crawls follows before its group has a verdict."""
FRUITFUL_HOPS = 1
"""Maximum redirects to a page that was not admitted and whose redirect counts as something new."""


def first_crawls(
    before: PageStates,
    after: PageStates,
    groups: Groups,
    crawls: CrawlColumns,
    comparison: CrawlComparison,
) -> FirstCrawls:
    """Return the pages whose worth these crawls show: (P,) pages with (N,) crawls.

    With them come the pages that sites offer for a price: their places are free.
    """
    if not before.held.any():
        return NO_CRAWLS
    outcome = comparison.outcome[groups.end]
    offered = outcome == OFFER
    shown = ~np.isin(outcome, UNCERTAIN) | (after.n_failures >= NO_CONTENT_AFTER)
    # the place is free since the first offer
    has_place = (before.held < 0) & (before.outcome != OFFER)
    shown &= ~offered | has_place | (before.held > 0)
    row = np.flatnonzero((before.held != 0) & shown)
    last = groups.end[row]
    hops, flies = np.abs(before.hops[row].astype(np.int64)), has_place[row]
    leads_on = (crawls.leads[last] == Leads.to_new) & (flies | (hops <= FRUITFUL_HOPS))
    follows = _first_of_each(crawls.redirects_to[last], leads_on)
    ends = follows & flies & (hops >= MOST_LED)
    digest = np.where(outcome[row] == Outcome.content, crawls.digest[last], 0)
    return FirstCrawls(
        page_id=before.page_id[row],
        held=np.where(flies, -1, 1) * np.abs(before.held[row]),
        digest=digest,
        brings=np.isin(outcome[row], MAY_BE_NEW) | follows & ~ends,
        forbidden=crawls.status[last] == ROBOTS_DENIED,
        heir=np.where(follows & flies, crawls.redirects_to[last], 0),
        # what follows an end is a chain of its own
        n_before=np.where(offered[row] | (hops > MOST_LED), 0, hops),
        ends=ends,
        judged=~offered[row],
        offered=offered[row],
    )


def forget_moved(tx: Transaction, before: PageStates, groups: Groups, crawls: CrawlColumns) -> None:
    """Forget the digests of known pages that begin to redirect to new ones.

    The new page has mostly the same content, which else would count as known.
    """
    moves = (crawls.leads[groups.end] == Leads.to_new) & (before.held == 0) & (before.digest != 0)
    if moves.any():
        tx.drop_digests(before.page_id[moves])


def with_unlinked(tx: Transaction, first: FirstCrawls, page_id: Ints) -> FirstCrawls:
    """Return first crawls with the pages in flight to which no page redirects any more.

    Nobody crawls these, so that their places are free.
    """
    if not len(page_id):
        return first
    held = tx.held_pages(np.setdiff1d(page_id, first.page_id))
    flies = held.level < 0
    none = np.zeros(np.count_nonzero(flies), np.int64)
    ended = FirstCrawls(
        page_id=held.page_id[flies],
        held=held.level[flies],
        digest=none,
        brings=none > 0,
        forbidden=none > 0,
        heir=none,
        n_before=none,
        ends=none > 0,
        judged=none > 0,
        offered=none > 0,
    )
    return FirstCrawls.concatenate([first, ended])


def _first_of_each(target: Ints, where: Bools) -> Bools:
    """Return which of some redirects are the first ones to their targets.

    A trap may send all its URLs to one new page in the same batch. That page is news once.

    >>> _first_of_each(np.array([7, 7, 8, 7]), np.array([False, True, True, True])).tolist()
    [False, True, True, False]
    """
    first = np.zeros(len(target), np.bool_)
    some = np.flatnonzero(where)
    first[some[np.unique(target[some], return_index=True)[1]]] = True
    return first


def admitted(tx: Transaction, added: PageColumns | None, first: FirstCrawls) -> Ints:
    """Admit pages after some were registered and others crawled; return those to queue."""
    urls, page_id = np.zeros(0, object), NO_PAGES
    if (added is None or not tx.holds_new) and not len(first):
        return NO_PAGES
    if added is not None:
        urls, page_id = added.url, tx.page_ids(added.key, added.host)
    return admit_new(tx, urls, page_id, tx.now(), first)
