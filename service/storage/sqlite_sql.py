"""Every statement that is SQLite's own; what both databases say is in `sql` and `schedule_sql`."""

from collections.abc import Collection

from service.sections import SECTIONS
from service.storage import schedule_sql
from service.storage.base import (
    EPOCHS_KEPT,
    GONE_CHECKS,
    MAX_DUE_DAYS,
    MOST_DOUBLINGS,
    RETRY_S,
)
from service.storage.sqlite_values import OBSERVABILITIES

ADD_PAGES = """
INSERT OR IGNORE INTO pages
    (key, url, host_id, importance, min_crawl_rate, max_crawl_rate, created_at)
VALUES (?, ?, ?, coalesce(?, 1), ?, ?, ?)
"""

HOST_IDS = "SELECT host, host_id FROM hosts WHERE host IN (SELECT value FROM json_each(?))"

ADD_STATES = """
INSERT INTO page_states
    (page_id, pings_since, gap, n_observations, n_changes, observability, gone, section, estimate)
VALUES (?, ?, 1, 0, 0, ?, 0, ?, ?)
"""

BRING_STATES = """
INSERT INTO page_states
    (observability, section, pings_since, last_crawl_at, last_observed_at, digest, gone,
    n_observations, n_changes, gap, last_interval, estimate, n_pings, ping_credit, recent_pings,
    real_pings, false_pings, trust, n_failures, redirects_to, last_ping_at, wanted_at, page_id)
VALUES (?, ?, ?, ?, ?, nullif(?, 0), ?, ?, ?, ?, ?, ?, nullif(?, 0), nullif(?, 0), nullif(?, 0),
    nullif(?, 0), nullif(?, 0), nullif(?, 0), nullif(?, 0), nullif(?, 0), ?, ?, ?)
"""

CHANGE_PAGES = """
UPDATE pages SET importance = coalesce(?, importance),
    min_crawl_rate = coalesce(?, min_crawl_rate), max_crawl_rate = coalesce(?, max_crawl_rate)
WHERE page_id = ?
"""

CHANGE_STATES = """
UPDATE page_states SET observability = given.observability,
    n_pings = CASE given.observability WHEN 1 THEN NULL ELSE n_pings END,
    pings_since = CASE given.observability WHEN 1 THEN ? ELSE pings_since END,
    ping_credit = CASE given.observability WHEN 1 THEN NULL ELSE ping_credit END
FROM (SELECT ? AS page_id, ? AS observability) AS given
WHERE page_states.page_id = given.page_id
    AND given.observability NOT IN (-1, page_states.observability)
"""

STATES = """
SELECT page_states.page_id, last_crawl_at, last_observed_at, coalesce(digest, 0), gone,
    n_observations, n_changes, coalesce(n_pings, 0), last_ping_at, pings_since,
    coalesce(ping_credit, 0.0), coalesce(recent_pings, 0), coalesce(real_pings, 0.0),
    coalesce(false_pings, 0.0), coalesce(trust, 0.0), wanted_at, gap, last_interval,
    coalesce(n_failures, 0), coalesce(redirects_to, 0), estimate, observability"""

PLAIN_STATES = """
SELECT page_states.page_id, last_crawl_at, last_observed_at, coalesce(digest, 0), n_observations,
    n_changes, pings_since, gap, last_interval, estimate,
    gone + 2 * (coalesce(n_pings, ping_credit, recent_pings, real_pings, false_pings, trust,
        n_failures, redirects_to, last_ping_at, wanted_at) IS NOT NULL) + 4 * observability"""

LOCK_STATES = f"""
{PLAIN_STATES}
FROM page_states WHERE page_id IN (SELECT value FROM json_each(?)) ORDER BY page_id
"""

EVENTS = """
SELECT coalesce(n_pings, 0), coalesce(ping_credit, 0.0), coalesce(recent_pings, 0),
    coalesce(real_pings, 0.0), coalesce(false_pings, 0.0), coalesce(trust, 0.0),
    coalesce(n_failures, 0), coalesce(redirects_to, 0), last_ping_at, wanted_at
FROM page_states WHERE page_id IN (SELECT value FROM json_each(?)) ORDER BY page_id
"""

LOCK_SCHEDULED_STATES = f"""
{PLAIN_STATES}, crawl_rate, CASE WHEN epoch IS NOT NULL THEN coalesce(crawl_probability, 0.0) END
FROM page_states
LEFT JOIN schedule ON schedule.page_id = page_states.page_id
    AND schedule.epoch = (SELECT max(epoch) FROM epochs WHERE status = 'published')
WHERE page_states.page_id IN (SELECT value FROM json_each(?))
ORDER BY page_states.page_id
"""

SAVE_PLAIN_STATES = """
UPDATE page_states SET last_crawl_at = ?, last_observed_at = ?, digest = nullif(?, 0), gone = ?,
    n_observations = ?, n_changes = ?, gap = ?, last_interval = ?, estimate = ?
WHERE page_id = ?
"""

