"""States of pages: the contract, and the SQL that both databases share."""

from abc import abstractmethod
from datetime import datetime

import numpy as np
from typing_extensions import override

from service.model.arrays import Bools, Ints
from service.model.columns import PageStates
from service.storage.pages.links import GONE_CHECKS, LinksSql, LinkStatements
from service.storage.queue.columns import LeaseTokens, LockedLeases
from service.storage.queue.contract import QueueStatements

HURRY_S = 0.25
"""Maximum wait of a batch of many callers for a lock, seconds; ours are held for less."""

NULL_FOR_ZERO = (
    "digest",
    "n_pings",
    "recent_pings",
    "ping_credit",
    "pings_since_crawl",
    "real_pings",
    "false_pings",
    "trust",
    "n_failures",
    "outcome",
    "retry_rate",
    "cost",
    "redirects_to",
    "hops",
    "n_targets",
)
"""Columns of `page_states` that are NULL where they are 0, which makes most rows shorter.

On Postgres `last_observed_at` is NULL where it equals `last_crawl_at`, and -infinity for a page
whose crawls had no answer yet.
"""
SELDOM_SET = (
    *(name for name in NULL_FOR_ZERO if name != "digest"),
    "last_ping_at",
    "requested_at",
    "renewed_at",
    "absent_since",
)
"""Columns of `page_states` that few pages use: those of pings, requests and failures."""


class StateStatements(QueueStatements, LinkStatements):
    """The statements on states of pages."""

    @abstractmethod
    def lock_states(self, page_id: Ints, *, scheduled: bool = False) -> PageStates:
        """Lock and return the states of these pages (ascending, unique) without unknown ids.

        The rates in force are NaN unless `scheduled`, which doubles the time.
        """

    def lock_states_and_leases(
        self, page_id: Ints, tokens: LeaseTokens, *, scheduled: bool = False
    ) -> tuple[PageStates, LockedLeases]:
        """Lock states as `lock_states`, then leases as `lock_leases`, in one step."""
        return self.lock_states(page_id, scheduled=scheduled), self.lock_leases(tokens)

    def hurry(self) -> None:
        """From now on, wait only `HURRY_S` for a lock, then raise `RowLocked`."""

    def locked_pages(self, page_id: Ints) -> Ints:
        """Return those of some pages whose rows another transaction has locked, ascending.

        The rows are the page's state, its row in the queue, its host queue and its host's incident.
        """
        return page_id[:0]

    @abstractmethod
    def save_states(self, states: PageStates) -> None:
        """Write back states that this transaction has locked."""

    @abstractmethod
    def restore_states(self, states: PageStates) -> None:
        """Write all columns of locked states, as `save_states` does not."""

    @abstractmethod
    def wake(self, page_id: Ints, now: datetime) -> Ints:
        """Ask for pages: request a crawl of those that are retired; return the pages that changed.

        A page known only as the target of a redirect becomes one that was asked for. It is crawled
        if its last crawl had no content. A page that waits for a requested crawl renews its
        request, because that crawl may be under way. The method locks states, so the transaction
        must not have locked states before.
        """

    @abstractmethod
    def clear_estimates(self, page_id: Ints) -> None:
        """Set the estimates of these pages to zeros of this store's width."""

    @abstractmethod
    def estimator(self) -> str | None:
        """Return the name of the estimator of the stored states; None in a new store."""

    @abstractmethod
    def set_estimator(self, name: str) -> None:
        """Write the name of the estimator of the stored states."""


UNASKED = "hops IS NOT NULL OR n_targets IS NOT NULL"
LACKING = "coalesce(hops IS NOT NULL AND n_failures > 0 AND NOT gone, false)"
OPEN = "coalesce(requested_at > last_crawl_at, false)"
WAKING = f"(gone AND n_failures > {GONE_CHECKS} AND (requested_at IS NULL OR {OPEN}))"
"""Conditions of `wake`: targets of redirects, those without content, pages whose request no crawl
has met, and retired pages, also those with such a request."""

CLEAR_ESTIMATES = """
UPDATE page_states SET estimate = %(zeros)s WHERE page_id BETWEEN %(first)s AND %(last)s
"""
"""Statement that does not read the old bytes, which may have another width."""


class StatesSql(LinksSql, StateStatements):
    """The statements on states that Postgres and SQLite share."""

    width: int
    """Number of columns of an estimate."""

    @override
    def clear_estimates(self, page_id: Ints) -> None:
        first, last = int(page_id[0]), int(page_id[-1])
        self.run(CLEAR_ESTIMATES, zeros=bytes(8 * self.width), first=first, last=last)

    @override
    def estimator(self) -> str | None:
        return self.get_meta("estimator") or None

    @override
    def set_estimator(self, name: str) -> None:
        self.put_meta("estimator", name)


def any_seldom_set(states: PageStates) -> Bools:
    """Return which rows have a value in a column of `SELDOM_SET`."""
    is_set = np.zeros(len(states), np.bool_)
    for name in SELDOM_SET:
        column = getattr(states, name)
        is_set |= ~np.isnat(column) if column.dtype.kind == "M" else column != 0
    return is_set
