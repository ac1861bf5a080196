"""Transactions on SQLite; because there is one writer at a time, `lock_states` takes no lock."""

import sqlite3
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields, replace
from datetime import datetime
from itertools import repeat

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from service.model.arrays import UNSPECIFIED, Ints, Keys, instant
from service.model.columns import PageColumns, PageStates, StoredPages
from service.model.domain import Observability
from service.model.urls import url_groups
from service.storage.access.sqlite import SqliteAccess
from service.storage.contract import Brought, Registered
from service.storage.epochs.sqlite import SqliteEpochs
from service.storage.feed.sqlite import SqliteFeed
from service.storage.history.sqlite import SqliteHistory
from service.storage.log.sqlite import BLOCK, SqliteLog, Stretches
from service.storage.queue.sqlite import SqliteQueue
from service.storage.sql import SqlTransaction, any_seldom_set
from service.storage.sqlite.connections import Turns
from service.storage.sqlite.listing import SqliteListing
from service.storage.sqlite.sql import (
    ADD_PAGES,
    ADD_STATES,
    ANY_VALIDATORS,
    BRING_STATES,
    CHANGE_PAGES,
    CHANGE_STATES,
    CLEAR_VALIDATORS,
    COMMON,
    DROP_VALIDATORS,
    LOCK_SCHEDULED_STATES,
    LOCK_STATES,
    READ_PAGES,
    RESTORE_STATES,
    SAVE_COMMON_STATES,
    SAVE_STATES,
    SAVE_VALIDATORS,
    VALIDATORS,
    WAKE,
    SqliteDialect,
    add_rows,
    written,
)
from service.storage.sqlite.values import listed, microseconds, values
from service.storage.validators import ValidatorChanges, ValidatorColumns

MOST_VARIABLES = 32_000
"""Maximum variables of a statement; the default build of SQLite allows 32,766."""


