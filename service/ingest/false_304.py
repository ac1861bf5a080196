"""Wrong answers 304: what proves them, and what they have taught.

A site that keeps its ETag while its content changes answers 304 to every conditional request. A
request without validators shows it: the content differs, and the validator is the one that the
store has. Another validator proves nothing: the site may run on several machines, or send a new
ETag with every answer.

The 304 answers since the page's content before are then no evidence. The page has changed within
the whole time since that content.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from service.estimation.rules import Rules
from service.ingest.absences import LONG_AGO
from service.ingest.crawls import outcomes
from service.ingest.rebuild import replayed
from service.leases.conditional import distrusted
from service.model.arrays import (
    UNSPECIFIED,
    Bools,
    Groups,
    Instants,
    Ints,
    distinct,
    moment,
    positions,
)
from service.model.columns import CrawlColumns, LogColumns, PageStates
from service.model.domain import Kind
from service.model.outcomes import CONTENT, NOT_MODIFIED, SUCCESSES
from service.storage import Transaction
from service.storage.pages.validators import StoredValidators

MOST_RELEARNT = 100
"""Maximum pages of one batch whose log is read again."""
ENOUGH = 0.5
"""Minimum share of a page's evidence in the log, so that its estimate is learnt again."""


class Proofs(NamedTuple):
    """(P,) pages of a batch whose host has answered 304 wrongly."""

    page_id: Ints
    at: Instants
    false_304_at: Instants
    """Time of an earlier proof for the page's host; NaT: none."""


def proofs(
    tx: Transaction, states: PageStates, groups: Groups, crawls: CrawlColumns
) -> Proofs | None:
    """Return the pages whose first crawl in the batch proves a 304 wrong; None: there are none.

    Only a batch with a page that has changed and has validators reads those of the store.
    """
    if crawls.etag is None and np.isnat(crawls.last_modified).all():
        return None
    first = crawls.take(groups.start)
    changed = np.where(
        first.changed == UNSPECIFIED,
        (first.digest != 0) & (states.digest != 0) & (first.digest != states.digest),
        first.changed == 1,
    )
    plain = (outcomes(first) == CONTENT) & (first.status != NOT_MODIFIED)
    suspect = plain & changed & ~states.gone & ~np.isnat(states.last_observed_at)
    suspect &= _has_validator(first)
    if not suspect.any():
        return None
    first = first.take(suspect)
    stored = tx.validators(first.page_id)
    first = first.take(np.isin(first.page_id, stored.page_id))
    same = same_validator(stored, first)
    if not same.any():
        return None
    return Proofs(stored.page_id[same], first.observed_at[same], stored.false_304_at[same])


def _has_validator(crawls: CrawlColumns) -> Bools:
    dated: Bools = ~np.isnat(crawls.last_modified)
    return dated if crawls.etag is None else dated | (crawls.etag != "")


def same_validator(stored: StoredValidators, crawls: CrawlColumns) -> Bools:
    """Return whether each page has the validator of the store: its ETag, else its Last-Modified.

    A site answers by the ETag where a request has both, so the date then proves nothing.
    """
    now = np.full(len(stored), "", object) if crawls.etag is None else crawls.etag
    pairs = list(zip(map(_strong, stored.etag), map(_strong, now), strict=True))
    tagged = np.array([bool(old and new) for old, new in pairs], np.bool_)
    equal = np.array([old == new for old, new in pairs], np.bool_)
    same: Bools = np.where(tagged, equal, stored.last_modified == crawls.last_modified)
    return same


def _strong(etag: str) -> str:
    """Return an ETag for the weak comparison, by which sites answer 304."""
    return etag.removeprefix("W/")


def contradicted(states: PageStates, groups: Groups, crawls: CrawlColumns, answer: Bools) -> Ints:
    """Return the pages whose last answer is a 304 to a crawl that was requested, ascending.

    A ping, or a person, knew of a change that the site denies.
    """
    unchanged = crawls.status == NOT_MODIFIED
    if not unchanged.any():
        return states.page_id[:0]
    asked = (states.requested_at > LONG_AGO)[groups.page]
    asked &= states.requested_at[groups.page] <= crawls.observed_at
    denied = groups.after(np.zeros(len(states), np.bool_), answer, unchanged & asked)
    pages: Ints = states.page_id[denied]
    return pages


def unlearnt(tx: Transaction, states: PageStates, proofs: Proofs, rules: Rules) -> PageStates:
    """Return states as if the wrong 304 answers had not been; write the proofs of their hosts.

    A page that was asked for without validators since an earlier proof has learnt nothing wrong.
    """
    row = states.page_id.searchsorted(proofs.page_id)
    trusted = ~distrusted(proofs.false_304_at, proofs.at.max())
    if trusted.any():
        tx.set_false_304(distinct(states.host_id[row[trusted]]), moment(proofs.at[trusted].max()))
    misled = trusted | ~(states.last_observed_at[row] >= proofs.false_304_at)
    row = row[misled][:MOST_RELEARNT]
    if not len(row) or rules.estimator.needs_history:
        return states
    corrected = relearnt(states.take(row), tx.log_of(states.page_id[row]), rules)
    every = PageStates.concatenate([corrected, states])
    return every.take(np.unique(every.page_id, return_index=True)[1])


def relearnt(states: PageStates, log: LogColumns, rules: Rules) -> PageStates:
    """Return states without what the 304 answers since their last content have taught.

    A page whose log lacks that content, or half of its evidence, keeps its state.
    """
    n, page = len(states), states.page_id.searchsorted(log.page_id)
    last = _last(n, page, _is_plain(log))
    place, evidence = np.arange(len(log)), ~np.isnan(log.interval)
    wrong = (log.kind == Kind.crawl) & (log.status == NOT_MODIFIED) & (place > last[page])
    n_logged = np.bincount(page[evidence], minlength=n)
    whole = (last >= 0) & (n_logged >= ENOUGH * states.n_observations)
    if not whole.any():
        return states
    since = np.where(last >= 0, log.observed_at[np.maximum(last, 0)], states.last_observed_at)
    pinged = (log.kind == Kind.ping) & (place > last[page])
    pinged &= log.observed_at <= states.last_observed_at[page]
    learnt = replayed(states, log.take(~wrong), rules)
    n_wrong = np.bincount(page[wrong & evidence], minlength=n)
    after = replace(
        learnt,
        last_observed_at=since,
        n_observations=np.maximum(states.n_observations - n_wrong, 0),
        pings_since_crawl=states.pings_since_crawl + np.bincount(page[pinged], minlength=n),
    )
    return PageStates.concatenate([after.take(whole), states.take(~whole)])


def _is_plain(log: LogColumns) -> Bools:
    """Return which entries are crawls with content that no validator decided."""
    success = (log.status >= SUCCESSES.start) & (log.status < SUCCESSES.stop)
    plain: Bools = (log.kind == Kind.crawl) & (success | (log.status == UNSPECIFIED))
    return plain


def _last(n: int, page: Ints, mask: Bools) -> Ints:
    """Return the (n,) last place of each page that a mask selects; -1: none."""
    last = np.full(n, -1)
    last[page[mask]] = positions(mask)  # of several places the last one counts
    return last
