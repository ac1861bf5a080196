"""The statements that Postgres is sent: arrays in, arrays out, one a step.

"None" travels as -infinity, NaN, 0 or -1 and is NULL in the tables. A schedule's rates are short
there and travel as float8, which is also what they are computed in: short products overflow.
"""

from collections.abc import Collection

from service.storage import schedule_sql
from service.storage.base import GONE_CHECKS, MAX_DUE_DAYS, MOST_DOUBLINGS, RETRY_S

ADD_HOSTS = """
INSERT INTO hosts (host)
SELECT DISTINCT host FROM unnest(%(host)s::text[]) AS given (host)
WHERE NOT EXISTS (SELECT FROM hosts WHERE hosts.host = given.host)
ORDER BY host
ON CONFLICT DO NOTHING
"""

ADD_PAGES = """
WITH given AS (
    SELECT * FROM unnest(%(key)s::uuid[], %(url)s::text[], %(host)s::text[],
        %(importance)s::float8[], %(observability)s::smallint[], %(min_crawl_rate)s::float8[],
        %(max_crawl_rate)s::float8[], %(section)s::integer[]) WITH ORDINALITY AS given (key, url,
        host, importance, observability, min_crawl_rate, max_crawl_rate, section, position)
), added AS (
    INSERT INTO pages (key, url, host_id, importance, min_crawl_rate, max_crawl_rate, created_at)
    SELECT key, url, host_id, coalesce(nullif(importance, 'NaN'), 1),
        nullif(min_crawl_rate, 'NaN'), nullif(given.max_crawl_rate, 'NaN'), %(now)s
    FROM given JOIN hosts USING (host)
    ORDER BY key
    ON CONFLICT (key) DO NOTHING
    RETURNING page_id, key
), states AS (
    INSERT INTO page_states
        (page_id, pings_since, gap, n_observations, n_changes, observability, gone, section,
        estimate)
    SELECT page_id, %(now)s, 1, 0, 0, coalesce(nullif(observability, -1::smallint), 2), false,
        section, %(estimate)s
    FROM added JOIN given USING (key)
    ORDER BY page_id
)
SELECT array_agg(coalesce(page_id, 0) ORDER BY position) FROM given LEFT JOIN added USING (key)
"""
"""It inserts their states too."""

BRING_PAGES = """
WITH given AS (
    SELECT * FROM unnest(%(key)s::uuid[], %(url)s::text[], %(host)s::text[],
        %(importance)s::float8[], %(min_crawl_rate)s::float8[], %(max_crawl_rate)s::float8[],
        %(created_at)s::timestamptz[]) WITH ORDINALITY AS given (key, url, host, importance,
        min_crawl_rate, max_crawl_rate, created_at, position)
), added AS (
    INSERT INTO pages (key, url, host_id, importance, min_crawl_rate, max_crawl_rate, created_at)
    SELECT key, url, host_id, coalesce(nullif(importance, 'NaN'), 1),
        nullif(min_crawl_rate, 'NaN'), nullif(given.max_crawl_rate, 'NaN'), created_at
    FROM given JOIN hosts USING (host)
    ORDER BY key
    ON CONFLICT (key) DO NOTHING
    RETURNING page_id, key
)
SELECT array_agg(coalesce(page_id, 0) ORDER BY position) FROM given LEFT JOIN added USING (key)
"""

BRING_STATES = """
COPY page_states (page_id, last_crawl_at, last_observed_at, digest, gone, n_observations,
    n_changes, n_pings, last_ping_at, pings_since, ping_credit, recent_pings, real_pings,
    false_pings, trust, wanted_at, gap, last_interval, n_failures, redirects_to, estimate,
    observability, section)
FROM STDIN (FORMAT BINARY)
"""

CHANGE_PAGES = """
WITH given AS (
    SELECT * FROM unnest(%(page_id)s::bigint[], %(importance)s::float8[],
        %(observability)s::smallint[], %(min_crawl_rate)s::float8[], %(max_crawl_rate)s::float8[])
        AS given (page_id, importance, observability, min_crawl_rate, max_crawl_rate)
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

OF_EVENTS = {
    "n_pings": "coalesce(n_pings, 0)::bigint",
    "last_ping_at": "coalesce(last_ping_at, '-infinity')",
    "ping_credit": "coalesce(ping_credit, 0)",
    "recent_pings": "coalesce(recent_pings, 0)::bigint",
    "real_pings": "coalesce(real_pings, 0)",
    "false_pings": "coalesce(false_pings, 0)",
    "trust": "coalesce(trust, 0)",
    "wanted_at": "coalesce(wanted_at, '-infinity')",
    "n_failures": "coalesce(n_failures, 0)::bigint",
    "redirects_to": "coalesce(redirects_to, 0)",
}
"""What only pings, failures and redirects bring: all of it is NULL of most pages."""
EVENTFUL = f"num_nonnulls({', '.join(OF_EVENTS)}) > 0 AS eventful"
OF_CRAWLS = {
    "page_id": "page_id",
    "last_crawl_at": "coalesce(last_crawl_at, '-infinity')",
    "last_observed_at": "coalesce(last_observed_at, '-infinity')",
    "digest": "coalesce(digest, 0)",
    "gone": "gone",
    "n_observations": "n_observations::bigint",
    "n_changes": "n_changes::bigint",
    "pings_since": "pings_since",
    "gap": "gap::float8",
    "last_interval": "last_interval::float8",
    "estimate": "estimate",
    "observability": "observability",
}
STATES = ", ".join(
    [
        *(f"array_agg({column})" for column in OF_CRAWLS.values()),
        *(
            f"array_agg({column}) FILTER (WHERE eventful)"
            for column in ("page_id", *OF_EVENTS.values())
        ),
    ]
)
"""An array costs by its elements: of most rows ten are left out. Those of the others are told by
their page_id; all arrays are in its order."""

LOCK_STATES = f"""
SELECT {STATES}, array_agg(place)
FROM (
    SELECT ctid AS place, *, {EVENTFUL} FROM page_states WHERE page_id = ANY(%(page_id)s::bigint[])
    ORDER BY page_id FOR NO KEY UPDATE
) AS locked
"""

LOCK_SCHEDULED_STATES = f"""
SELECT {STATES}, array_agg(place),
    array_agg(coalesce(crawl_rate, 'NaN')), array_agg(coalesce(crawl_probability, 'NaN'))
