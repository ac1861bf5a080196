"""The worth of new pages in the SQL of SQLite."""

from datetime import datetime
from itertools import repeat

import numpy as np
from typing_extensions import override

from service.model.arrays import Ints
from service.storage.budget.worth import WRITTEN, HeldPages, NewLevels, UrlLevels
from service.storage.budget.worth_sql import WorthSql
from service.storage.sqlite.sql import SqliteDialect
from service.storage.sqlite.values import microseconds, values

ADD_LEVEL = "INSERT OR IGNORE INTO url_levels (level, parent, name, since) VALUES (?, ?, ?, ?)"
SAVE_LEVEL = f"""
UPDATE url_levels SET since = CASE WHEN stopped = ? THEN since ELSE ? END,
    {", ".join(f"{name} = ?" for name in WRITTEN)}
WHERE level = ?
"""
WAITING_PAGES = """
SELECT page_id FROM page_states WHERE held = ? ORDER BY page_id LIMIT ?
"""
ADD_DIGESTS = """
INSERT INTO digests (digest) SELECT value FROM {ids} WHERE true
ON CONFLICT DO NOTHING RETURNING digest
"""


class SqliteWorth(WorthSql, SqliteDialect):
    """The statements on levels in the SQL of SQLite."""

    @override
    def add_levels(self, levels: NewLevels, now: datetime) -> None:
        columns = (values(column) for column in levels.arrays().values())
        self.run_many(ADD_LEVEL, *columns, repeat(microseconds(now), len(levels)))

    @override
    def save_levels(self, levels: UrlLevels, now: datetime) -> None:
        written = (values(getattr(levels, name)) for name in (*WRITTEN, "level"))
        since = repeat(microseconds(now), len(levels))
        self.run_many(SAVE_LEVEL, values(levels.stopped), since, *written)

    @override
    def waiting_pages(self, level: Ints, at_most: Ints) -> HeldPages:
        each = zip(level.tolist(), at_most.tolist(), strict=True)
        pages = [self.ids_of(WAITING_PAGES, *row) for row in each]
        n = [len(some) for some in pages]
        page_id = np.concatenate([*pages, np.zeros(0, np.int64)])
        return HeldPages(page_id=page_id, level=np.repeat(level, n))

    def ids_of(self, statement: str, *row: int) -> Ints:
        """Return the ids that a SELECT reads."""
        return np.array([each for (each,) in self.run(statement, *row)], np.int64)

    @override
    def add_digests(self, digest: Ints) -> Ints:
        return np.sort(self.ids(ADD_DIGESTS, ids=digest))
