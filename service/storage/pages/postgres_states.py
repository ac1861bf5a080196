"""States and validators of pages in the SQL of Postgres; each step is one statement on arrays.

"None" is NULL in the tables, and -infinity, NaN, 0 or -1 in arrays.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from service.model.arrays import Codes, Floats, Ints, nothing
from service.model.columns import PageStates
from service.storage.dialect import HOST_QUEUE
from service.storage.pages.states import (
    HURRY_S,
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
from service.storage.postgres.dialect import ASK_IN_A_HURRY, EPOCH_IN_FORCE, PostgresDialect
from service.storage.postgres.short_numbers import SHORT, short
from service.storage.postgres.statements import PostgresRows
from service.storage.postgres.words import given
from service.storage.queue.columns import LeaseTokens, LockedLeases

PAGE_STATE = PageStates.__dataclass_fields__

RATES_IN_FORCE = ("crawl_rate", "crawl_probability")

OF_STATES = [name for name in PageStates.__dataclass_fields__ if name not in RATES_IN_FORCE]
NULL_FOR_NO_TIME = (
    "last_crawl_at",
    "last_observed_at",
    "last_ping_at",
    "requested_at",
    "renewed_at",
    "absent_since",
)
NONE = dict.fromkeys((*NULL_FOR_ZERO, "held"), "0") | dict.fromkeys(NULL_FOR_NO_TIME, "'-infinity'")
NONE |= {"last_age": "'NaN'", "last_observed_at": "last_crawl_at, '-infinity'"}
"""Values in arrays for NULL in the columns of a state."""

WIDE: dict[Any, str] = {Ints: "::bigint", Floats: "::float8", Codes: "::smallint"}


def _read(name: str) -> str:
    kind = "" if name == "estimate" else WIDE.get(PageStates.__dataclass_fields__[name].type, "")
    return f"coalesce({name}, {NONE[name]}){kind}" if name in NONE else f"{name}{kind}"


def _write(name: str) -> str:
    if name == "last_observed_at":
        return "nullif(given.last_observed_at, given.last_crawl_at)"
    return f"nullif(given.{name}, {NONE[name]})" if name in NONE else f"given.{name}"


RARE = f"NOT ROW({', '.join(SELDOM_SET)}) IS NULL AS rare"
IF_DATED = " FILTER (WHERE last_age IS NOT NULL)"
IF_SOME = dict.fromkeys(SELDOM_SET, " FILTER (WHERE rare)") | {"last_age": IF_DATED}
MARKS = ("array_agg(rare)", f"array_agg(page_id){IF_DATED}")
STATES = ", ".join(
    [*(f"array_agg({_read(name)}){IF_SOME.get(name, '')}" for name in OF_STATES), *MARKS]
)
"""Columns of states: those of `SELDOM_SET` of the rare rows only, `last_age` of dated pages only.
The last two mark the rare rows, and name the dated pages."""

UNFINISHED = "FROM due_pages WHERE n_unfinished IS NOT NULL"
WAITING = f"""(
    SELECT array_agg(page_id) FROM (
        SELECT page_id {UNFINISHED} AND page_id = ANY(%(page_id)s::bigint[]) ORDER BY page_id
    ) AS waiting WHERE EXISTS (SELECT {UNFINISHED})
)"""
"""Expression of the pages of `ask_waiting`, in a statement that locks their states."""

LOCK_STATES = f"""
SELECT {WAITING}, {STATES}
FROM (
    SELECT *, {RARE} FROM page_states WHERE page_id = ANY(%(page_id)s::bigint[])
    ORDER BY page_id FOR NO KEY UPDATE
) AS locked
"""

LOCK_SCHEDULED_STATES = f"""
SELECT {WAITING}, {STATES},
    array_agg(coalesce(crawl_rate, 'NaN')), array_agg(coalesce(crawl_probability, 'NaN'))
