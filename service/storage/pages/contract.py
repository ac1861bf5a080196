"""Single pages and their registration: the contract, and the SQL that both databases share."""

from abc import abstractmethod
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from service.model.arrays import NO_TIME, UNSPECIFIED, Bools, Instants, Ints, Keys
from service.model.columns import PageColumns, PageStates, StoredPages
from service.model.domain import Observability, Page, PagePatch
from service.model.errors import PageNotFound
from service.model.ladder import last_levels
from service.model.outcomes import Outcome
from service.storage.dialect import IS_HELD
from service.storage.pages.bulk import BulkStatements
from service.storage.queue.hosts import HostStatements
from service.storage.queue.kept import KeptSql


class RegisteredPages(NamedTuple):
    """(N,) ids of registered pages, and which of the pages are new."""

    page_id: Ints
    created: Bools


class Brought(NamedTuple):
    """(N,) states of pages from another store; `states.page_id` is not read."""

    states: PageStates
    created_at: Instants
    """Time of registration; NaT: now."""
    born_at: Instants
    """Birth; NaT: not known."""

    def take(self, where: NDArray[Any]) -> "Brought":
        """Return the pages that a mask or an index array selects."""
        return Brought(self.states.take(where), self.created_at[where], self.born_at[where])


class PageStatements(BulkStatements):
    """The statements on single pages."""

    @abstractmethod
    def register(
        self, pages: PageColumns, now: datetime, brought: Brought | None = None
    ) -> RegisteredPages:
        """Insert pages whose key is new; change the specified settings of the others.

        New pages get the `brought` states, with the observability from `pages`.
        """

    @abstractmethod
    def page_ids(self, key: Keys, host: NDArray[np.object_] | None = None) -> Ints:
        """Return the page_id of each key, 0 where no page has it.

        With the `host` of each key, a store of several databases asks only those of the hosts.
        """

    @abstractmethod
    def page(self, page_id: int) -> Page:
        """Return one page; raise `PageNotFound`."""

    def change_page(self, page_id: int, patch: PagePatch, now: datetime) -> None:
        """Change one page, raise `PageNotFound`; `complete` starts a new count of pings."""
        one = self.lock_page_rows(np.array([page_id]))
        if not len(one):
            raise no_page(page_id)
        self.change_many(one, patch, now)

    def delete_page(self, page_id: int) -> None:
        """Delete a page, its state, log and rows of schedules; raise `PageNotFound`."""
        if not self.delete_many(np.array([page_id])):
            raise no_page(page_id)

    @abstractmethod
    def next_page_ids(self, after: int, limit: int) -> Ints:
        """Return the next page_ids above `after`, ascending."""

    @abstractmethod
    def registered_at(self, page_id: Ints) -> Instants:
        """Return the time of registration of each of (N,) pages; NaT: no such page."""

    @abstractmethod
    def read_pages(self, after: int, limit: int) -> tuple[StoredPages, PageStates]:
        """Return the next pages above `after`, ascending, and states without rates in force."""


FIRST = 100
"""Keys of a batch that are looked up first; most batches have only known or only new pages."""

PING_NUMBERS = (
    "n_pings",
    "recent_pings",
    "ping_credit",
    "real_pings",
    "false_pings",
    "trust",
)
"""Columns that are NULL in the tables where they are 0."""

PAGE = f"""
SELECT pages.page_id, pages.url, host, pages.host_id, pages.importance, observability,
    pages.min_crawl_rate, pages.max_crawl_rate, pages.created_at, last_crawl_at,
    {{observed_at}} AS last_observed_at, gone, n_failures, outcome, coalesce(hops, 0) AS hops,
    coalesce(n_targets, 0) AS n_targets, retry_rate, cost, n_observations, n_changes,
    n_pings, recent_pings, ping_credit, last_ping_at, pings_since, real_pings, false_pings, trust,
    url_group, estimate,
    CAST(change_rate AS double precision) AS change_rate,
    CAST(crawl_rate AS double precision) AS crawl_rate, urgency, shift, requested_at,
    interval_factor, born_at,
    CAST(crawl_rate AS double precision) * urgency AS due_rate,
    CASE WHEN epoch IS NOT NULL THEN coalesce(crawl_probability, 0.0) END AS crawl_probability,
    {IS_HELD} AS held,
    coalesce(pages.feed, false) AS feed,
    redirects_to, target.url AS redirects_to_url, etag, last_modified, note,
    coalesce(doubted, false) AS doubted, false_304_at
FROM pages
JOIN hosts ON hosts.host_id = pages.host_id
JOIN page_states ON page_states.page_id = pages.page_id
{{schedule_of: schedule, pages.page_id, %(epoch)s}}
LEFT JOIN pages AS target ON target.page_id = page_states.redirects_to
LEFT JOIN page_validators ON page_validators.page_id = pages.page_id
WHERE pages.page_id = %(page_id)s
"""
"""Statement that reads a page. A crawl probability of 0 is NULL in the table; the result is NULL
only for a page without a schedule."""