class SqliteTransaction(
    SqliteHistory,
    SqliteListing,
    SqliteFeed,
    SqliteQueue,
    SqliteLog,
    SqliteEpochs,
    SqlTransaction,
    SqliteAccess,
    SqliteDialect,
):
    """The transaction in the SQL of SQLite."""

    def __init__(
        self, driver: sqlite3.Connection, width: int, fetching: Turns, stretches: Stretches
    ) -> None:
        self.driver = driver
        self.width = width
        self.fetching = fetching
        self.stretches = stretches

    @override
    def add_pages(self, new: PageColumns, now: datetime, brought: Brought | None) -> Registered:
        # in the order of the index on keys
        order = np.argsort(new.key)
        page_id, created = self._add_sorted(new.take(order), now, brought and brought.take(order))
        back = np.argsort(order)
        return Registered(page_id[back], created[back])

    def _add_sorted(self, new: PageColumns, now: datetime, brought: Brought | None) -> Registered:
        created_at = np.full(len(new), instant(now))
        if brought is not None:
            created_at = np.where(np.isnat(brought.created_at), created_at, brought.created_at)
        ((newest,),) = self.run("SELECT coalesce(max(page_id), 0) FROM pages")
        host_id = list(self._of_hosts(new.host))
        n_before = self.driver.total_changes
        add_rows(
            self.driver,
            ADD_PAGES,
            values(new.key),
            new.url,
            host_id,
            values(new.importance),
            values(new.min_crawl_rate),
            values(new.max_crawl_rate),
            values(created_at),
        )
        if self.driver.total_changes - n_before == len(new):  # the only writer's ids have no gaps
            ((last,),) = self.run("SELECT last_insert_rowid()")
            page_id = np.arange(last - len(new), last) + 1
        else:
            page_id = self.page_ids(new.key)
        created = page_id > newest
        added = brought and brought.take(created)
        hosts = np.array(host_id, np.int64)[created]
        self._add_states(page_id[created], hosts, new.take(created), now, added)
        return Registered(page_id, created)

    def _add_states(
        self,
        page_id: Ints,
        host_id: Ints,
        new: PageColumns,
        now: datetime,
        brought: Brought | None,
    ) -> None:
        unspecified = new.observability == UNSPECIFIED
        watched = values(np.where(unspecified, Observability.auto, new.observability))
        url_group = values(url_groups(new.url))
        if brought is None:
            since = repeat(microseconds(now), len(new))
            zeros = repeat(bytes(8 * self.width), len(new))
            ids = values(page_id), values(host_id)
            add_rows(self.driver, ADD_STATES, *ids, since, watched, url_group, zeros)
            return
        states = replace(brought.states, page_id=page_id)
        pings_since = values(states.pings_since)
        hosts = values(host_id)
        self.run_many(BRING_STATES, pings_since, *written(states), watched, hosts, url_group)

    def _of_hosts(self, host: Iterable[str]) -> Iterable[int]:
        """Return the id of each host; insert new hosts."""
        names = sorted(set(host))
        ids = dict(zip(names, self.host_ids(names).tolist(), strict=True))
        return (ids[name] for name in host)

    @override
    def change_pages(self, page_id: Ints, settings: PageColumns, now: datetime) -> None:
        since, pages = repeat(microseconds(now), len(settings)), values(page_id)
        self.run_many(CHANGE_STATES, since, pages, values(settings.observability))
        rates = values(settings.min_crawl_rate), values(settings.max_crawl_rate)
        self.run_many(CHANGE_PAGES, values(settings.importance), *rates, pages)

    @override
    def page_ids(self, key: Keys, host: NDArray[np.object_] | None = None) -> Ints:
        keys = values(key)
        ids: dict[bytes, int] = {}
        for start in range(0, len(keys), MOST_VARIABLES):
            some = keys[start : start + MOST_VARIABLES]
            marks = ",".join("?" * len(some))
            ids |= self.run(f"SELECT key, page_id FROM pages WHERE key IN ({marks})", *some)
        return np.array([ids.get(k, 0) for k in keys], np.int64)

    @override
    def lock_states(self, page_id: Ints, *, scheduled: bool = False) -> PageStates:
        # the write transaction is the lock
        statement = LOCK_SCHEDULED_STATES if scheduled else LOCK_STATES
        return self.columns(PageStates, self.run(statement, listed(page_id)))

    @override
    def read_pages(self, after: int, limit: int) -> tuple[StoredPages, PageStates]:
        # one statement is one snapshot
        rows = self.run(READ_PAGES, after, limit).fetchall()
        n_states = len(fields(PageStates))
        pages = [(row[0], *row[n_states:]) for row in rows]
        states = [row[:n_states] for row in rows]
        return self.columns(StoredPages, pages), self.columns(PageStates, states)

    @override
    def save_states(self, states: PageStates) -> None:
        is_rare = any_seldom_set(states)
        rare, common = states.take(is_rare), states.take(~is_rare)
        self.run_many(SAVE_STATES, *written(rare))
        self.run_many(SAVE_COMMON_STATES, *written(common, COMMON))

    @override
    def restore_states(self, states: PageStates) -> None:
        self.run_many(RESTORE_STATES, values(states.pings_since), *written(states))

    @override
    def validators(self, page_id: Ints) -> ValidatorColumns:
        return self.columns(ValidatorColumns, self.run(VALIDATORS, listed(page_id)))

    @override
    def save_validators(self, changes: ValidatorChanges) -> None:
        empty = changes.only_reset
        self.clear_validators(changes.page_id[empty & changes.resets])
        changes = changes.take(~empty)
        self.run_many(SAVE_VALIDATORS, *map(values, changes.arrays().values()))
        self.run(DROP_VALIDATORS, listed(changes.page_id))

    @override
    def clear_validators(self, page_id: Ints) -> None:
        if self.scalar(ANY_VALIDATORS):
            pages = listed(page_id)
            self.run(CLEAR_VALIDATORS, pages)
            self.run(DROP_VALIDATORS, pages)

    @override
    def wake(self, page_id: Ints, now: datetime) -> Ints:
        woken = self.run(WAKE, microseconds(now), listed(page_id))
        return np.array([page for (page,) in woken], np.int64)

    @override
    def housekeep(self, keep_log_since: datetime | None, now: datetime) -> None:
        keep_house(lambda: nullcontext(self), keep_log_since if self.archive is None else None)


def keep_house(
    begin: Callable[[], AbstractContextManager[SqliteTransaction]], keep_log_since: datetime | None
) -> None:
    """Delete old schedules and old entries of the log, block by block."""
    more = True
    while more:
        with begin() as tx:
            more = tx.drop_schedule()
    more = True
    while more and keep_log_since is not None:
        with begin() as tx:
            more = tx.drop_log(keep_log_since, BLOCK)