FROM (
    SELECT page_states.*, {RARE}, crawl_rate::float8,
        CASE WHEN epoch IS NOT NULL THEN coalesce(crawl_probability, 0) END AS crawl_probability
    FROM page_states
    {{schedule_of: schedule, page_states.page_id, {EPOCH_IN_FORCE}}}
    WHERE page_states.page_id = ANY(%(page_id)s::bigint[])
    ORDER BY page_states.page_id FOR NO KEY UPDATE OF page_states
) AS locked
"""

LOCKED_PAGES = f"""
WITH given AS (
    SELECT pages.page_id, host_id, {HOST_QUEUE} AS queue_id FROM pages JOIN hosts USING (host_id)
    WHERE page_id = ANY(%(page_id)s::bigint[])
), free_states AS (
    SELECT page_id FROM page_states WHERE page_id = ANY(%(page_id)s::bigint[])
    FOR NO KEY UPDATE SKIP LOCKED
), free_rows AS (
    SELECT page_id FROM due_pages WHERE page_id = ANY(%(page_id)s::bigint[])
    FOR UPDATE SKIP LOCKED
), free_queues AS (
    SELECT queue_id FROM host_queues WHERE queue_id IN (SELECT queue_id FROM given)
    FOR NO KEY UPDATE SKIP LOCKED
), hosts_given AS (
    SELECT DISTINCT host_id FROM page_states WHERE page_id = ANY(%(page_id)s::bigint[])
), free_incidents AS (
    SELECT host_id FROM host_incidents WHERE host_id IN (SELECT host_id FROM hosts_given)
    FOR NO KEY UPDATE SKIP LOCKED
)
SELECT array_agg(page_id ORDER BY page_id) FROM given
WHERE page_id IN (SELECT page_id FROM page_states WHERE page_id = ANY(%(page_id)s::bigint[])
        EXCEPT SELECT page_id FROM free_states)
    OR page_id IN (SELECT page_id FROM due_pages WHERE page_id = ANY(%(page_id)s::bigint[])
        EXCEPT SELECT page_id FROM free_rows)
    OR queue_id IN (SELECT queue_id FROM host_queues WHERE queue_id IN (SELECT queue_id FROM given)
        EXCEPT SELECT queue_id FROM free_queues)
    OR host_id IN (SELECT host_id FROM host_incidents
            WHERE host_id IN (SELECT host_id FROM hosts_given)
        EXCEPT SELECT host_id FROM free_incidents)
"""
"""Statement that waits for nobody: the rows that it cannot lock are those of others."""

READ_ONLY = ("page_id", "pings_since", "observability", "host_id", "held")
WRITTEN = [name for name in OF_STATES if name not in READ_ONLY]
SAVE_STATES = f"""
UPDATE page_states SET {", ".join(f"{name} = {_write(name)}" for name in WRITTEN)}
FROM {given("page_id", *WRITTEN)} WHERE page_states.page_id = given.page_id
"""
COMMON = [name for name in WRITTEN if name not in SELDOM_SET]
SAVE_COMMON_STATES = f"""
UPDATE page_states SET {", ".join(f"{name} = NULL" for name in SELDOM_SET)},
    {", ".join(f"{name} = {_write(name)}" for name in COMMON)}
FROM {given("page_id", *COMMON)} WHERE page_states.page_id = given.page_id
"""
"""Statement for pages without pings, requests and failures: each array takes time."""
RESTORE_STATES = f"""
UPDATE page_states SET pings_since = given.pings_since,
    {", ".join(f"{name} = {_write(name)}" for name in WRITTEN)}
