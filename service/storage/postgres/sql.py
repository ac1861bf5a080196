"""The statements on Postgres: each step is one statement, which takes and returns arrays.

"None" is NULL in the tables, and -infinity, NaN, 0 or -1 in arrays. The rates of a schedule are
float4 in the tables and float8 in arrays. Statements multiply float8, because products of float4
overflow.
"""

from typing import Any

from service.model.arrays import Floats, Ints
from service.model.columns import PageStates
from service.storage import validators
from service.storage.contract import GONE_CHECKS
from service.storage.postgres.statements import EPOCH_IN_FORCE
from service.storage.postgres.words import given
from service.storage.tables import NULL_FOR_ZERO, SELDOM_SET

RATES_IN_FORCE = ("crawl_rate", "crawl_probability")


ADD_HOSTS = """
INSERT INTO hosts (host)
SELECT DISTINCT host FROM unnest(%(host)s::text[]) AS given (host)
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


def add_pages(**ids: str) -> str:
    """Return the statement that inserts pages and their states; `ids` are those of `ADDED`."""
    added = ADDED.format(
        arrays="%(observability)s, %(url_group)s",
        columns="observability, url_group",
        created_at="%(now)s",
        **(ids or DRAWN_IDS),
    )
    return f"""{added}, states AS (
    INSERT INTO page_states
        (page_id, host_id, pings_since, interval_factor, n_observations, n_changes, observability,
        gone, url_group, estimate)
    SELECT page_id, added.host_id, %(now)s, 1, 0, 0,
        coalesce(nullif(observability, -1::smallint), 2), false, url_group, %(estimate)s
    FROM added JOIN given USING (key)
    ORDER BY page_id
)
{ROWS_ADDED}"""


def bring_pages(**ids: str) -> str:
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
    SELECT page_id, page_states.observability AS was, given.observability AS said
    FROM pages JOIN given USING (page_id) JOIN page_states USING (page_id)
    WHERE coalesce(nullif(given.importance, 'NaN'), pages.importance) <> pages.importance
        OR given.observability NOT IN (-1, page_states.observability)
        OR nullif(given.min_crawl_rate, 'NaN') <> coalesce(pages.min_crawl_rate, -1)
        OR nullif(given.max_crawl_rate, 'NaN') <> coalesce(pages.max_crawl_rate, -1)
    ORDER BY page_id FOR NO KEY UPDATE OF pages, page_states
), changed AS (
    UPDATE page_states SET observability = said,
        n_pings = CASE said WHEN 1 THEN NULL ELSE n_pings END,
        pings_since = CASE said WHEN 1 THEN %(now)s ELSE pings_since END,
        ping_credit = CASE said WHEN 1 THEN NULL ELSE ping_credit END
    FROM locked WHERE locked.page_id = page_states.page_id AND said NOT IN (-1, was)
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

OF_STATES = [name for name in PageStates.__dataclass_fields__ if name not in RATES_IN_FORCE]
NULL_FOR_NO_TIME = ("last_crawl_at", "last_observed_at", "last_ping_at", "requested_at")
NONE = dict.fromkeys(NULL_FOR_ZERO, "0") | dict.fromkeys(NULL_FOR_NO_TIME, "'-infinity'")
NONE |= {"last_age": "'NaN'", "last_observed_at": "last_crawl_at, '-infinity'"}
"""Values in arrays for NULL in the columns of a state."""
WIDE: dict[Any, str] = {Ints: "::bigint", Floats: "::float8"}


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

LOCK_STATES = f"""
SELECT {STATES}
FROM (
    SELECT *, {RARE} FROM page_states WHERE page_id = ANY(%(page_id)s::bigint[])
    ORDER BY page_id FOR NO KEY UPDATE
) AS locked
"""

LOCK_SCHEDULED_STATES = f"""
SELECT {STATES},
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

