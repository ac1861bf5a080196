"""The feed of changes: the SQL that both databases share."""

from abc import abstractmethod
from collections.abc import Iterator

import numpy as np
from typing_extensions import override

from service.model.arrays import Ints
from service.model.changes import (
    ChangeColumns,
    ChangeFilter,
    FeedBounds,
    FeedColumns,
    FeedPart,
    FeedPlace,
    PageUrls,
)
from service.storage.change_blocks import MOST_IN_BLOCK, packed, unpacked
from service.storage.contract import Transaction
from service.storage.dialect import Dialect, all_of

FIRST_BLOCKS, MORE, MOST_BLOCKS = 8, 4, 512
"""Blocks of the first statement of a reading; growth of each further one, and their maximum."""

READ = """
SELECT seq, items FROM feed WHERE seq >= %(seq)s ORDER BY seq LIMIT %(limit)s
"""
NEWEST = "SELECT max(seq) FROM feed"
OLD = """
SELECT max(seq) FROM (
    SELECT seq FROM feed WHERE seq < %(before)s AND seq < (SELECT max(seq) FROM feed)
    ORDER BY seq LIMIT %(limit)s
) AS old
"""
DELETE = "DELETE FROM feed WHERE seq <= %(last)s"
CUT, ID = "feed_cut", "feed_id"
"""Names of the entries of `meta`: the number after the last deleted block, the feed's id."""
NAME = """
INSERT INTO meta (name, value) VALUES (%(name)s, %(value)s) ON CONFLICT (name) DO NOTHING
"""
URLS = """
SELECT page_id, url FROM pages WHERE page_id IN (SELECT value FROM {{ids}}) AND {condition}
ORDER BY page_id
"""
OF_HOST = "host_id = (SELECT host_id FROM hosts WHERE host = %(host)s)"
WITH_PREFIX = "substr(url, 1, length(%(prefix)s)) = %(prefix)s"


def blocks(changes: ChangeColumns) -> Iterator[tuple[int, bytes]]:
    """Yield the number of changes and the bytes of each block."""
    for start in range(0, len(changes), MOST_IN_BLOCK):
        part = changes.take(slice(start, start + MOST_IN_BLOCK))
        yield len(part), packed(part)


def url_condition(only: ChangeFilter) -> tuple[str, dict[str, str]]:
    """Return the condition on pages of a filter, and its parameters."""
    wanted = {"host": only.host, "prefix": only.prefix}
    values = {name: value for name, value in wanted.items() if value is not None}
    conditions = {"host": OF_HOST, "prefix": WITH_PREFIX}
    return all_of(conditions[name] for name in values), values


class FeedSql(Dialect, Transaction):
    """The statements of the feed."""

    @abstractmethod
    def latest_number(self) -> int:
        """Return the highest number that a block may have now."""

    @override
    def changes(self, place: FeedPlace, limit: int) -> FeedPart:
        parts: list[FeedColumns] = []
        n_blocks, n, after = FIRST_BLOCKS, 0, place
        while True:
            rows = list(self.run(READ, seq=after.seq, limit=n_blocks))
            for seq, items in rows:
                start = after.offset if seq == after.seq else 0
                part = _placed(seq, unpacked(items)).take(slice(start, None))
                parts.append(part.take(slice(limit - n)))
                n += len(part)
                if n > limit:
                    after = FeedPlace(seq, start + len(parts[-1]))
                    return FeedPart(FeedColumns.concatenate(parts), after, whole=False)
                after = FeedPlace(seq + 1)
            if len(rows) < n_blocks or n == limit:
                whole = len(rows) < n_blocks
                return FeedPart(FeedColumns.concatenate(parts), after, whole)
            n_blocks = min(n_blocks * MORE, MOST_BLOCKS)

    @override
    def page_urls(self, page_id: Ints, only: ChangeFilter) -> PageUrls:
        condition, values = url_condition(only)
        rows = list(self.run(URLS.format(condition=condition), ids=page_id, **values))
        ids, urls = zip(*rows, strict=True) if rows else ((), ())
        return PageUrls(np.array(ids, np.int64), np.array(urls, object))

    @override
    def newest_change(self) -> int:
        return self.scalar(NEWEST) or 0

    @override
    def feed_bounds(self) -> FeedBounds:
        return FeedBounds(int(self.get_meta(CUT) or 0), self.newest_change(), self.latest_number())

    @override
    def cut_feed(self, before: int, limit: int) -> bool:
        last = self.scalar(OLD, before=before, limit=limit)
        if last is None:
            return False
        self.put_meta(CUT, str(last + 1))
        self.run(DELETE, last=last)
        return True

    @override
    def feed_id(self) -> str:
        return self.get_meta(ID)

    @override
    def name_feed(self, feed_id: str) -> None:
        self.run(NAME, name=ID, value=feed_id)


def _placed(seq: int, changes: ChangeColumns) -> FeedColumns:
    n = len(changes)
    return FeedColumns(
        **changes.arrays(), seq=np.full(n, seq, np.int64), offset=np.arange(n, dtype=np.int64)
    )
