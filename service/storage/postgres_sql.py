"""The statements that Postgres is sent: arrays in, arrays out, one a step.

"None" travels as -infinity, NaN, 0 or -1 and is NULL in the tables.
"""

from service.storage import schedule_sql
from service.storage.base import MAX_DUE_DAYS, RETRY_S

ADD_HOSTS = """
INSERT INTO hosts (host)
SELECT DISTINCT host FROM unnest(%(host)s::text[]) AS given (host)
WHERE NOT EXISTS (SELECT FROM hosts WHERE hosts.host = given.host)
ORDER BY host
ON CONFLICT DO NOTHING
"""

ADD_PAGES = """
WITH added AS (
    INSERT INTO pages
        (key, url, host_id, importance, observability, min_crawl_rate, max_crawl_rate, created_at)
    SELECT key, url, host_id, coalesce(nullif(importance, 'NaN'), 1),
        coalesce(nullif(observability, -1::smallint), 2),
        nullif(min_crawl_rate, 'NaN'), nullif(max_crawl_rate, 'NaN'),
        %(now)s
    FROM unnest(%(key)s::uuid[], %(url)s::text[], %(host)s::text[], %(importance)s::float8[],
        %(observability)s::smallint[], %(min_crawl_rate)s::float8[], %(max_crawl_rate)s::float8[])
        AS given (key, url, host, importance, observability, min_crawl_rate, max_crawl_rate)
    JOIN hosts USING (host)
    ORDER BY key
    ON CONFLICT (key) DO NOTHING
    RETURNING page_id
), states AS (
    INSERT INTO page_states (page_id, gone, n_observations, n_changes, n_pings, pings_since,
        ping_credit, recent_pings, real_pings, false_pings, trust, gap, estimate)
    SELECT page_id, false, 0, 0, 0, %(now)s, 0, 0, 0, 0, 0, 1, %(estimate)s FROM added
)
SELECT array_agg(page_id) FROM added
"""

CHANGE_PAGES = """
WITH given AS (
    SELECT page_id, said.*
    FROM unnest(%(key)s::uuid[], %(importance)s::float8[], %(observability)s::smallint[],
        %(min_crawl_rate)s::float8[], %(max_crawl_rate)s::float8[])
        AS said (key, importance, observability, min_crawl_rate, max_crawl_rate)
    JOIN pages USING (key)
), locked AS (
    SELECT page_id, pages.observability <> 1 AND given.observability = 1 AS became_complete
    FROM pages JOIN given USING (page_id) JOIN page_states USING (page_id)
    WHERE coalesce(nullif(given.importance, 'NaN'), pages.importance) <> pages.importance
        OR given.observability NOT IN (-1, pages.observability)
        OR nullif(given.min_crawl_rate, 'NaN') <> coalesce(pages.min_crawl_rate, -1)
        OR nullif(given.max_crawl_rate, 'NaN') <> coalesce(pages.max_crawl_rate, -1)
    ORDER BY page_id FOR UPDATE OF pages, page_states
), recounted AS (
    UPDATE page_states SET n_pings = 0, pings_since = %(now)s, ping_credit = 0
    FROM locked WHERE locked.page_id = page_states.page_id AND became_complete
)
UPDATE pages SET
    importance = coalesce(nullif(given.importance, 'NaN'), pages.importance),
    observability = CASE given.observability WHEN -1 THEN pages.observability
        ELSE given.observability END,
    min_crawl_rate = coalesce(nullif(given.min_crawl_rate, 'NaN'), pages.min_crawl_rate),
    max_crawl_rate = coalesce(nullif(given.max_crawl_rate, 'NaN'), pages.max_crawl_rate)
FROM locked JOIN given USING (page_id)
WHERE pages.page_id = locked.page_id
"""

PAGE_IDS = """
SELECT array_agg(coalesce(page_id, 0) ORDER BY position)
FROM unnest(%(key)s::uuid[]) WITH ORDINALITY AS given (key, position)
LEFT JOIN pages USING (key)
"""

LOCK_STATES = """
WITH locked AS (
    SELECT page_states.*, observability, schedule.crawl_rate, schedule.crawl_probability
    FROM page_states
    JOIN pages USING (page_id)
    LEFT JOIN schedule ON schedule.page_id = page_states.page_id
        AND schedule.epoch = %(epoch)s
    WHERE page_states.page_id = ANY(%(page_id)s::bigint[])
    ORDER BY page_states.page_id
    FOR UPDATE OF page_states
)
SELECT array_agg(page_id),
    array_agg(coalesce(last_crawl_at, '-infinity')),
    array_agg(coalesce(last_observed_at, '-infinity')),
    array_agg(coalesce(digest, 0)), array_agg(gone),
    array_agg(n_observations), array_agg(n_changes), array_agg(n_pings),
    array_agg(coalesce(last_ping_at, '-infinity')), array_agg(pings_since),
    array_agg(ping_credit), array_agg(recent_pings), array_agg(real_pings),
    array_agg(false_pings), array_agg(trust), array_agg(coalesce(wanted_at, '-infinity')),
    array_agg(gap),
    array_agg(estimate), array_agg(observability),
    array_agg(coalesce(crawl_rate, 'NaN')), array_agg(coalesce(crawl_probability, 'NaN'))
FROM locked
"""

