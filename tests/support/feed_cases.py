"""Columns of changes, and the whole feed of a store."""

import numpy as np

from service.model.changes import ChangeColumns, ChangeKind, FeedColumns, FeedPlace
from support.store_cases import columns


def change_columns(page_id, at, kind=ChangeKind.changed, changed_after=None, **fields):
    """Return the columns of changes."""
    none = {"digest": 0, "last_modified": None, "moved_to": 0}
    n = len(page_id)
    values = {**none, "changed_after": changed_after, **fields}
    for name in ("changed_after", "last_modified"):
        if values[name] is None:
            values[name] = np.datetime64("NaT", "us")
    return columns(ChangeColumns, n, page_id=page_id, observed_at=at, kind=kind, **values)


def feed_of(store, limit=1_000, most_parts=100) -> FeedColumns:
    """Return the whole feed, read in parts of at most `limit` changes."""
    parts, place = [], FeedPlace(0)
    for _ in range(most_parts):
        with store.begin(write=False) as tx:
            part = tx.changes(place, limit)
        assert len(part.changes) <= limit
        assert part.after >= place
        parts.append(part.changes)
        place = part.after
        if part.whole:
            return FeedColumns.concatenate(parts)
    raise AssertionError("the feed has no end")
