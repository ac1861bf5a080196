"""Lists of pages, tags and acts on many pages in the SQL of SQLite."""

from dataclasses import fields
from typing import Any

import numpy as np
from typing_extensions import override

from service.model.arrays import Ints
from service.model.listing import ListedPages, PageTags
from service.storage.bulk_sql import BulkSql
from service.storage.listing_sql import ListingSql
from service.storage.sqlite import sql
from service.storage.sqlite.connections import Turns

COLUMNS = ", ".join({"tags": "coalesce(tags, '')"}.get(f.name, f.name) for f in fields(ListedPages))
INSERT_TAG = """
INSERT OR IGNORE INTO page_tags (tag_id, page_id) SELECT tag_id, ? FROM tags WHERE tag = ?
"""
DROP_TAG = """
DELETE FROM page_tags WHERE page_id = ? AND tag_id = (SELECT tag_id FROM tags WHERE tag = ?)
"""


class SqliteListing(ListingSql, BulkSql, sql.SqliteDialect):
    """Lists of pages in the SQL of SQLite."""

    fetching: Turns

    @override
    def read_listed(self, statement: str, **parameters: Any) -> ListedPages:
        # one reader at a time, because the driver releases the interpreter at every row
        with self.fetching:
            rows = self.run(f"SELECT {COLUMNS} FROM ({statement})", **parameters).fetchall()
        return self.columns(ListedPages, rows)

    @override
    def updated(self, statement: str, **parameters: Any) -> Ints:
        rows = self.run(f"{statement} RETURNING page_id", **parameters).fetchall()
        return np.sort(np.array([page_id for (page_id,) in rows], np.int64))

    @override
    def insert_tags(self, pairs: PageTags) -> None:
        self.run_many(INSERT_TAG, *map(sql.values, pairs.arrays().values()))

    @override
    def drop_tags(self, pairs: PageTags) -> None:
        self.run_many(DROP_TAG, *map(sql.values, pairs.arrays().values()))

    @override
    def hold_hosts(self) -> None:
        """Return at once, because a transaction that writes is the only one."""
