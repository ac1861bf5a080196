"""Redirects between pages: the contract, and the SQL that both databases share.

`page_states.hops` counts the redirects from a page that was asked for to a page that is known only
as their target; NULL is a page that was asked for. A negative number marks a target to which no
page redirects any more.
"""

from abc import abstractmethod
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
from typing_extensions import override

from service.model.arrays import Bools, Codes, Columns, Ints, distinct, is_among
from service.model.outcomes import Outcome
from service.storage.dialect import Dialect, Subject

GONE_CHECKS = 6
"""Looks at an absent page, after an hour and 1, 2, 4, 8, 16 days, before it is retired."""


LEAST_TRIES = 3
"""Minimum number of crawls of a target without content, before it is retired."""
MANY = 5
"""Number of pages that redirect for now to one target, from which on it is a wall: a login, a
consent page, an error page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Links(Columns):
    """(N,) redirects of pages that exist, by ascending page_id."""

    page_id: Ints
    hops: Codes
    """As in `PageStates`."""
    n_targets: Codes
    redirects_to: Ints
    """Target; 0: none, or the page itself."""
    had_content: Codes
    """1 where a crawl has shown content."""

    def rows(self, page_id: Ints) -> tuple[Ints, Bools]:
        """Return the row of each page, and whether it has one; the row of another page is 0."""
        if not len(self):
            return np.zeros(len(page_id), np.int64), np.zeros(len(page_id), np.bool_)
        row = np.minimum(self.page_id.searchsorted(page_id), len(self) - 1)
        there = self.page_id[row] == page_id
        return np.where(there, row, 0), there


class LinkStatements(Subject):
    """The part of a transaction that works on redirects between pages."""

    @abstractmethod
    def links_of(self, page_id: Ints) -> Links:
        """Return the redirects of those of these pages that exist; the method locks nothing."""

    @abstractmethod
    def link(self, page_id: Ints, hops: int, now: datetime, before: datetime) -> Ints:
        """Write that redirects lead to targets; return the targets that changed, ascending.

        A target counts its new targets anew, and has at most these hops. A crawl is requested of
        one that was crawled three times without content, last before an instant. A page that was
        asked for stays as it is, and one whose state another transaction has locked.
        """

    @abstractmethod
    def shared_targets(self, page_id: Ints) -> Ints:
        """Return those of some pages to which at least `MANY` redirect for now, ascending."""

    @abstractmethod
    def led_to(self, page_id: Ints) -> Ints:
        """Return those of some pages to which any page redirects for now, ascending."""

    @abstractmethod
    def with_known_digest(self, page_id: Ints, digest: Ints) -> Ints:
        """Return those of (N,) pages whose digest a first crawl has brought before, ascending."""

    @abstractmethod
    def request_walls(self, page_id: Ints, now: datetime) -> Ints:
        """Request a crawl of the shared targets that showed content; return them, ascending.

        Nobody asked for these pages, and their last crawl came before most of the redirects. A page
        whose state another transaction has locked stays as it is.
        """

    @abstractmethod
    def unlink(self, page_id: Ints) -> Ints:
        """Write that no page redirects to these targets any more; return those that changed.

        Targets with content stay. A page whose state another transaction has locked stays as it is.
        """

    @abstractmethod
    def request_retired(self, page_id: Ints, now: datetime) -> Ints:
        """Request a crawl of the retired pages among these; return them, ascending.

        A page whose state another transaction has locked stays as it is.
        """

    @abstractmethod
    def add_hops(self, page_id: Ints, hops: int) -> None:
        """Write the hops of pages that this transaction has registered."""


LINKS_OF = """
SELECT page_id, coalesce(hops, 0) AS hops, coalesce(n_targets, 0) AS n_targets,
    CASE WHEN redirects_to <> page_id THEN redirects_to ELSE 0 END AS redirects_to,
    CASE WHEN {observed_at} IS NULL THEN 0 ELSE 1 END AS had_content
FROM page_states WHERE page_id IN (SELECT value FROM {ids}) ORDER BY page_id
"""
TYPES = {
    "page_id": "i8",
    "hops": "i2",
    "n_targets": "i2",
    "redirects_to": "i8",
    "had_content": "i2",
}
FARTHER = "hops < 0 OR hops > %(hops)s"
TRIED = f"""n_failures >= {LEAST_TRIES} AND NOT gone AND last_crawl_at < %(before)s
    AND (requested_at IS NULL OR requested_at <= last_crawl_at)"""
LINKED = f"""
SELECT page_id FROM page_states WHERE page_id IN (SELECT value FROM {{ids}}) AND hops IS NOT NULL
    AND ({FARTHER} OR n_targets IS NOT NULL OR {TRIED})
