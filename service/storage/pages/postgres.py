"""Pages in the SQL of Postgres; writers lock by page_id, a page before its state."""

from dataclasses import replace
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from service.model.arrays import UNSPECIFIED, Ints, Keys, instant
from service.model.births import KNOWN_FOR
from service.model.columns import PageColumns, PageStates, StoredPages
from service.model.domain import Observability, Page
from service.model.urls import url_groups
from service.storage.pages.contract import Brought, PagesSql, RegisteredPages
from service.storage.pages.postgres_states import BRING_STATES, OWN, RARE, STATES, PostgresStates
from service.storage.postgres.dialect import named
from service.storage.postgres.short_numbers import SHORT_RATES, broad
from service.storage.postgres.words import given

ADD_HOSTS = """
INSERT INTO hosts (host, known_at)
SELECT DISTINCT host, %(now)s::timestamptz FROM unnest(%(host)s::text[]) AS given (host)
WHERE NOT EXISTS (SELECT FROM hosts WHERE hosts.host = given.host)
ORDER BY host
ON CONFLICT DO NOTHING
"""

ADDED = """
WITH given AS (
    SELECT * FROM unnest(%(key)s, %(url)s, %(host)s, %(importance)s, %(min_crawl_rate)s,
        %(max_crawl_rate)s, {arrays}) WITH ORDINALITY AS given (key, url, host, importance,
        min_crawl_rate, max_crawl_rate, {columns}, position)
), added AS (
    INSERT INTO pages
        ({id}key, url, host_id, importance, min_crawl_rate, max_crawl_rate, created_at)
    SELECT {next_id}key, url, host_id, coalesce(nullif(importance, 'NaN'), 1),
        nullif(min_crawl_rate, 'NaN'), nullif(given.max_crawl_rate, 'NaN'), {created_at}
    FROM given JOIN hosts USING (host)
    ORDER BY key
    ON CONFLICT (key) DO NOTHING
    RETURNING page_id, key, host_id
)"""
ROWS_ADDED = """
SELECT array_agg(coalesce(page_id, 0) ORDER BY position) FROM given LEFT JOIN added USING (key)
"""


def page_insertion(**ids: str) -> str:
    """Return the statement that inserts pages and their states; `ids` are those of `ADDED`."""
    added = ADDED.format(
        arrays="%(observability)s, %(url_group)s, %(held)s",
        columns="observability, url_group, held",
        created_at="%(now)s",
        **(ids or DRAWN_IDS),
    )
    return f"""{added}, states AS (
    INSERT INTO page_states
        (page_id, host_id, pings_since, interval_factor, n_observations, n_changes, observability,
        gone, url_group, held, born_at, estimate)
    SELECT page_id, added.host_id, %(now)s, 1, 0, 0,
        coalesce(nullif(observability, -1::smallint), 2), false, url_group, nullif(held, 0),
        CASE WHEN coalesce(known_at <= %(known_before)s, true) THEN %(now)s END, %(estimate)s
    FROM added JOIN given USING (key) JOIN hosts ON hosts.host_id = added.host_id
    ORDER BY page_id
)
{ROWS_ADDED}"""


def brought_insertion(**ids: str) -> str:
    """Return the statement that inserts pages without states; `ids` are those of `ADDED`."""
    columns = {"arrays": "%(created_at)s", "columns": "created_at", "created_at": "created_at"}
    return f"{ADDED.format(**columns, **(ids or DRAWN_IDS))}{ROWS_ADDED}"


DRAWN_IDS = {"id": "", "next_id": ""}
"""Words of `ADDED` where the table draws the ids of new pages."""

CHANGE_PAGES = f"""
WITH given AS (
    SELECT * FROM
    {given("page_id", "importance", "observability", "min_crawl_rate", "max_crawl_rate")}
), locked AS (
    SELECT page_id, page_states.observability AS was, given.observability AS chosen
    FROM pages JOIN given USING (page_id) JOIN page_states USING (page_id)
    WHERE coalesce(nullif(given.importance, 'NaN'), pages.importance) <> pages.importance
        OR given.observability NOT IN (-1, page_states.observability)
        OR nullif(given.min_crawl_rate, 'NaN') <> coalesce(pages.min_crawl_rate, -1)
        OR nullif(given.max_crawl_rate, 'NaN') <> coalesce(pages.max_crawl_rate, -1)
    ORDER BY page_id FOR NO KEY UPDATE OF pages, page_states
), changed AS (
    UPDATE page_states SET observability = chosen,
        n_pings = CASE chosen WHEN 1 THEN NULL ELSE n_pings END,
        recent_pings = CASE chosen WHEN 1 THEN NULL ELSE recent_pings END,
        pings_since = CASE chosen WHEN 1 THEN %(now)s ELSE pings_since END,
        ping_credit = CASE chosen WHEN 1 THEN NULL ELSE ping_credit END
    FROM locked WHERE locked.page_id = page_states.page_id AND chosen NOT IN (-1, was)
)
UPDATE pages SET
    importance = coalesce(nullif(given.importance, 'NaN'), pages.importance),
    min_crawl_rate = coalesce(nullif(given.min_crawl_rate, 'NaN'), pages.min_crawl_rate),
    max_crawl_rate = coalesce(nullif(given.max_crawl_rate, 'NaN'), pages.max_crawl_rate)
FROM locked JOIN given USING (page_id)
WHERE pages.page_id = locked.page_id
"""