FROM (
    SELECT page_states.ctid AS place, page_states.*, {EVENTFUL}, crawl_rate::float8,
        CASE WHEN epoch IS NOT NULL THEN coalesce(crawl_probability, 0) END AS crawl_probability
    FROM page_states
    LEFT JOIN schedule ON schedule.page_id = page_states.page_id AND epoch = %(epoch)s
    WHERE page_states.page_id = ANY(%(page_id)s::bigint[])
    ORDER BY page_states.page_id FOR NO KEY UPDATE OF page_states
) AS locked
"""

SAVE_STATES = """
UPDATE page_states SET
    last_crawl_at = nullif(given.last_crawl_at, '-infinity'),
    last_observed_at = nullif(given.last_observed_at, '-infinity'),
    digest = nullif(given.digest, 0), gone = given.gone,
    n_observations = given.n_observations, n_changes = given.n_changes,
    n_pings = nullif(given.n_pings, 0), last_ping_at = nullif(given.last_ping_at, '-infinity'),
    ping_credit = nullif(given.ping_credit, 0), recent_pings = nullif(given.recent_pings, 0),
    real_pings = nullif(given.real_pings, 0), false_pings = nullif(given.false_pings, 0),
    trust = nullif(given.trust, 0), wanted_at = nullif(given.wanted_at, '-infinity'),
    gap = given.gap, last_interval = given.last_interval,
    n_failures = nullif(given.n_failures, 0), redirects_to = nullif(given.redirects_to, 0),
    estimate = given.estimate
FROM unnest(%(place)s::tid[], %(page_id)s::bigint[], %(last_crawl_at)s::timestamptz[],
    %(last_observed_at)s::timestamptz[], %(digest)s::bigint[], %(gone)s::bool[],
    %(n_observations)s::bigint[], %(n_changes)s::bigint[], %(n_pings)s::bigint[],
    %(last_ping_at)s::timestamptz[], %(ping_credit)s::float8[],
    %(recent_pings)s::bigint[], %(real_pings)s::float8[], %(false_pings)s::float8[],
    %(trust)s::float8[], %(wanted_at)s::timestamptz[],
    %(gap)s::float8[], %(last_interval)s::float8[], %(n_failures)s::bigint[],
    %(redirects_to)s::bigint[], %(estimate)s::bytea[])
    AS given (place, page_id, last_crawl_at, last_observed_at, digest, gone, n_observations,
        n_changes, n_pings, last_ping_at, ping_credit, recent_pings, real_pings, false_pings,
        trust, wanted_at, gap, last_interval, n_failures, redirects_to, estimate)
WHERE page_states.ctid = given.place AND page_states.page_id = given.page_id
"""

SAVE_PLAIN_STATES = """
UPDATE page_states SET
    last_crawl_at = nullif(given.last_crawl_at, '-infinity'),
    last_observed_at = nullif(given.last_observed_at, '-infinity'),
    digest = nullif(given.digest, 0), gone = given.gone,
    n_observations = given.n_observations, n_changes = given.n_changes,
    gap = given.gap, last_interval = given.last_interval, estimate = given.estimate
FROM unnest(%(place)s::tid[], %(page_id)s::bigint[], %(last_crawl_at)s::timestamptz[],
    %(last_observed_at)s::timestamptz[], %(digest)s::bigint[], %(gone)s::bool[],
    %(n_observations)s::bigint[], %(n_changes)s::bigint[], %(gap)s::float8[],
    %(last_interval)s::float8[], %(estimate)s::bytea[])
    AS given (place, page_id, last_crawl_at, last_observed_at, digest, gone, n_observations,
        n_changes, gap, last_interval, estimate)
