"""Estimates from an archive's captures of pages.

A capture is a crawl by others. Its digest can be compared with other captures only, never with a
crawler's own digest. Captures therefore teach estimates, and leave the stored digest alone.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from service.core.estimators.base import Estimator
from service.estimation.estimates import OrderedCrawls, learn_crawls
from service.model.arrays import (
    NO_TIME,
    Bools,
    Columns,
    Floats,
    Groups,
    Instants,
    Ints,
    days,
)
from service.model.columns import PageStates
from service.model.domain import Observability

FORM = 7
"""Bits of a digest's hash that are its form; 0: not known. Two known forms cannot be compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureColumns(Columns):
    """(N,) captures that show content, ordered by page and time."""

    page: Ints
    """Row of the page's state."""
    at: Instants
    digest: Ints
    """Hash of the archive's digest; 0: the content of the capture before."""


def is_late(states: PageStates, captures: CaptureColumns) -> Bools:
    """Return which captures a page has no use for.

    A capture is late if it is not newer than the last crawl of its page. All captures of a page
    are late if earlier ones were learnt, and the page has not been crawled since.
    """
    learnt = np.isnat(states.last_crawl_at) & states.estimate.any(axis=1)
    late: Bools = learnt[captures.page] | (captures.at <= states.last_crawl_at[captures.page])
    return late


def after_captures(
    estimator: Estimator[Any], states: PageStates, captures: CaptureColumns
) -> PageStates:
    """Return the states with the estimates after captures that are not late.

    Two captures in a row are an observation of the time between them. Digests of different forms
    are none, as after a change of the algorithm. The counts stay those of own crawls, by which an
    epoch knows first crawls. Captures of `complete` pages and of pages with pings teach nothing,
    because no file has the pings between captures.
    """
    groups = Groups.of(captures.page)
    n, none = len(captures), np.zeros(len(groups.start), np.int64)
    digest = captures.digest
    before = groups.before(none, digest != 0, digest)
    started = groups.before(np.full(len(none), NO_TIME), np.ones(n, np.bool_), captures.at)
    interval = days(captures.at - started)
    learns = (states.observability != Observability.complete) & (states.n_pings == 0)
    form, form_before = digest & FORM, before & FORM
    other_form = (form != form_before) & (form != 0) & (form_before != 0)
    is_known = (digest == 0) | ((before != 0) & ~other_form)
    is_evidence = (interval > 0) & is_known & learns[captures.page]
    changed = (digest != 0) & (digest != before)
    zeros = np.zeros(n)
    evidence = OrderedCrawls(
        page=captures.page,
        observed_at=captures.at,
        interval=interval,
        changed=changed,
        n_pings=zeros.astype(np.int64),
        total_pings=zeros.astype(np.int64),
        recent_pings=zeros,
        crawl_rate=zeros,
        age=np.full(n, np.nan),
    ).take(is_evidence)
    evidence = replace(evidence, crawl_rate=_usual_rate(evidence))
    return replace(states, **learn_crawls(estimator, states, evidence)._asdict())


def _usual_rate(evidence: OrderedCrawls) -> Floats:
    """Return the captures a day of each capture's page, for estimators that ask for a crawl rate.

    No schedule was in force when the archive made its captures.
    """
    with np.errstate(divide="ignore", invalid="ignore"):  # of pages without evidence
        usual = np.bincount(evidence.page) / np.bincount(evidence.page, evidence.interval)
    return np.asarray(usual[evidence.page], np.float64)


def newest_captures(n_pages: int, captures: CaptureColumns) -> Instants:
    """Return the (P,) time of each page's newest capture; NaT: the page has none."""
    newest = np.full(n_pages, NO_TIME)
    # of several values for one index the last one counts
    newest[captures.page] = captures.at
    return newest


def with_copies(states: PageStates, newest: Instants, interval_factor: Floats) -> PageStates:
    """Return states whose copies are the newest captures, for pages that have one.

    The first crawl has no digest to compare with, so its report has no verdict.
    """
    has = ~np.isnat(newest)
    never, zero = np.full(len(states), NO_TIME), np.zeros(len(states), np.int64)
    copied = replace(
        states,
        last_crawl_at=newest,
        last_observed_at=newest,
        digest=zero,
        gone=np.zeros(len(states), np.bool_),
        n_failures=zero,
        outcome=zero.astype(np.int16),
        absent_since=never,
        retry_rate=np.zeros(len(states)),
        last_interval=np.zeros(len(states)),
        last_age=np.full(len(states), np.nan),
        redirects_to=zero,
        interval_factor=interval_factor,
    )
    return _chosen(has, copied, states)


def without_copies(states: PageStates, newest: Instants, now: np.datetime64) -> PageStates:
    """Return states that make pages due at once if captures are newer than their last crawl.

    A page that was never crawled is due at once as it is. The time of the newest capture counts as
    that of a crawl, so that the same captures are late when they are imported again.
    """
    again = ~np.isnat(newest) & ~np.isnat(states.last_crawl_at)
    requested = np.full(len(states), now)
    asked = replace(
        states,
        last_crawl_at=newest,
        requested_at=requested,
        renewed_at=np.full(len(states), NO_TIME),
    )
    return _chosen(again, asked, states)


def _chosen(where: Bools, some: PageStates, others: PageStates) -> PageStates:
    """Return the states `some` where a mask selects them, else the `others`."""
    columns = {}
    for name, column in some.arrays().items():
        other = getattr(others, name)
        mask = where[:, None] if column.ndim > 1 else where
        columns[name] = column if column is other else np.where(mask, column, other)
    return PageStates(**columns)