ORDER BY page_id {{lock_free_rows}}
"""
LINK = f"""
UPDATE page_states SET hops = CASE WHEN {FARTHER} THEN %(hops)s ELSE hops END, n_targets = NULL,
    requested_at = CASE WHEN {TRIED} THEN %(now)s ELSE requested_at END
WHERE page_id IN (SELECT value FROM {{ids}})
"""
IS_SHARED = f"""(
    SELECT count(*) FROM (
        SELECT 1 FROM page_states AS source WHERE source.redirects_to = {{target}}
            AND source.page_id <> {{target}} AND source.outcome = {int(Outcome.elsewhere)}
        LIMIT {MANY}
    ) AS sources
) = {MANY}"""
LED_TO = f"""
SELECT value FROM {{ids}} WHERE EXISTS (
    SELECT 1 FROM page_states AS source WHERE source.redirects_to = value
        AND source.page_id <> value AND source.outcome = {int(Outcome.elsewhere)}
) ORDER BY value
"""
KNOWN_DIGESTS = """
SELECT digest FROM digests WHERE digest IN (SELECT value FROM {ids}) ORDER BY digest
"""
SHARED = f"""
SELECT value FROM {{ids}} WHERE {IS_SHARED.replace("{target}", "value")} ORDER BY value
"""
WALLS = f"""
SELECT page_id FROM page_states WHERE page_id IN (SELECT value FROM {{ids}}) AND hops > 0
    AND outcome IS NULL AND last_crawl_at IS NOT NULL AND NOT gone
    AND (requested_at IS NULL OR requested_at <= last_crawl_at)
    AND {IS_SHARED.replace("{target}", "page_states.page_id")}
ORDER BY page_id {{lock_free_rows}}
"""
WITHOUT_CONTENT = """
SELECT page_id FROM page_states WHERE page_id IN (SELECT value FROM {ids}) AND hops > 0
    AND {observed_at} IS NULL
ORDER BY page_id {lock_free_rows}
"""
RETIRED = f"gone AND n_failures > {GONE_CHECKS} AND requested_at IS NULL"
"""Condition on pages that were gone for so long that nothing makes them due."""
RETIRED_AMONG = f"""
SELECT page_id FROM page_states WHERE page_id IN (SELECT value FROM {{ids}}) AND {RETIRED}
ORDER BY page_id {{lock_free_rows}}
"""
REQUEST = """
UPDATE page_states SET requested_at = %(now)s WHERE page_id IN (SELECT value FROM {ids})
"""
SET_HOPS = """
UPDATE page_states SET hops = %(hops)s WHERE page_id IN (SELECT value FROM {ids})
"""
UNLINK = "UPDATE page_states SET hops = -hops WHERE page_id IN (SELECT value FROM {ids})"


class LinksSql(Dialect, LinkStatements):
    """The statements on redirects that Postgres and SQLite share."""

    @override
    def links_of(self, page_id: Ints) -> Links:
        columns: dict[str, Any] = self.arrays(LINKS_OF, TYPES, ids=page_id)
        return Links(**columns)

    @override
    def link(self, page_id: Ints, hops: int, now: datetime, before: datetime) -> Ints:
        linked = self.ids(LINKED, ids=page_id, hops=hops, before=before)
        if len(linked):
            self.run(LINK, ids=linked, hops=hops, now=now, before=before)
        return linked

    @override
    def shared_targets(self, page_id: Ints) -> Ints:
        return self.ids(SHARED, ids=page_id)

    @override
    def led_to(self, page_id: Ints) -> Ints:
        return self.ids(LED_TO, ids=page_id)

    @override
    def with_known_digest(self, page_id: Ints, digest: Ints) -> Ints:
        brought = self.ids(KNOWN_DIGESTS, ids=distinct(digest[digest != 0]))
        return distinct(page_id[is_among(digest, brought)])

    @override
    def request_walls(self, page_id: Ints, now: datetime) -> Ints:
        walls = self.ids(WALLS, ids=page_id)
        if len(walls):
            self.run(REQUEST, ids=walls, now=now)
        return walls

    @override
    def unlink(self, page_id: Ints) -> Ints:
        dropped = self.ids(WITHOUT_CONTENT, ids=page_id)
        if len(dropped):
            self.run(UNLINK, ids=dropped)
        return dropped

    @override
    def request_retired(self, page_id: Ints, now: datetime) -> Ints:
        retired = self.ids(RETIRED_AMONG, ids=page_id)
        if len(retired):
            self.run(REQUEST, ids=retired, now=now)
        return retired

    @override
    def add_hops(self, page_id: Ints, hops: int) -> None:
        if len(page_id):
            self.run(SET_HOPS, ids=page_id, hops=hops)
