"""Changes that crawls found, for the feed. Pure."""

import numpy as np

from service.ingest.crawls import (
    CrawlComparison,
    last_answer,
    moved_permanently,
    redirect_before,
    redirected,
)
from service.model.arrays import NO_TIME, Bools, Groups, positions
from service.model.changes import ChangeColumns, ChangeKind
from service.model.columns import CrawlColumns, PageStates

NO_CHANGES = ChangeColumns.empty()


def changes(
    states: PageStates,
    groups: Groups,
    crawls: CrawlColumns,
    comparison: CrawlComparison,
    past: Bools | None = None,
) -> ChangeColumns:
    """Return the changes that (N,) crawls found, in the order of the crawls.

    Those that are `past` found none (`model.past`); None: no crawl is.
    A page is new at its first answer with content. The kind of a page's last change is its state:
    gone, moved, or present.
    """
    answer, first = comparison.answer, np.isnan(comparison.interval)
    finds = answer if past is None else answer & ~past
    is_back = finds & comparison.was_gone & ~comparison.gone
    is_change = is_back | (finds & (first | (comparison.changed == 1)))
    still_gone = finds & comparison.gone & comparison.was_gone
    if not (is_change | still_gone).any():
        return NO_CHANGES
    moved, target = moved_permanently(comparison), np.maximum(crawls.redirects_to, 0)
    if still_gone.any():  # such a page may still move, or move elsewhere
        target_before = redirect_before(states, groups, crawls, redirected(comparison))
        is_change |= still_gone & (target_before != moved * target)
    where = positions(is_change)
    gone, was_gone = comparison.gone[where], comparison.was_gone[where]
    kind = np.where(was_gone, ChangeKind.back, ChangeKind.changed)
    kind = np.where(first[where], ChangeKind.new, kind)
    kind = np.where(gone, np.where(moved[where], ChangeKind.moved, ChangeKind.gone), kind)
    after = last_answer(states, groups, crawls, answer)
    at, since = crawls.observed_at[where], after[where]
    modified = crawls.last_modified[where]
    # a date outside of the interval contradicts the result of the crawl
    within = (modified > since) & (modified < at) & ~gone
    return ChangeColumns(
        page_id=crawls.page_id[where],
        observed_at=at,
        changed_after=since,
        kind=kind.astype(np.int16),
        digest=np.where(gone, 0, crawls.digest[where]),
        last_modified=np.where(within, modified, NO_TIME),
        moved_to=np.where(moved[where], target[where], 0),
        weight=None if comparison.weight is None else comparison.weight[where],
    )
