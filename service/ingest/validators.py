"""Effects of crawls on the stored validators of their pages. Pure.

An answer with content replaces both validators. A 304 replaces those that it states. A failure or a
redirect keeps them, and a page that is gone has none. Only crawls that are newer than the page's
last one count, so an old etag never comes back.
"""

import numpy as np

from service.ingest.crawls import NOT_MODIFIED, answers
from service.model.arrays import NO_TIME, Bools, Groups, Ints
from service.model.columns import CrawlColumns
from service.storage.validators import ValidatorChanges


def validator_changes(
    page_id: Ints, groups: Groups, crawls: CrawlColumns
) -> ValidatorChanges | None:
    """Return the changes of (P,) pages by (N,) crawls, ordered by page and time; None: no change.

    A note counts whatever the crawl found.
    """
    answer, gone = answers(crawls)
    resets = answer & (crawls.status != NOT_MODIFIED)
    reset_at = _last(groups, resets)
    has_etag, has_date = crawls.etag != "", ~np.isnat(crawls.last_modified)
    has_note = crawls.note != ""
    if has_etag.any() or has_date.any() or has_note.any():
        shown = answer & ~gone
        etag_at = _last(groups, shown & has_etag)
        date_at = _last(groups, shown & has_date)
        note_at = _last(groups, has_note)
        changes = ValidatorChanges(
            page_id=page_id,
            etag=np.where((etag_at >= 0) & (etag_at >= reset_at), crawls.etag[etag_at], ""),
            last_modified=np.where(
                (date_at >= 0) & (date_at >= reset_at), crawls.last_modified[date_at], NO_TIME
            ),
            note=np.where(note_at >= 0, crawls.note[note_at], ""),
            resets=reset_at >= 0,
        )
        where = changes.resets | ~changes.only_reset
    else:
        n, nothing = len(page_id), np.broadcast_to(np.array("", object), len(page_id))
        changes = ValidatorChanges(
            page_id=page_id,
            etag=nothing,
            last_modified=np.broadcast_to(NO_TIME, n),
            note=nothing,
            resets=reset_at >= 0,
        )
        where = changes.resets
    if not where.any():
        return None
    return changes if where.all() else changes.take(where)


def _last(groups: Groups, mask: Bools) -> Ints:
    """Return (P,) positions of the last crawl of each page that a mask selects; -1: none."""
    return groups.after(np.full(len(groups.start), -1), mask, np.arange(len(mask)))