FROM {given("page_id", "pings_since", *WRITTEN)} WHERE page_states.page_id = given.page_id
"""
BRING_STATES = f"""
INSERT INTO page_states ({", ".join(OF_STATES)}, url_group, born_at)
SELECT {", ".join(map(_write, OF_STATES))}, url_group, nullif(given.born_at, '-infinity')
FROM {given(*OF_STATES, "url_group", "born_at")}
"""

WAKE = f"""
WITH locked AS (
    SELECT page_id FROM page_states WHERE page_id = ANY(%(page_id)s::bigint[])
        AND ({WAKING} OR {UNASKED})
    ORDER BY page_id FOR NO KEY UPDATE
), woken AS (
    UPDATE page_states SET hops = NULL, n_targets = NULL,
        requested_at = CASE WHEN NOT ({WAKING} OR {LACKING}) OR {OPEN} THEN requested_at
            ELSE %(now)s END,
        renewed_at = CASE WHEN NOT ({WAKING} OR {LACKING}) THEN renewed_at
            WHEN {OPEN} THEN %(now)s END
    FROM locked
    WHERE page_states.page_id = locked.page_id
    RETURNING page_states.page_id
)
SELECT array_agg(page_id) FROM woken
"""

OWN = len(OF_STATES) + len(MARKS)
"""Number of columns of `STATES`, after which the rates in force may follow."""

NEW = {
    "etag": "CASE WHEN resets OR given.etag <> '' THEN nullif(given.etag, '') ELSE stored.etag END",
    "last_modified": """CASE WHEN resets OR given.last_modified > '-infinity'
        THEN nullif(given.last_modified, '-infinity') ELSE stored.last_modified END""",
    "note": f"""CASE given.note WHEN '' THEN stored.note WHEN '{NO_NOTE}' THEN NULL
        ELSE given.note END""",
}
"""Expression of each new value on Postgres."""

VALIDATORS = """
SELECT array_agg(page_id), array_agg(coalesce(etag, '')),
    array_agg(coalesce(last_modified, '-infinity')), array_agg(coalesce(note, '')),
    array_agg(coalesce(doubted, false)), array_agg(coalesce(false_304_at, '-infinity'))
