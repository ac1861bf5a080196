"""Past crawls and past answers among pages in the store.

Only crawls that are older than a day can be past, so most batches read no registration.
"""

from dataclasses import replace

import numpy as np

from service.model.arrays import Bools, Codes, Groups, Instants, Ints, distinct, instant, positions
from service.model.columns import CrawlColumns, PageStates
from service.model.outcomes import IS_ABSENT
from service.model.past import PAST, is_past
from service.storage import Transaction


def past_crawls(
    tx: Transaction, states: PageStates, groups: Groups, crawls: CrawlColumns
) -> Bools | None:
    """Return which of (N,) crawls of (P,) pages are past; None: none is.

    A crawl under a lease is none, however late the clock of its crawler is.
    """
    past = is_past_at(tx, states, groups.page, crawls.observed_at, crawls.token == 0)
    return past if past.any() else None


def without_past_answers(
    tx: Transaction, states: PageStates, groups: Groups, outcome: Codes
) -> PageStates:
    """Return states in which pages whose last answers are past count as gone.

    Another crawler has seen them, perhaps long ago. Their absence now is no sudden one. Only pages
    that are absent, or were at their last crawl, are compared.
    """
    absent = IS_ABSENT[states.outcome]
    absent[groups.page[IS_ABSENT[outcome]]] = True
    every = np.arange(len(states))
    past = is_past_at(tx, states, every, states.last_observed_at, absent & ~states.gone)
    if not past.any():
        return states
    return replace(states, gone=states.gone | past)


def is_past_at(
    tx: Transaction, states: PageStates, page: Ints, at: Instants, may_be: Bools
) -> Bools:
    """Return which of some instants at pages, by their rows, are past among those that may be."""
    past = np.zeros(len(at), np.bool_)
    if not may_be.any():
        return past
    some = positions(may_be & (at < instant(tx.now()) - PAST))
    if len(some):
        row = distinct(page[some])
        registered_at = tx.registered_at(states.page_id[row])
        past[some] = is_past(at[some], registered_at[row.searchsorted(page[some])])
    return past
