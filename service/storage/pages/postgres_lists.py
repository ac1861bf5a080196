"""Lists of pages, tags and acts on many pages in the SQL of Postgres."""

from typing import Any

import numpy as np
from typing_extensions import override

from service.model.arrays import Instants, Ints
from service.model.freshness import FreshnessColumns, LoggedChanges
from service.model.listing import ListedPages, PageTags
from service.storage.pages.bulk import BulkSql
from service.storage.pages.freshness import CHANGES, FRESHNESS, FreshnessStatements
from service.storage.pages.listing import ListingSql
from service.storage.postgres.dialect import PostgresDialect
from service.storage.postgres.short_numbers import broad
from service.storage.postgres.words import given
from service.storage.queue.postgres import DUE

COLUMNS = {
    **DUE,
    "url": "url",
    "importance": "importance",
    "observability": "observability",
    "min_crawl_rate": "coalesce(min_crawl_rate, 'NaN')",
    "max_crawl_rate": "coalesce(max_crawl_rate, 'NaN')",
    "change_rate": "coalesce(change_rate, 'NaN')::float8",
    "crawl_rate": "coalesce(crawl_rate, 'NaN')::float8",
    "n_observations": "n_observations::bigint",
    "n_changes": "n_changes::bigint",
    "tags": "coalesce(tags, '')",
    "redirects_to": "redirects_to",
    "redirect_url": "coalesce(redirect_url, '')",
}
"""Expression of each of the `ListedPages`, with a value in place of NULL."""
TEXTS = ("url", "tags", "redirect_url")
RATES = ("change_rate", "crawl_rate")
ARRAYS = ", ".join(
    f"string_agg({column}, E'\\n')" if name in TEXTS else f"array_agg({column})"
    for name, column in COLUMNS.items()
)
"""Arrays of all columns; neither URLs nor tags have a line break."""

FRESH = {
    **DUE,
    "observability": "observability",
    "host_id": "host_id",
    "url_group": "url_group",
    "last_observed_at": "coalesce(last_observed_at, '-infinity')",
    "last_interval": "last_interval::float8",
    "n_observations": "n_observations::bigint",
    "n_changes": "n_changes::bigint",
    "n_pings": "n_pings::bigint",
    "recent_pings": "recent_pings",
    "pings_since": "pings_since",
    "pings_since_crawl": "pings_since_crawl::bigint",
    "last_ping_at": "coalesce(last_ping_at, '-infinity')",
    "real_pings": "real_pings",
    "false_pings": "false_pings",
    "trust": "trust",
    "estimate": "estimate",
    "born_at": "coalesce(born_at, '-infinity')",
    "urgency": "coalesce(urgency, 'NaN')::float8",
    "observed_ratio": "observed_ratio::float8",
}
"""Expression of each of the `FreshnessColumns`, with a value in place of NULL."""
FRESH_ARRAYS = ", ".join(f"array_agg({column})" for column in FRESH.values())
LOGGED_CHANGES = f"""
SELECT array_agg(coalesce(first_at, '-infinity') ORDER BY position),
    array_agg(coalesce(first_interval, 'NaN') ORDER BY position), array_agg(n ORDER BY position)
FROM unnest(%(page_id)s::bigint[], %(since)s::timestamptz[])
    WITH ORDINALITY AS given (page_id, since, position), LATERAL (
    SELECT min(observed_at) AS first_at, (array_agg("interval" ORDER BY observed_at))[1]
        AS first_interval, count(*) AS n
    FROM {{log}} WHERE observations.page_id = given.page_id AND {CHANGES}
) AS changes
"""

HOLD_HOSTS = "LOCK TABLE hosts IN EXCLUSIVE MODE"
"""Statement that waits for every transaction that has added a host, as registering does first."""
HOLD_SETTINGS = "SELECT pg_advisory_xact_lock(hashtext('recrawl.settings'), hashtext(%(name)s))"
"""Statement that waits; two names with one hash wait for each other, which does no harm."""

UPDATED = """
WITH updated AS ({statement} RETURNING page_id)
SELECT array_agg(page_id ORDER BY page_id) FROM updated
"""
INSERT_TAGS = f"""
INSERT INTO page_tags (tag_id, page_id)
SELECT tag_id, page_id FROM {given("page_id", "tag")} JOIN tags USING (tag)
ORDER BY tag_id, page_id
ON CONFLICT DO NOTHING
"""
DROP_TAGS = f"""
DELETE FROM page_tags USING {given("page_id", "tag")} JOIN tags USING (tag)
WHERE page_tags.tag_id = tags.tag_id AND page_tags.page_id = given.page_id
"""


class PostgresListing(BulkSql, ListingSql, PostgresDialect, FreshnessStatements):
    """Lists of pages in the SQL of Postgres."""

    @override
    def read_listed(self, statement: str, **parameters: Any) -> ListedPages:
        # planned for each reading, because the best plan depends on the range and the filter
        ((*row,),) = self.once(f"SELECT {ARRAYS} FROM ({statement}) AS rows", **parameters)
        if row[0] is None:
            return ListedPages.empty()
        columns = dict(zip(COLUMNS, row, strict=True))
        columns |= {name: np.array(columns[name].split("\n"), object) for name in TEXTS}
        columns |= {name: broad(columns[name]) for name in RATES}
        return ListedPages(**columns)

    @override
    def freshness_columns(self, page_id: Ints) -> FreshnessColumns:
        statement = f"SELECT {FRESH_ARRAYS} FROM ({FRESHNESS}) AS rows"
        (row,) = self.run(statement, ids=page_id, epoch=self.number_in_force())
        if row[0] is None:
            return FreshnessColumns.empty(estimate=(self.width,))
        columns = dict(zip(FRESH, row, strict=True))
        columns["estimate"] = columns["estimate"].view("<f8").reshape(-1, self.width)
        return self.with_hours(FreshnessColumns(**columns))

    @override
    def logged_changes(self, page_id: Ints, since: Instants) -> LoggedChanges:
        return self.columns(LoggedChanges, LOGGED_CHANGES, page_id=page_id, since=since)

    @override
    def updated(self, statement: str, **parameters: Any) -> Ints:
        return self.id_array(UPDATED.format(statement=statement), **parameters)

    @override
    def insert_tags(self, pairs: PageTags) -> None:
        self.run(INSERT_TAGS, **pairs.arrays())

    @override
    def drop_tags(self, pairs: PageTags) -> None:
        if len(pairs):
            self.run(DROP_TAGS, **pairs.arrays())

    @override
    def hold_hosts(self) -> None:
        self.once(HOLD_HOSTS)

    @override
    def hold_settings(self, name: str) -> None:
        self.once(HOLD_SETTINGS, name=name)
