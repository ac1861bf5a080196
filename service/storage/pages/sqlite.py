"""Pages and their states in the SQL of SQLite; one writer at a time needs no locks on rows."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, replace
from datetime import datetime
from itertools import repeat
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from service.model.arrays import INSTANT, UNSPECIFIED, Instants, Ints, Keys, distinct, instant
from service.model.births import births
from service.model.columns import PageColumns, PageStates, StoredPages
from service.model.domain import Observability
from service.model.urls import url_groups
from service.storage.dialect import NUMBER_IN_FORCE
from service.storage.pages.contract import Brought, PagesSql, RegisteredPages
from service.storage.pages.states import (
    LACKING,
    NULL_FOR_ZERO,
    OPEN,
    SELDOM_SET,
    UNASKED,
    WAKING,
    StatesSql,
    any_seldom_set,
)
from service.storage.pages.validators import (
    NO_NOTE,
    StoredValidators,
    ValidatorChanges,
    ValidatorsSql,
)
from service.storage.sqlite.sql import SqliteDialect, add_rows
from service.storage.sqlite.values import NAT, listed, microseconds, values

MOST_VARIABLES = 32_000
"""Maximum variables of a statement; the default build of SQLite allows 32,766."""

ASIDE = ("observability", "host_id", "held", "crawl_rate", "crawl_probability")
NOT_WRITTEN = ("page_id", "pings_since", *ASIDE)
WRITTEN = (*(n for n in PageStates.__dataclass_fields__ if n not in NOT_WRITTEN), "page_id")
"""Columns of a state in the order of `SAVE_STATES`."""
COMMON = tuple(name for name in WRITTEN if name not in SELDOM_SET)
"""Columns of a state in the order of `SAVE_COMMON_STATES`."""

ADD_PAGES = """
INSERT OR IGNORE INTO pages
    (key, url, host_id, importance, min_crawl_rate, max_crawl_rate, created_at)
VALUES (?, ?, ?, coalesce(?, 1), ?, ?, ?)
"""

ADD_STATES = """
INSERT INTO page_states
    (page_id, host_id, pings_since, interval_factor, n_observations, n_changes, observability, gone,
    url_group, held, born_at, estimate)
VALUES (?, ?, ?, 1, 0, 0, ?, 0, ?, nullif(?, 0), ?, ?)
"""

PLACES = {name: "nullif(?, 0)" if name in NULL_FOR_ZERO else "?" for name in WRITTEN}
BRING_STATES = f"""
INSERT INTO page_states
    (pings_since, {", ".join(WRITTEN)}, observability, host_id, url_group, held, born_at)
VALUES (?, {", ".join(PLACES.values())}, ?, ?, ?, nullif(?, 0), ?)
"""

KNOWN_AT = """
SELECT host_id, known_at FROM hosts
WHERE host_id IN (SELECT value FROM json_each(?)) AND known_at IS NOT NULL
"""

CHANGE_PAGES = """
UPDATE pages SET importance = coalesce(?, importance),
    min_crawl_rate = coalesce(?, min_crawl_rate), max_crawl_rate = coalesce(?, max_crawl_rate)
WHERE page_id = ?
"""

CHANGE_STATES = """
UPDATE page_states SET observability = given.observability,
    n_pings = CASE given.observability WHEN 1 THEN NULL ELSE n_pings END,
    recent_pings = CASE given.observability WHEN 1 THEN NULL ELSE recent_pings END,
    pings_since = CASE given.observability WHEN 1 THEN ? ELSE pings_since END,
    ping_credit = CASE given.observability WHEN 1 THEN NULL ELSE ping_credit END
FROM (SELECT ? AS page_id, ? AS observability) AS given
WHERE page_states.page_id = given.page_id
    AND given.observability NOT IN (-1, page_states.observability)
"""

OF_STATES = [*PageStates.__dataclass_fields__][:-2]
STATES = "SELECT " + ", ".join(
    f"coalesce({name}, 0)" if name in (*NULL_FOR_ZERO, "held") else f"page_states.{name}"
    for name in OF_STATES
)
"""Columns of `PageStates` in their order, without the rates in force."""

LOCK_STATES = f"""
{STATES}, NULL, NULL
FROM page_states WHERE page_id IN (SELECT value FROM json_each(?)) ORDER BY page_id
"""

LOCK_SCHEDULED_STATES = f"""
{STATES}, crawl_rate, CASE WHEN epoch IS NOT NULL THEN coalesce(crawl_probability, 0.0) END
FROM page_states
LEFT JOIN schedule ON schedule.page_id = page_states.page_id
    AND schedule.epoch = ({NUMBER_IN_FORCE})
WHERE page_states.page_id IN (SELECT value FROM json_each(?))
ORDER BY page_states.page_id
"""

_SAVE = ", ".join(f"{name} = {place}" for name, place in PLACES.items() if name != "page_id")
SAVE_STATES = f"UPDATE page_states SET {_SAVE} WHERE page_id = ?"
_SAVE_COMMON = ", ".join(
    f"{name} = NULL" if name in SELDOM_SET else f"{name} = {place}"
    for name, place in PLACES.items()
    if name != "page_id"
)
SAVE_COMMON_STATES = f"UPDATE page_states SET {_SAVE_COMMON} WHERE page_id = ?"
"""Statement for pages without pings, requests and failures, with half as many parameters."""
RESTORE_STATES = f"UPDATE page_states SET pings_since = ?, {_SAVE} WHERE page_id = ?"

WAKE = f"""
UPDATE page_states SET hops = NULL, n_targets = NULL,
    requested_at = CASE WHEN NOT ({WAKING} OR {LACKING}) OR {OPEN} THEN requested_at ELSE ?1 END,
    renewed_at = CASE WHEN NOT ({WAKING} OR {LACKING}) THEN renewed_at WHEN {OPEN} THEN ?1 END