WHERE page_states.ctid = given.place AND page_states.page_id = given.page_id
"""

RESTORE_STATES = (
    SAVE_STATES.replace("SET\n", "SET\n    pings_since = given.pings_since,\n")
    .replace("unnest(", "unnest(%(pings_since)s::timestamptz[], ")
    .replace("given (place,", "given (pings_since, place,")
)

WAKE = f"""
WITH locked AS (
    SELECT page_id FROM page_states WHERE page_id = ANY(%(page_id)s::bigint[])
        AND gone AND n_failures > {GONE_CHECKS} AND wanted_at IS NULL
    ORDER BY page_id FOR NO KEY UPDATE
), woken AS (
    UPDATE page_states SET wanted_at = %(now)s FROM locked
    WHERE page_states.page_id = locked.page_id
    RETURNING page_states.page_id
)
SELECT array_agg(page_id) FROM woken
"""

READ_PAGES = f"""
SELECT {STATES}, array_agg(url), array_agg(importance), array_agg(coalesce(min_crawl_rate, 'NaN')),
    array_agg(coalesce(max_crawl_rate, 'NaN')), array_agg(created_at)
FROM (
    SELECT *, {EVENTFUL} FROM pages JOIN page_states USING (page_id) WHERE page_id > %(after)s
    ORDER BY page_id LIMIT %(limit)s
) AS read
"""

APPEND_LOG = """
COPY observations (page_id, observed_at, kind, changed, "interval", crawl_rate, status)
FROM STDIN (FORMAT BINARY)
"""

INSERT_LOG = """
INSERT INTO observations (page_id, observed_at, kind, changed, "interval", crawl_rate, status)
SELECT page_id, observed_at, kind, nullif(changed, -1::smallint), nullif("interval", 'NaN'),
    nullif(crawl_rate, 'NaN'), nullif(status, -1::smallint)
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

EVIDENCE_OF = """
SELECT array_agg(page_id), array_agg("interval"), array_agg(coalesce(changed, -1::smallint))
FROM (
    SELECT * FROM observations
    WHERE page_id = ANY(%(page_id)s::bigint[]) AND "interval" IS NOT NULL
    ORDER BY page_id, observed_at, kind
) AS entries
"""

LOAD_COLUMNS = """
COPY (
    SELECT page_id, CASE WHEN gone THEN 0.0 ELSE importance END, observability, host_id, section,
        coalesce(last_observed_at, '-infinity'), last_interval::float8, gap::float8, estimate,
        CASE WHEN NOT gone THEN min_crawl_rate END, max_crawl_rate, n_pings::bigint,
        CASE WHEN observability = 1 OR n_pings > 0 THEN pings_since END,
        last_ping_at, real_pings, false_pings, trust
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

INTERVAL = f"""
CASE WHEN schedule.crawl_rate > 0 THEN least(
    page_states.gap
        / least(greatest(schedule.crawl_rate::float8 * schedule.pace, 1e-100), 1e100),
    {MAX_DUE_DAYS}
) ELSE 1 END"""

NEXT_CRAWL_AT = f"""
least(
    CASE WHEN page_states.last_crawl_at >= page_states.wanted_at THEN NULL
        ELSE page_states.wanted_at END,
    CASE WHEN page_states.last_crawl_at IS NULL THEN pages.created_at
        WHEN page_states.gone THEN CASE
            WHEN page_states.n_failures > {GONE_CHECKS}
                AND (page_states.wanted_at <= page_states.last_crawl_at) IS NOT TRUE THEN NULL
            ELSE page_states.last_crawl_at + interval '1 day'
                * (1 << (least(coalesce(page_states.n_failures, 1), {GONE_CHECKS}) - 1)) END
        WHEN page_states.n_failures > 0 AND ((schedule.crawl_rate = 0) IS NOT TRUE
            OR page_states.wanted_at IS NOT NULL)
        THEN page_states.last_crawl_at + 86400 * least(greatest({INTERVAL}, 1),
            least({INTERVAL}, {RETRY_S} / 86400.0::float8)
            * (1 << (least(page_states.n_failures, {MOST_DOUBLINGS}) - 1))) * interval '1 second'
        WHEN schedule.crawl_rate > 0
        THEN page_states.last_crawl_at + 86400 * {INTERVAL} * interval '1 second' END
)"""

SCHEDULE = f"""
SELECT array_agg(page_id), string_agg(url, E'\\n'), array_agg(importance),
    array_agg(change_rate::float8), array_agg(crawl_rate::float8), array_agg(crawl_probability),
    array_agg(coalesce(next_crawl_at, '-infinity')),
    array(SELECT epoch FROM ({schedule_sql.KEPT}) AS kept)
FROM ({{rows}}) AS rows
"""

REMOVED = f"SELECT array_agg(page_id) FROM ({schedule_sql.REMOVED}) AS ids"


def schedule(only: Collection[str], *, since: bool) -> str:
    """Give the statement that reads rows of the schedule; no URL has a line break."""
    words = {
        "next_crawl_at": NEXT_CRAWL_AT, "greatest": "greatest", "least": "least",
        "double": "::float8",
    }  # fmt: skip
    return SCHEDULE.format(rows=schedule_sql.rows(only, since=since, **words))
