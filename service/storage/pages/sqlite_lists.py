"""Lists of pages, tags and acts on many pages in the SQL of SQLite."""

import json
from typing import Any

import numpy as np
from typing_extensions import override

from service.model.arrays import Instants, Ints, element_types
from service.model.freshness import FreshnessColumns, LoggedChanges
from service.model.listing import ListedPages, PageTags
from service.storage.pages.bulk import BulkSql
from service.storage.pages.freshness import CHANGES, FRESHNESS, FreshnessStatements
from service.storage.pages.listing import ListingSql
from service.storage.sqlite.connections import Turns
from service.storage.sqlite.sql import SqliteDialect
from service.storage.sqlite.values import values

MAY_BE_NULL = {name: f"coalesce({name}, '')" for name in ("tags", "redirect_url")}
COLUMNS = ", ".join(MAY_BE_NULL.get(name, name) for name in element_types(ListedPages))
FRESH = ", ".join(element_types(FreshnessColumns))
LOGGED_CHANGES = f"""
SELECT min(observed_at), "interval", count(page_id) FROM (
    SELECT json_extract(value, '$[0]') AS wanted, json_extract(value, '$[1]') AS since, key
    FROM json_each(%(pairs)s)
) AS given LEFT JOIN observations ON {{log_of_any}} AND observations.page_id = given.wanted
    AND {CHANGES}
GROUP BY given.key ORDER BY given.key
"""
"""Statement in which the interval is that of the first change, as SQLite defines beside `min`."""
INSERT_TAG = """
INSERT OR IGNORE INTO page_tags (tag_id, page_id) SELECT tag_id, ? FROM tags WHERE tag = ?
"""
DROP_TAG = """
DELETE FROM page_tags WHERE page_id = ? AND tag_id = (SELECT tag_id FROM tags WHERE tag = ?)
"""


class SqliteListing(BulkSql, ListingSql, SqliteDialect, FreshnessStatements):
    """Lists of pages in the SQL of SQLite."""

    fetching: Turns

    @override
    def read_listed(self, statement: str, **parameters: Any) -> ListedPages:
        # one reader at a time, because the driver releases the interpreter at every row
        with self.fetching:
            rows = self.run(f"SELECT {COLUMNS} FROM ({statement})", **parameters).fetchall()
        return self.columns(ListedPages, rows)

    @override
    def freshness_columns(self, page_id: Ints) -> FreshnessColumns:
        statement = f"SELECT {FRESH} FROM ({FRESHNESS})"
        rows = self.run(statement, ids=page_id, epoch=self.number_in_force())
        return self.with_hours(self.columns(FreshnessColumns, rows))

    @override
    def logged_changes(self, page_id: Ints, since: Instants) -> LoggedChanges:
        pairs = json.dumps(list(zip(page_id.tolist(), values(since), strict=True)))
        return self.columns(LoggedChanges, self.run(LOGGED_CHANGES, pairs=pairs))

    @override
    def updated(self, statement: str, **parameters: Any) -> Ints:
        rows = self.run(f"{statement} RETURNING page_id", **parameters).fetchall()
        return np.sort(np.array([page_id for (page_id,) in rows], np.int64))

    @override
    def insert_tags(self, pairs: PageTags) -> None:
        self.run_many(INSERT_TAG, *map(values, pairs.arrays().values()))

    @override
    def drop_tags(self, pairs: PageTags) -> None:
        self.run_many(DROP_TAG, *map(values, pairs.arrays().values()))

    @override
    def hold_hosts(self) -> None:
        """Return at once, because a transaction that writes is the only one."""

    @override
    def hold_settings(self, name: str) -> None:
        """Return at once, because a transaction that writes is the only one."""
