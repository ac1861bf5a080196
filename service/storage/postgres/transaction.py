"""Transactions on Postgres on arrays; they lock by page_id, a page before its state."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from service.model.arrays import UNSPECIFIED, Floats, Ints, Keys, instant, nothing
from service.model.columns import PageColumns, PageStates, StoredPages
from service.model.domain import Observability, Page
from service.model.urls import url_groups
from service.storage.access.postgres import PostgresAccess
from service.storage.contract import Brought, Registered
from service.storage.epochs.postgres import PostgresEpochs
from service.storage.feed.postgres import PostgresFeed
from service.storage.history.postgres import PostgresHistory
from service.storage.log.postgres import PostgresLog
from service.storage.postgres import sql
from service.storage.postgres.binary import SHORT, SHORT_RATES, broad, short
from service.storage.postgres.listing import PostgresListing
from service.storage.postgres.statements import PostgresDialect, Rows, named
from service.storage.queue.columns import LeaseTokens, LockedLeases
from service.storage.queue.postgres import PostgresQueue
from service.storage.sql import SqlTransaction, any_seldom_set
from service.storage.tables import SELDOM_SET
from service.storage.validators import ValidatorChanges, ValidatorColumns

PAGE_STATE = PageStates.__dataclass_fields__
OWN = len(sql.OF_STATES) + len(sql.MARKS)
"""Number of columns of `sql.STATES`, after which the rates in force may follow."""


class PostgresTransaction(
    PostgresHistory,
    PostgresListing,
    PostgresFeed,
    PostgresQueue,
    PostgresLog,
    PostgresEpochs,
    SqlTransaction,
    PostgresAccess,
    PostgresDialect,
):
    """The transaction in the SQL of Postgres."""

    add_pages_sql = sql.add_pages()
    bring_pages_sql = sql.bring_pages()

    def add_hosts(self, host: NDArray[np.object_]) -> None:
        """Insert hosts that are new."""
        self.run(sql.ADD_HOSTS, host=host)

    @override
    def add_pages(self, new: PageColumns, now: datetime, brought: Brought | None) -> Registered:
        # in key order, so that two callers with the same new pages cannot deadlock
        columns: dict[str, Any] = new.arrays()
        url_group = url_groups(new.url)
        self.add_hosts(new.host)
        if brought is None:
            columns |= {"url_group": url_group, "now": now, "estimate": bytes(8 * self.width)}
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
                observability=np.where(
                    new.observability == UNSPECIFIED, Observability.auto, new.observability
                ).astype(np.int16),
            )
            self._save(sql.BRING_STATES, states.take(created), url_group=url_group[created])
        if not created.all():  # another transaction has added the others meanwhile
            page_id[~created] = self.page_ids(new.key[~created])
        return Registered(page_id, created)

    @override
    def change_pages(self, page_id: Ints, settings: PageColumns, now: datetime) -> None:
        names = ("importance", "observability", "min_crawl_rate", "max_crawl_rate")
        columns = {name: getattr(settings, name) for name in names}
        self.run(sql.CHANGE_PAGES, page_id=page_id, now=now, **columns)

    @override
    def page_ids(self, key: Keys, host: NDArray[np.object_] | None = None) -> Ints:
        return self.id_array(sql.PAGE_IDS, key=key)

    @override
    def lock_states(self, page_id: Ints, *, scheduled: bool = False) -> PageStates:
        (row,) = self._lock_states(page_id, scheduled=scheduled)
        return self._states(row[:OWN], row[OWN:])

    @override
    def lock_states_and_leases(
        self, page_id: Ints, tokens: LeaseTokens, *, scheduled: bool = False
    ) -> tuple[PageStates, LockedLeases]:
        states = self._lock_states(page_id, scheduled=scheduled)
        leases = self.lock_leases(tokens)
        (row,) = states
        return self._states(row[:OWN], row[OWN:]), leases

    def _lock_states(self, page_id: Ints, *, scheduled: bool) -> Rows:
        self.ask_epoch()
        statement = sql.LOCK_SCHEDULED_STATES if scheduled else sql.LOCK_STATES
        return self.later(statement, page_id=page_id)

    def _ids_of_hosts(self, host: NDArray[np.object_]) -> Ints:
        names, row = np.unique(host, return_inverse=True)
        return self.host_ids(names.tolist())[row]

    def _states(self, own: Sequence[Any], rates: Sequence[Floats] = ()) -> PageStates:
        """Return states from the columns of `sql.STATES`; rates that were not read are NaN."""
        *columns, rare, dated = own
        if rare is None:
            return PageStates.empty(estimate=(self.width,))
        states = dict(zip(sql.OF_STATES, columns, strict=True))
        for name in SELDOM_SET:
            some, states[name] = states[name], nothing(PAGE_STATE[name].type, len(rare))
            if some is not None:
                states[name][rare] = some
        ages, states["last_age"] = states["last_age"], np.full(len(rare), np.nan)
        if dated is not None:
            states["last_age"][states["page_id"].searchsorted(dated)] = ages
        states["estimate"] = states["estimate"].view("<f8").reshape(-1, self.width)
        crawl_rate, crawl_probability = rates or np.full((2, len(rare)), np.nan)
        return PageStates(**states, crawl_rate=crawl_rate, crawl_probability=crawl_probability)

    @override
    def read_pages(self, after: int, limit: int) -> tuple[StoredPages, PageStates]:
        # one statement is one snapshot
        (row,) = self.run(sql.READ_PAGES, after=after, limit=limit)
        return named(StoredPages, (row[0], *row[OWN:])), self._states(row[:OWN])

    @override
    def save_states(self, states: PageStates) -> None:
        undated = np.isnan(states.last_age).all()
        self._save(sql.SAVE_UNDATED_STATES if undated else sql.SAVE_STATES, states)

    @override
    def restore_states(self, states: PageStates) -> None:
        self._save(sql.RESTORE_STATES, states)

    def _save(self, statement: str, states: PageStates, **columns: NDArray[Any]) -> None:
        if not len(states):
            return
        # ten columns that are empty for most pages would add a quarter to the time of an update
        is_rare, is_dated = any_seldom_set(states), ~np.isnan(states.last_age)
        rank = np.where(is_rare, 0, np.where(is_dated, 1, 2))
        order = np.argsort(rank, kind="stable")
        n_rare, n_dated = np.cumsum(np.bincount(rank, minlength=2))[:2].tolist()
        columns |= {name: getattr(states, name) for name in sql.OF_STATES}
        columns |= {name: short(columns[name]) for name in SHORT}
        columns = {name: column[order] for name, column in columns.items()}
        columns |= {name: columns[name][:n_rare] for name in SELDOM_SET}
        columns["last_age"] = columns["last_age"][:n_dated]
        self.later(statement, **columns)

    @override
    def validators(self, page_id: Ints) -> ValidatorColumns:
        return self.columns(ValidatorColumns, sql.VALIDATORS, page_id=page_id)

    @override
    def save_validators(self, changes: ValidatorChanges) -> None:
        if len(changes):
            self.later(sql.SAVE_VALIDATORS, **changes.arrays())

    @override
    def clear_validators(self, page_id: Ints) -> None:
        if len(page_id):
            self.later(sql.CLEAR_VALIDATORS, page_id=page_id)

    @override
    def wake(self, page_id: Ints, now: datetime) -> Ints:
        return self.id_array(sql.WAKE, page_id=page_id, now=now)

    @override
    def page(self, page_id: int) -> Page:
        page = super().page(page_id)
        if page.crawl_rate is None:
            return self.page(page_id) if self.epoch_dropped() else page
        rates = broad(np.array([getattr(page, name) for name in SHORT_RATES])).tolist()
        return replace(page, **dict(zip(SHORT_RATES, rates, strict=True)))