SAVE_STATES = """
UPDATE page_states SET
    last_crawl_at = nullif(given.last_crawl_at, '-infinity'),
    last_observed_at = nullif(given.last_observed_at, '-infinity'),
    digest = nullif(given.digest, 0), gone = given.gone,
    n_observations = given.n_observations, n_changes = given.n_changes, n_pings = given.n_pings,
    last_ping_at = nullif(given.last_ping_at, '-infinity'), ping_credit = given.ping_credit,
    recent_pings = given.recent_pings, real_pings = given.real_pings,
    false_pings = given.false_pings, trust = given.trust,
    wanted_at = nullif(given.wanted_at, '-infinity'), gap = given.gap, estimate = given.estimate
FROM unnest(%(page_id)s::bigint[], %(last_crawl_at)s::timestamptz[],
    %(last_observed_at)s::timestamptz[], %(digest)s::bigint[], %(gone)s::bool[],
    %(n_observations)s::bigint[], %(n_changes)s::bigint[], %(n_pings)s::bigint[],
    %(last_ping_at)s::timestamptz[], %(ping_credit)s::float8[],
    %(recent_pings)s::bigint[], %(real_pings)s::float8[], %(false_pings)s::float8[],
    %(trust)s::float8[], %(wanted_at)s::timestamptz[],
    %(gap)s::float8[], %(estimate)s::bytea[])
    AS given (page_id, last_crawl_at, last_observed_at, digest, gone, n_observations, n_changes,
        n_pings, last_ping_at, ping_credit, recent_pings, real_pings, false_pings, trust,
        wanted_at, gap, estimate)
WHERE page_states.page_id = given.page_id
"""

APPEND_LOG = """
INSERT INTO observations (page_id, observed_at, kind, changed, "interval", crawl_rate, status)
SELECT page_id, observed_at, kind, nullif(changed, -1), nullif("interval", 'NaN'),
    nullif(crawl_rate, 'NaN'), nullif(status, -1)
FROM unnest(%(page_id)s::bigint[], %(observed_at)s::timestamptz[], %(kind)s::smallint[],
    %(changed)s::smallint[], %(interval)s::float8[], %(crawl_rate)s::float8[],
    %(status)s::smallint[])
    AS given (page_id, observed_at, kind, changed, "interval", crawl_rate, status)
"""

LOG_OF = """
SELECT array_agg(page_id), array_agg(observed_at), array_agg(kind),
    array_agg(coalesce(changed, -1::smallint)), array_agg(coalesce("interval", 'NaN')),
    array_agg(coalesce(crawl_rate, 'NaN')), array_agg(coalesce(status, -1::smallint))
FROM (
    SELECT * FROM observations WHERE page_id = ANY(%(page_id)s::bigint[])
    ORDER BY page_id, observed_at, kind
) AS entries
"""

LOAD_COLUMNS = """
COPY (
    SELECT page_id, importance, observability, coalesce(min_crawl_rate, 'NaN'),
        coalesce(max_crawl_rate, 'NaN'), host_id, n_pings, pings_since,
        coalesce(last_ping_at, '-infinity'), real_pings, false_pings, trust, estimate
    FROM pages JOIN page_states USING (page_id)
    ORDER BY page_id
) TO STDOUT (FORMAT BINARY)
"""

NEXT_PAGE_IDS = """
SELECT array_agg(page_id) FROM (
    SELECT page_id FROM pages WHERE page_id > %(after)s ORDER BY page_id LIMIT %(limit)s
) AS ids
"""

PARTITIONS = """
SELECT child.relname FROM pg_inherits
JOIN pg_class AS child ON child.oid = inhrelid
WHERE inhparent = %(parent)s::regclass
"""

NEXT_CRAWL_AT = f"""
least(
    CASE WHEN page_states.last_crawl_at >= page_states.wanted_at
        THEN page_states.last_crawl_at + {RETRY_S} * interval '1 second'
        ELSE page_states.wanted_at END,
    CASE WHEN page_states.last_crawl_at IS NULL THEN pages.created_at
        WHEN schedule.crawl_rate > 0 THEN page_states.last_crawl_at + 86400 * least(
            page_states.gap / least(greatest(schedule.crawl_rate, 1e-100), 1e100), {MAX_DUE_DAYS}
        ) * interval '1 second' END
)"""

SCHEDULE = """
SELECT array_agg(page_id), string_agg(url, E'\\n'), array_agg(importance), array_agg(change_rate),
    array_agg(crawl_rate), array_agg(crawl_probability),
    array_agg(coalesce(next_crawl_at, '-infinity'))
FROM ({rows}) AS rows
"""

REMOVED = f"SELECT array_agg(page_id) FROM ({schedule_sql.REMOVED}) AS ids"


def schedule(joined: str, only: str) -> str:
    """Give the statement that reads rows of the schedule; no URL has a line break."""
    moved = only.format(next_crawl_at=NEXT_CRAWL_AT, greatest="greatest", least="least")
    rows = schedule_sql.SCHEDULE.format(next_crawl_at=NEXT_CRAWL_AT, joined=joined, only=moved)
    return SCHEDULE.format(rows=rows)