FROM (
    SELECT page_validators.*, false_304_at
    FROM page_validators JOIN pages USING (page_id) JOIN hosts USING (host_id)
    WHERE page_validators.page_id = ANY(%(page_id)s::bigint[]) ORDER BY page_id
) AS read
"""
CLEAR_VALIDATORS = """
WITH stored AS (
    SELECT page_id, note, ROW(etag, last_modified) IS NULL AS is_clear FROM page_validators
    WHERE page_id = ANY(%(page_id)s::bigint[]) AND EXISTS (SELECT FROM page_validators)
), cleared AS (
    UPDATE page_validators SET etag = NULL, last_modified = NULL, doubted = NULL FROM stored
    WHERE page_validators.page_id = stored.page_id AND stored.note IS NOT NULL AND NOT is_clear
)
DELETE FROM page_validators USING stored
WHERE page_validators.page_id = stored.page_id AND stored.note IS NULL
"""
"""Statement for pages whose new answers have no validators."""
SAVE_VALIDATORS = f"""
WITH given AS (
    SELECT * FROM {given("page_id", "etag", "last_modified", "note", "resets")}
), after AS (
    SELECT given.page_id, stored.page_id IS NOT NULL AS is_stored, {NEW["etag"]} AS etag,
        {NEW["last_modified"]} AS last_modified, {NEW["note"]} AS note,
        CASE WHEN NOT resets THEN stored.doubted END AS doubted
    FROM given LEFT JOIN page_validators AS stored ON stored.page_id = given.page_id
), dropped AS (
    DELETE FROM page_validators USING after
    WHERE page_validators.page_id = after.page_id
        AND ROW(after.etag, after.last_modified, after.note) IS NULL
), changed AS (
    UPDATE page_validators
    SET etag = after.etag, last_modified = after.last_modified, note = after.note,
        doubted = after.doubted
    FROM after WHERE page_validators.page_id = after.page_id
        AND NOT ROW(after.etag, after.last_modified, after.note) IS NULL
        AND (page_validators.etag, page_validators.last_modified, page_validators.note,
                page_validators.doubted)
            IS DISTINCT FROM (after.etag, after.last_modified, after.note, after.doubted)
)
INSERT INTO page_validators (page_id, etag, last_modified, note)
SELECT page_id, etag, last_modified, note FROM after
WHERE NOT is_stored AND NOT ROW(etag, last_modified, note) IS NULL ORDER BY page_id
"""
"""Statement that writes only rows that change; the locks on states exclude other writers."""


class PostgresStates(StatesSql, ValidatorsSql, PostgresDialect):
    """States and validators in the SQL of Postgres."""

    waiting_id: Ints | None = None
    """Those of the locked pages with a count of unfinished leases; None: no such page."""

    @override
    def lock_states(self, page_id: Ints, *, scheduled: bool = False) -> PageStates:
        return self._locked(self._lock_states(page_id, scheduled=scheduled))

    @override
    def lock_states_and_leases(
        self, page_id: Ints, tokens: LeaseTokens, *, scheduled: bool = False
    ) -> tuple[PageStates, LockedLeases]:
        states = self._lock_states(page_id, scheduled=scheduled)
        leases = self.lock_leases(tokens)
        return self._locked(states), leases

    def _lock_states(self, page_id: Ints, *, scheduled: bool) -> PostgresRows:
        self.ask_epoch()
        statement = LOCK_SCHEDULED_STATES if scheduled else LOCK_STATES
        return self.later(statement, page_id=page_id)

    def _locked(self, rows: PostgresRows) -> PageStates:
        ((self.waiting_id, *row),) = rows
        return self._states(row[:OWN], row[OWN:])

    def _states(self, own: Sequence[Any], rates: Sequence[Floats] = ()) -> PageStates:
        """Return states from the columns of `STATES`; rates that were not read are NaN."""
        *columns, rare, dated = own
        if rare is None:
            return PageStates.empty(estimate=(self.width,))
        states = dict(zip(OF_STATES, columns, strict=True))
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
    def ask_waiting(self, page_id: Ints) -> Callable[[], Ints]:
        # the statement that locks the states reads these ids too, because a statement takes time
        return lambda: page_id[:0] if self.waiting_id is None else self.waiting_id

    @override
    def hurry(self) -> None:
        # most transactions that hurry ask for the epoch too, and a statement takes time
        self.asked = None
        self.ask_epoch(ASK_IN_A_HURRY, ms=1000 * HURRY_S)

    @override
    def locked_pages(self, page_id: Ints) -> Ints:
        return self.id_array(LOCKED_PAGES, page_id=page_id)

    @override
    def save_states(self, states: PageStates) -> None:
        is_rare = any_seldom_set(states)
        if is_rare.any():
            self._save(SAVE_STATES, states.where(is_rare))
        if not is_rare.all():
            self._save(SAVE_COMMON_STATES, states.where(~is_rare))

    @override
    def restore_states(self, states: PageStates) -> None:
        if len(states):
            self._save(RESTORE_STATES, states)

    def _save(self, statement: str, states: PageStates, **columns: NDArray[Any]) -> None:
        columns |= {name: getattr(states, name) for name in OF_STATES}
        columns |= {name: short(columns[name]) for name in SHORT}
        self.later(statement, **columns)

    @override
    def wake(self, page_id: Ints, now: datetime) -> Ints:
        return self.id_array(WAKE, page_id=page_id, now=now)

    @override
    def validators(self, page_id: Ints) -> StoredValidators:
        return self.columns(StoredValidators, VALIDATORS, page_id=page_id)

    @override
    def save_validators(self, changes: ValidatorChanges) -> None:
        if len(changes):
            self.later(SAVE_VALIDATORS, **changes.arrays())

    @override
    def clear_validators(self, page_id: Ints) -> None:
        if len(page_id):
            self.later(CLEAR_VALIDATORS, page_id=page_id)