PAGE_IDS = """
SELECT array_agg(
    coalesce((SELECT page_id FROM pages WHERE pages.key = given.key), 0) ORDER BY position
)
FROM unnest(%(key)s::uuid[]) WITH ORDINALITY AS given (key, position)
"""

READ_PAGES = f"""
SELECT {STATES}, array_agg(url), array_agg(importance), array_agg(coalesce(min_crawl_rate, 'NaN')),
    array_agg(coalesce(max_crawl_rate, 'NaN')), array_agg(created_at),
    array_agg(coalesce(born_at, '-infinity')), array_agg(coalesce(feed, false))
FROM (
    SELECT page_states.*, {RARE}, url, importance, min_crawl_rate, max_crawl_rate, created_at, feed
    FROM pages JOIN page_states USING (page_id) WHERE page_id > %(after)s
    ORDER BY page_id LIMIT %(limit)s
) AS read
"""


class PostgresPages(PagesSql, PostgresStates):
    """Pages in the SQL of Postgres."""

    add_pages_sql = page_insertion()

    bring_pages_sql = brought_insertion()

    def add_hosts(self, host: NDArray[np.object_], now: datetime) -> None:
        """Insert hosts that are new."""
        if self.run(ADD_HOSTS, host=host, now=now).rowcount:
            self.resume_pauses(host.tolist())

    @override
    def add_pages(
        self, new: PageColumns, now: datetime, brought: Brought | None
    ) -> RegisteredPages:
        # in key order, so that two callers with the same new pages cannot deadlock
        columns: dict[str, Any] = new.arrays()
        url_group = url_groups(new.url)
        self.add_hosts(new.host, now)
        if brought is None:
            columns |= {"url_group": url_group, "now": now, "estimate": bytes(8 * self.width)}
            columns["known_before"] = now - KNOWN_FOR
            columns["held"] = self.holding(new.url, None)
            page_id = self.id_array(self.add_pages_sql, **columns)
        else:
            undated = np.isnat(brought.created_at)
            columns["created_at"] = np.where(undated, instant(now), brought.created_at)
            page_id = self.id_array(self.bring_pages_sql, **columns)
        created = page_id > 0
        if brought is not None and created.any():
            states = replace(
                brought.states,
                page_id=page_id,
                host_id=self._ids_of_hosts(new.host),
                held=self.holding(new.url, brought.states),
                observability=np.where(
                    new.observability == UNSPECIFIED, Observability.auto, new.observability
                ).astype(np.int16),
            )
            own = {"url_group": url_group[created], "born_at": brought.born_at[created]}
            self._save(BRING_STATES, states.take(created), **own)
        if not created.all():  # another transaction has added the others meanwhile
            page_id[~created] = self.page_ids(new.key[~created])
        return RegisteredPages(page_id, created)

    def _ids_of_hosts(self, host: NDArray[np.object_]) -> Ints:
        names, row = np.unique(host, return_inverse=True)
        return self.host_ids(names.tolist())[row]

    @override
    def change_pages(self, page_id: Ints, settings: PageColumns, now: datetime) -> None:
        names = ("importance", "observability", "min_crawl_rate", "max_crawl_rate")
        columns = {name: getattr(settings, name) for name in names}
        self.run(CHANGE_PAGES, page_id=page_id, now=now, **columns)

    @override
    def page_ids(self, key: Keys, host: NDArray[np.object_] | None = None) -> Ints:
        return self.id_array(PAGE_IDS, key=key)

    @override
    def read_pages(self, after: int, limit: int) -> tuple[StoredPages, PageStates]:
        # one statement is one snapshot
        (row,) = self.run(READ_PAGES, after=after, limit=limit)
        return named(StoredPages, (row[0], *row[OWN:])), self._states(row[:OWN])

    @override
    def page(self, page_id: int) -> Page:
        page = super().page(page_id)
        if page.crawl_rate is None:
            return self.page(page_id) if self.epoch_dropped() else page
        rates = broad(np.array([getattr(page, name) for name in SHORT_RATES])).tolist()
        return replace(page, **dict(zip(SHORT_RATES, rates, strict=True)))
