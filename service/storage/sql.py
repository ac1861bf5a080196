"""Single pages, subscriptions and the store itself: the SQL that both databases share."""

from abc import abstractmethod
from datetime import datetime

import numpy as np
from typing_extensions import override

from service.model.arrays import UNSPECIFIED, Bools, Ints, Keys
from service.model.columns import PageColumns, PageStates
from service.model.domain import Observability, Page, PagePatch
from service.model.errors import PageNotFound
from service.storage.bulk_sql import BulkSql
from service.storage.contract import Brought, Registered, Transaction
from service.storage.epochs.contract import EpochsSql
from service.storage.epochs.loading import LoadSql
from service.storage.epochs.schedule import ScheduleSql
from service.storage.feed.contract import FeedSql
from service.storage.history.contract import HistorySql
from service.storage.listing_sql import ListingSql
from service.storage.log.contract import ArchivedLog
from service.storage.queue.answers import AnswersSql
from service.storage.queue.contract import QueueSql
from service.storage.queue.hosts import HostsSql
from service.storage.tables import SELDOM_SET
from service.storage.webhooks.contract import WebhooksSql
from service.storage.webhooks.subscriptions import SubscriptionsSql

FIRST = 100
"""Keys of a batch that are looked up first; most batches have only known or only new pages."""


PING_NUMBERS = ("n_pings", "real_pings", "false_pings", "trust")
"""Columns that are NULL in the tables where they are 0."""

PAGE = """
SELECT pages.page_id, pages.url, host, pages.host_id, pages.importance, observability,
    pages.min_crawl_rate, pages.max_crawl_rate, pages.created_at, last_crawl_at,
    {observed_at} AS last_observed_at, gone, n_failures, n_observations, n_changes,
    n_pings, last_ping_at, pings_since, real_pings, false_pings, trust, url_group, estimate,
    CAST(change_rate AS double precision) AS change_rate,
    CAST(crawl_rate AS double precision) AS crawl_rate, urgency, shift, requested_at,
    interval_factor,
    CAST(crawl_rate AS double precision) * urgency AS due_rate,
    CASE WHEN epoch IS NOT NULL THEN coalesce(crawl_probability, 0.0) END AS crawl_probability,
    redirects_to, target.url AS redirects_to_url, etag, last_modified, note
FROM pages
JOIN hosts ON hosts.host_id = pages.host_id
JOIN page_states ON page_states.page_id = pages.page_id
{schedule_of: schedule, pages.page_id, %(epoch)s}
LEFT JOIN pages AS target ON target.page_id = page_states.redirects_to
LEFT JOIN page_validators ON page_validators.page_id = pages.page_id
WHERE pages.page_id = %(page_id)s
"""
"""Statement that reads a page. A crawl probability of 0 is NULL in the table; the result is NULL
only for a page without a schedule."""


CLEAR_ESTIMATES = """
UPDATE page_states SET estimate = %(zeros)s WHERE page_id BETWEEN %(first)s AND %(last)s
"""
"""Statement that does not read the old bytes, which may have another width."""

NEXT_PAGE_IDS = """
SELECT page_id FROM pages WHERE page_id > %(after)s ORDER BY page_id LIMIT %(limit)s
"""


class SqlTransaction(
    HistorySql,
    ListingSql,
    BulkSql,
    FeedSql,
    QueueSql,
    HostsSql,
    AnswersSql,
    ArchivedLog,
    EpochsSql,
    ScheduleSql,
    LoadSql,
    WebhooksSql,
    SubscriptionsSql,
    Transaction,
):
    """The statements that Postgres and SQLite share."""

    width: int
    """Number of columns of an estimate."""

    # -- pages

    @override
    def register(
        self, pages: PageColumns, now: datetime, brought: Brought | None = None
    ) -> Registered:
        page_id = self._known(pages.key)
        new = page_id == 0
        if new.any():
            added = self.add_pages(pages.take(new), now, brought and brought.take(new))
            page_id[new], new[new] = added
        specified = ~np.isnan(pages.importance) | (pages.observability != UNSPECIFIED)
        specified |= ~np.isnan(pages.min_crawl_rate) | ~np.isnan(pages.max_crawl_rate)
        if (changes := specified & ~new).any():
            self.change_pages(page_id[changes], pages.take(changes), now)
        return Registered(page_id, new)

    def _known(self, key: Keys) -> Ints:
        """Return ids, 0 for new pages; if the first keys are new, the others count as new."""
        first = self.page_ids(key[:FIRST])
        if len(key) <= FIRST:
            return first
        if first.any():
            return np.append(first, self.page_ids(key[FIRST:]))
        return np.zeros(len(key), np.int64)

    @abstractmethod
    def add_pages(self, new: PageColumns, now: datetime, brought: Brought | None) -> Registered:
        """Insert pages with their states; a few of the pages may exist already."""

    @abstractmethod
    def change_pages(self, page_id: Ints, settings: PageColumns, now: datetime) -> None:
        """Change the specified settings of registered pages."""

    @override
    def page(self, page_id: int) -> Page:
        rows = self.read(PAGE, page_id=page_id, epoch=self.number_in_force())
        if not rows:
            raise _no_page(page_id)
        (values,) = rows
        values["observability"] = Observability(values["observability"])
        values["gone"] = bool(values["gone"])
        values |= {name: values[name] or 0 for name in (*PING_NUMBERS, "n_failures")}
        values["estimate"] = tuple(np.frombuffer(values["estimate"]).tolist())
        return Page(**values)

    @override
    def change_page(self, page_id: int, patch: PagePatch, now: datetime) -> None:
        one = self.lock_page_rows(np.array([page_id]))
        if not len(one):
            raise _no_page(page_id)
        self.change_many(one, patch, now)

    @override
    def delete_page(self, page_id: int) -> None:
        if not self.delete_many(np.array([page_id])):
            raise PageNotFound(f"no page has the id {page_id}")

    @override
    def clear_estimates(self, page_id: Ints) -> None:
        first, last = int(page_id[0]), int(page_id[-1])
        self.run(CLEAR_ESTIMATES, zeros=bytes(8 * self.width), first=first, last=last)

    # -- the store itself

    @override
    def estimator(self) -> str | None:
        return self.get_meta("estimator") or None

    @override
    def set_estimator(self, name: str) -> None:
        self.put_meta("estimator", name)

    @override
    def next_page_ids(self, after: int, limit: int) -> Ints:
        return self.ids(NEXT_PAGE_IDS, after=after, limit=limit)


def _no_page(page_id: int) -> PageNotFound:
    return PageNotFound(f"no page has the id {page_id}; register it with POST /pages")


def any_seldom_set(states: PageStates) -> Bools:
    """Return which rows have a value in a column of `SELDOM_SET`."""
    is_set = np.zeros(len(states), np.bool_)
    for name in SELDOM_SET:
        column = getattr(states, name)
        is_set |= ~np.isnat(column) if column.dtype.kind == "M" else column != 0
    return is_set