SAVE_STATES = """
UPDATE page_states SET last_crawl_at = ?, last_observed_at = ?, digest = nullif(?, 0), gone = ?,
    n_observations = ?, n_changes = ?, gap = ?, last_interval = ?, estimate = ?,
    n_pings = nullif(?, 0), ping_credit = nullif(?, 0), recent_pings = nullif(?, 0),
    real_pings = nullif(?, 0), false_pings = nullif(?, 0), trust = nullif(?, 0),
    n_failures = nullif(?, 0), redirects_to = nullif(?, 0),
    last_ping_at = ?, wanted_at = ?
WHERE page_id = ?
"""

WAKE = f"""
UPDATE page_states SET wanted_at = ? WHERE page_id IN (SELECT value FROM json_each(?))
    AND gone AND n_failures > {GONE_CHECKS} AND wanted_at IS NULL
RETURNING page_id
"""

RESTORE_STATES = SAVE_STATES.replace("SET ", "SET pings_since = ?, ", 1)

READ_PAGES = f"""
{STATES}, NULL, NULL, url, importance, min_crawl_rate, max_crawl_rate, created_at
FROM pages JOIN page_states ON page_states.page_id = pages.page_id
WHERE pages.page_id > ? ORDER BY pages.page_id LIMIT ?
"""

LOAD_COLUMNS = f"""
SELECT pages.page_id, observability + {OBSERVABILITIES} * (section + {SECTIONS} * host_id),
    CASE WHEN gone THEN 0.0 ELSE importance END, last_observed_at, last_interval, gap, estimate
FROM pages JOIN page_states ON page_states.page_id = pages.page_id
ORDER BY pages.page_id
"""

LOAD_RARE = """
SELECT pages.page_id, CASE WHEN gone THEN NULL ELSE min_crawl_rate END, max_crawl_rate,
    coalesce(n_pings, 0), pings_since, last_ping_at, coalesce(real_pings, 0.0),
    coalesce(false_pings, 0.0), coalesce(trust, 0.0)
FROM pages JOIN page_states ON page_states.page_id = pages.page_id
WHERE n_pings > 0 OR observability = 1 OR coalesce(min_crawl_rate, max_crawl_rate) IS NOT NULL
ORDER BY pages.page_id
"""

STALE_EPOCH = f"""
SELECT epoch FROM epochs WHERE EXISTS (SELECT 1 FROM schedule WHERE schedule.epoch = epochs.epoch)
    AND epoch NOT IN (SELECT epoch FROM epochs WHERE status = 'published'
        ORDER BY epoch DESC LIMIT {EPOCHS_KEPT})
LIMIT 1
"""

DROP_SCHEDULE = """
DELETE FROM schedule WHERE epoch = ?1 AND page_id <= coalesce(
    (SELECT page_id FROM schedule WHERE epoch = ?1 ORDER BY page_id LIMIT 1 OFFSET ?2), 1e300)
"""

ADD_SCHEDULE = """
INSERT INTO schedule (epoch, page_id, change_rate, crawl_rate, crawl_probability, pace)
VALUES (?, ?, ?, ?, ?, ?)
"""

INTERVAL = f"""CASE WHEN schedule.crawl_rate > 0
    THEN min(page_states.gap / (schedule.crawl_rate * schedule.pace), {MAX_DUE_DAYS})
    ELSE 1.0 END"""
DUE = f"""CASE WHEN page_states.last_crawl_at IS NULL THEN pages.created_at
    WHEN page_states.gone THEN CASE
        WHEN page_states.n_failures > {GONE_CHECKS}
            AND (page_states.wanted_at <= page_states.last_crawl_at) IS NOT 1 THEN NULL
        ELSE page_states.last_crawl_at + (86400000000
            << (min(coalesce(page_states.n_failures, 1), {GONE_CHECKS}) - 1)) END
    WHEN page_states.n_failures > 0 AND ((schedule.crawl_rate = 0) IS NOT 1
        OR page_states.wanted_at IS NOT NULL)
    THEN page_states.last_crawl_at + CAST(86400e6 * min(max({INTERVAL}, 1.0),
        min({INTERVAL}, {RETRY_S} / 86400.0)
        * (1 << (min(page_states.n_failures, {MOST_DOUBLINGS}) - 1))) AS INTEGER)
    WHEN schedule.crawl_rate > 0
    THEN page_states.last_crawl_at + CAST(86400e6 * {INTERVAL} AS INTEGER) END"""
NEXT_CRAWL_AT = f"""CASE
    WHEN page_states.wanted_at IS NULL OR page_states.wanted_at <= page_states.last_crawl_at
    THEN {DUE} ELSE min(page_states.wanted_at, coalesce({DUE}, page_states.wanted_at)) END"""


class Named(dict[str, str]):
    """Turns `%(name)s`, as Postgres's driver marks a parameter, into SQLite's `:name`."""

    def __missing__(self, name: str) -> str:
        return f":{name}"


def schedule(only: Collection[str], *, since: bool) -> str:
    """Give the statement that reads rows of the schedule."""
    words = {"next_crawl_at": NEXT_CRAWL_AT, "greatest": "max", "least": "min", "double": ""}
    return schedule_sql.rows(only, since=since, **words) % Named()


REMOVED = schedule_sql.REMOVED % Named()