WHERE page_id IN (SELECT value FROM json_each(?2)) AND ({WAKING} OR {UNASKED})
RETURNING page_id
"""

READ_PAGES = f"""
{STATES}, NULL, NULL, url, importance, min_crawl_rate, max_crawl_rate, created_at, born_at,
    coalesce(feed, 0)
FROM pages JOIN page_states ON page_states.page_id = pages.page_id
WHERE pages.page_id > ? ORDER BY pages.page_id LIMIT ?
"""

VALIDATORS = """
SELECT page_validators.page_id, coalesce(etag, ''), last_modified, coalesce(note, ''),
    coalesce(doubted, 0), false_304_at
FROM page_validators JOIN pages ON pages.page_id = page_validators.page_id
JOIN hosts ON hosts.host_id = pages.host_id
WHERE page_validators.page_id IN (SELECT value FROM json_each(?)) ORDER BY page_validators.page_id
"""
ANY_VALIDATORS = "SELECT EXISTS (SELECT 1 FROM page_validators)"
CLEAR_VALIDATORS = """
UPDATE page_validators SET etag = NULL, last_modified = NULL, doubted = NULL
WHERE page_id IN (SELECT value FROM json_each(?))
"""
SAVE_VALIDATORS = f"""
INSERT INTO page_validators (page_id, etag, last_modified, note)
VALUES (?1, nullif(?2, ''), ?3, CASE WHEN ?4 NOT IN ('', '{NO_NOTE}') THEN ?4 END)
ON CONFLICT (page_id) DO UPDATE SET
    etag = CASE WHEN ?5 OR ?2 <> '' THEN excluded.etag ELSE etag END,
    last_modified = CASE WHEN ?5 OR ?3 IS NOT NULL THEN excluded.last_modified
        ELSE last_modified END,
    note = CASE ?4 WHEN '' THEN note ELSE excluded.note END,
    doubted = CASE WHEN NOT ?5 THEN doubted END
"""
DROP_VALIDATORS = """
DELETE FROM page_validators WHERE etag IS NULL AND last_modified IS NULL AND note IS NULL
    AND page_id IN (SELECT value FROM json_each(?))
"""


class SqlitePages(PagesSql, StatesSql, ValidatorsSql, SqliteDialect):
    """Pages and their states in the SQL of SQLite."""

    @override
    def add_pages(
        self, new: PageColumns, now: datetime, brought: Brought | None
    ) -> RegisteredPages:
        # in the order of the index on keys
        order = np.argsort(new.key)
        page_id, created = self._add_sorted(new.take(order), now, brought and brought.take(order))
        back = np.argsort(order)
        return RegisteredPages(page_id[back], created[back])

    def _add_sorted(
        self, new: PageColumns, now: datetime, brought: Brought | None
    ) -> RegisteredPages:
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
        return RegisteredPages(page_id, created)

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
        states = None if brought is None else brought.states
        held = values(self.holding(new.url, states))
        if brought is None:
            since = repeat(microseconds(now), len(new))
            zeros = repeat(bytes(8 * self.width), len(new))
            born = values(births(self._known_at(host_id), instant(now)))
            ids = values(page_id), values(host_id)
            add_rows(self.driver, ADD_STATES, *ids, since, watched, url_group, held, born, zeros)
            return
        states = replace(brought.states, page_id=page_id)
        pings_since = values(states.pings_since)
        hosts = values(host_id)
        aside = watched, hosts, url_group, held, values(brought.born_at)
        self.run_many(BRING_STATES, pings_since, *written(states), *aside)

    def _of_hosts(self, host: Iterable[str]) -> Iterable[int]:
        """Return the id of each host; insert new hosts."""
        names = sorted(set(host))
        ids = dict(zip(names, self.host_ids(names).tolist(), strict=True))
        return (ids[name] for name in host)

    def _known_at(self, host_id: Ints) -> Instants:
        """Return the first time of each host; NaT: known for long."""
        ids = distinct(host_id)
        known_at = dict(self.run(KNOWN_AT, listed(ids)).fetchall())
        each = np.array([known_at.get(i, NAT) for i in ids.tolist()], np.int64).view(INSTANT)
        return np.asarray(each[ids.searchsorted(host_id)])

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
        if is_rare.any():
            self.run_many(SAVE_STATES, *written(states.where(is_rare)))
        if not is_rare.all():
            self.run_many(SAVE_COMMON_STATES, *written(states.where(~is_rare), COMMON))

    @override
    def restore_states(self, states: PageStates) -> None:
        self.run_many(RESTORE_STATES, values(states.pings_since), *written(states))

    @override
    def validators(self, page_id: Ints) -> StoredValidators:
        return self.columns(StoredValidators, self.run(VALIDATORS, listed(page_id)))

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


def written(states: PageStates, names: Sequence[str] = WRITTEN) -> Iterator[list[Any]]:
    """Yield columns of states as SQLite stores them; the last has the page_ids."""
    return map(values, attrgetter(*names)(states))