READ_ONLY = ("page_id", "pings_since", "observability", "host_id")
WRITTEN = [name for name in OF_STATES if name not in READ_ONLY]
SAVE_STATES = f"""
UPDATE page_states SET {", ".join(f"{name} = {_write(name)}" for name in WRITTEN)}
FROM {given("page_id", *WRITTEN)} WHERE page_states.page_id = given.page_id
"""
UNDATED = [name for name in WRITTEN if name != "last_age"]
SAVE_UNDATED_STATES = f"""
UPDATE page_states SET last_age = NULL, {", ".join(f"{name} = {_write(name)}" for name in UNDATED)}
FROM {given("page_id", *UNDATED)} WHERE page_states.page_id = given.page_id
"""
"""Statement for pages without a reported age: each array takes time, even an empty one."""
RESTORE_STATES = f"""
UPDATE page_states SET pings_since = given.pings_since,
    {", ".join(f"{name} = {_write(name)}" for name in WRITTEN)}
FROM {given("page_id", "pings_since", *WRITTEN)} WHERE page_states.page_id = given.page_id
"""
BRING_STATES = f"""
INSERT INTO page_states ({", ".join(OF_STATES)}, url_group)
SELECT {", ".join(map(_write, OF_STATES))}, url_group FROM {given(*OF_STATES, "url_group")}
"""
"""Statement in which arrays of `IF_SOME` may be shorter: unnest fills their ends with NULL."""

VALIDATORS = """
SELECT array_agg(page_id), array_agg(coalesce(etag, '')),
    array_agg(coalesce(last_modified, '-infinity')), array_agg(coalesce(note, ''))
FROM (
    SELECT * FROM page_validators WHERE page_id = ANY(%(page_id)s::bigint[]) ORDER BY page_id
) AS read
"""
CLEAR_VALIDATORS = """
WITH stored AS (
    SELECT page_id, note, ROW(etag, last_modified) IS NULL AS is_clear FROM page_validators
    WHERE page_id = ANY(%(page_id)s::bigint[]) AND EXISTS (SELECT FROM page_validators)
), cleared AS (
    UPDATE page_validators SET etag = NULL, last_modified = NULL FROM stored
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
    SELECT given.page_id, stored.page_id IS NOT NULL AS is_stored, {validators.NEW["etag"]} AS etag,
        {validators.NEW["last_modified"]} AS last_modified, {validators.NEW["note"]} AS note
    FROM given LEFT JOIN page_validators AS stored ON stored.page_id = given.page_id
), dropped AS (
    DELETE FROM page_validators USING after
    WHERE page_validators.page_id = after.page_id
        AND ROW(after.etag, after.last_modified, after.note) IS NULL
), changed AS (
    UPDATE page_validators
    SET etag = after.etag, last_modified = after.last_modified, note = after.note
    FROM after WHERE page_validators.page_id = after.page_id
        AND NOT ROW(after.etag, after.last_modified, after.note) IS NULL
        AND (page_validators.etag, page_validators.last_modified, page_validators.note)
            IS DISTINCT FROM (after.etag, after.last_modified, after.note)
)
INSERT INTO page_validators (page_id, etag, last_modified, note)
SELECT page_id, etag, last_modified, note FROM after
WHERE NOT is_stored AND NOT ROW(etag, last_modified, note) IS NULL ORDER BY page_id
"""
"""Statement that writes only rows that change; the locks on states exclude other writers."""

WAKE = f"""
WITH locked AS (
    SELECT page_id FROM page_states WHERE page_id = ANY(%(page_id)s::bigint[])
        AND gone AND n_failures > {GONE_CHECKS} AND requested_at IS NULL
    ORDER BY page_id FOR NO KEY UPDATE
), woken AS (
    UPDATE page_states SET requested_at = %(now)s FROM locked
    WHERE page_states.page_id = locked.page_id
    RETURNING page_states.page_id
)
SELECT array_agg(page_id) FROM woken
"""

READ_PAGES = f"""
SELECT {STATES}, array_agg(url), array_agg(importance), array_agg(coalesce(min_crawl_rate, 'NaN')),
    array_agg(coalesce(max_crawl_rate, 'NaN')), array_agg(created_at)
FROM (
    SELECT page_states.*, {RARE}, url, importance, min_crawl_rate, max_crawl_rate, created_at
    FROM pages JOIN page_states USING (page_id) WHERE page_id > %(after)s
    ORDER BY page_id LIMIT %(limit)s
) AS read
"""