REGISTERED_AT = """
SELECT page_id, created_at FROM pages WHERE page_id IN (SELECT value FROM {ids}) ORDER BY page_id
"""
NEXT_PAGE_IDS = """
SELECT page_id FROM pages WHERE page_id > %(after)s ORDER BY page_id LIMIT %(limit)s
"""


class PagesSql(KeptSql, PageStatements, HostStatements):
    """The statements on single pages that Postgres and SQLite share."""

    @override
    def register(
        self, pages: PageColumns, now: datetime, brought: Brought | None = None
    ) -> RegisteredPages:
        page_id = self._known(pages.key)
        new = page_id == 0
        if new.any():
            added = self.add_pages(pages.take(new), now, brought and brought.take(new))
            page_id[new], new[new] = added
            if new.any():
                self.adopt_leases(page_id[new])
        specified = ~np.isnan(pages.importance) | (pages.observability != UNSPECIFIED)
        specified |= ~np.isnan(pages.min_crawl_rate) | ~np.isnan(pages.max_crawl_rate)
        if (changes := specified & ~new).any():
            self.change_pages(page_id[changes], pages.take(changes), now)
        return RegisteredPages(page_id, new)

    def _known(self, key: Keys) -> Ints:
        """Return ids, 0 for new pages; if the first keys are new, the others count as new."""
        first = self.page_ids(key[:FIRST])
        if len(key) <= FIRST:
            return first
        if first.any():
            return np.append(first, self.page_ids(key[FIRST:]))
        return np.zeros(len(key), np.int64)

    def holding(self, urls: NDArray[np.object_], states: PageStates | None) -> Ints:
        """Return `PageStates.held` of new pages; pages that bring a copy are not held."""
        if not self.holds_new:
            return np.zeros(len(urls), np.int64)
        level = last_levels(urls)
        return level if states is None else np.where(np.isnat(states.last_observed_at), level, 0)

    @abstractmethod
    def add_pages(
        self, new: PageColumns, now: datetime, brought: Brought | None
    ) -> RegisteredPages:
        """Insert pages with their states; a few of the pages may exist already."""

    @abstractmethod
    def change_pages(self, page_id: Ints, settings: PageColumns, now: datetime) -> None:
        """Change the specified settings of registered pages."""

    @override
    def page(self, page_id: int) -> Page:
        rows = self.read(PAGE, page_id=page_id, epoch=self.number_in_force())
        if not rows:
            raise no_page(page_id)
        (values,) = rows
        values["observability"] = Observability(values["observability"])
        values["gone"], values["outcome"] = bool(values["gone"]), Outcome(values["outcome"] or 0)
        values |= {name: bool(values[name]) for name in ("doubted", "held", "feed")}
        values |= {name: values[name] or 0 for name in (*PING_NUMBERS, "n_failures", "retry_rate")}
        values["estimate"] = tuple(np.frombuffer(values["estimate"]).tolist())
        hours = self.calendars.of_host(values["host_id"], self.clock())
        return Page(**values, hours=hours)

    @override
    def registered_at(self, page_id: Ints) -> Instants:
        dtypes = {"page_id": "i8", "created_at": "M8[us]"}
        there, created_at = self.arrays(REGISTERED_AT, dtypes, ids=page_id).values()
        if not len(there):
            return np.full(len(page_id), NO_TIME)
        at = np.minimum(there.searchsorted(page_id), len(there) - 1)
        return np.where(there[at] == page_id, created_at[at], NO_TIME)

    @override
    def next_page_ids(self, after: int, limit: int) -> Ints:
        return self.ids(NEXT_PAGE_IDS, after=after, limit=limit)


def no_page(page_id: int) -> PageNotFound:
    """Return the error for an id that no page has."""
    return PageNotFound(f"no page has the id {page_id}; GET /pages lists the pages")
