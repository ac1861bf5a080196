"""Deletion of pages: their states and logs go, and the feed has a last change of each."""

from datetime import datetime

import numpy as np

from service.budget.admission import forget
from service.model.arrays import NO_TIME, Ints, instant
from service.model.changes import ChangeColumns, ChangeKind
from service.storage import Transaction


def delete(tx: Transaction, page_id: Ints, now: datetime) -> Ints:
    """Delete pages, ascending; return those that were there.

    The feed has the deletion of each page with a reported crawl: no reader knows of the others.
    """
    there = tx.lock_page_rows(page_id)
    if not len(there):
        return there
    forget(tx, there, now)
    noted = tx.note_deleted(there, now)
    if len(noted):
        tx.append_changes(deletions(noted, now))
    tx.delete_many(there)
    return there


def deletions(page_id: Ints, now: datetime) -> ChangeColumns:
    """Return the changes of pages that are deleted at an instant."""
    n = len(page_id)
    return ChangeColumns(
        page_id=page_id,
        observed_at=np.full(n, instant(now)),
        changed_after=np.full(n, NO_TIME),
        kind=np.full(n, ChangeKind.deleted, np.int16),
        digest=np.zeros(n, np.int64),
        last_modified=np.full(n, NO_TIME),
        moved_to=np.zeros(n, np.int64),
    )
