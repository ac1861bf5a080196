"""Effects of crawls on the stored validators of their pages. Pure.

An answer with content replaces both validators. A 304 replaces those that it states. A failure or a
redirect keeps them, and a page that is gone has none. Only crawls that are newer than the page's
last one count, so an old etag never comes back.

A Last-Modified counts by whole seconds, and the site's clock may differ. So a page may change again
under the same date. Therefore a date younger than `DATED_AFTER` at its crawl is no validator.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.model.arrays import NO_TIME, Bools, Groups, Ints, Texts
from service.model.columns import CrawlColumns
from service.model.outcomes import NOT_MODIFIED
from service.storage.pages.validators import ValidatorChanges

DATED_AFTER = np.timedelta64(1, "m")
"""Minimum age of a Last-Modified that is stored (RFC 9110, section 8.8.2.2)."""


def has_values(crawls: CrawlColumns) -> bool:
    """Return whether any crawl has a validator or a note."""
    dated = not np.isnat(crawls.last_modified).all()
    return dated or crawls.etag is not None or crawls.note is not None


def reset_pages(page_id: Ints, groups: Groups, crawls: CrawlColumns, answer: Bools) -> Ints:
    """Return those of (P,) pages that have a new answer, by (N,) crawls without validators."""
    new = answer & (crawls.status != NOT_MODIFIED)
    return page_id[_last(groups, new) >= 0]


def validator_changes(
    page_id: Ints, groups: Groups, crawls: CrawlColumns, answer: Bools, gone: Bools, doubtful: Bools
) -> ValidatorChanges:
    """Return the changes of (P,) pages by (N,) crawls, ordered by page and time.

    A note counts whatever the crawl found, unless the crawl is doubtful. Readers do not know
    what such a crawl found, so the page keeps the note of the version before. The masks are those
    of the comparison.
    """
    reset_at = _last(groups, answer & (crawls.status != NOT_MODIFIED))
    shown, dated = answer & ~gone, crawls.observed_at - crawls.last_modified >= DATED_AFTER
    changes = ValidatorChanges(
        page_id=page_id,
        etag=_newest_text(crawls.etag, groups, shown, reset_at),
        last_modified=_newest(crawls.last_modified, groups, shown & dated, reset_at, NO_TIME),
        note=_newest_text(crawls.note, groups, ~doubtful, np.zeros_like(reset_at)),
        resets=reset_at >= 0,
    )
    return changes.where(changes.resets | ~changes.only_reset)


def _newest_text(texts: Texts, groups: Groups, mask: Bools, since: Ints) -> NDArray[np.object_]:
    if texts is None:
        return np.full(len(since), "", object)
    return _newest(texts, groups, mask & (texts != ""), since, "")


def _newest(
    values: NDArray[Any], groups: Groups, mask: Bools, since: Ints, none: Any
) -> NDArray[Any]:
    """Return (P,) last values that a mask selects from position `since` on, or `none`."""
    at = _last(groups, mask)
    return np.where(at >= np.maximum(since, 0), values[at], none)


def _last(groups: Groups, mask: Bools) -> Ints:
    """Return (P,) positions of the last crawl of each page that a mask selects; -1: none."""
    return groups.after(np.full(len(groups.start), -1), mask, np.arange(len(mask)))
