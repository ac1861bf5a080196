"""The statements and words that are SQLite's own."""

from functools import cache

from service.model.columns import PageStates
from service.model.url_groups import URL_GROUPS
from service.storage.contract import EPOCHS_KEPT, GONE_CHECKS
from service.storage.dialect import worded
from service.storage.sqlite.log import STRETCHES
from service.storage.sqlite.values import OBSERVABILITIES, WRITTEN
from service.storage.tables import NULL_FOR_ZERO

ADD_PAGES = """
INSERT OR IGNORE INTO pages
    (key, url, host_id, importance, min_crawl_rate, max_crawl_rate, created_at)
VALUES (?, ?, ?, coalesce(?, 1), ?, ?, ?)
"""

ADD_STATES = """
INSERT INTO page_states
    (page_id, pings_since, interval_factor, n_observations, n_changes, observability, gone,
    url_group, estimate)
VALUES (?, ?, 1, 0, 0, ?, 0, ?, ?)
"""

PLACES = {name: "nullif(?, 0)" if name in NULL_FOR_ZERO else "?" for name in WRITTEN}
BRING_STATES = f"""
INSERT INTO page_states (pings_since, {", ".join(WRITTEN)}, observability, url_group)
VALUES (?, {", ".join(PLACES.values())}, ?, ?)
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

OF_STATES = [name for name in PageStates.__dataclass_fields__ if not name.startswith("crawl_")]
STATES = "SELECT page_states." + ", ".join(
    f"coalesce({name}, 0)" if name in NULL_FOR_ZERO else name for name in OF_STATES
)
"""The columns of `PageStates` but the rates in force, in their order."""

LOCK_STATES = f"""
{STATES}, NULL, NULL
FROM page_states WHERE page_id IN (SELECT value FROM json_each(?)) ORDER BY page_id
"""

LOCK_SCHEDULED_STATES = f"""
{STATES}, crawl_rate, CASE WHEN epoch IS NOT NULL THEN coalesce(crawl_probability, 0.0) END
FROM page_states
LEFT JOIN schedule ON schedule.page_id = page_states.page_id
    AND schedule.epoch = (SELECT max(epoch) FROM epochs WHERE status = 'published')
WHERE page_states.page_id IN (SELECT value FROM json_each(?))
ORDER BY page_states.page_id
"""

_SAVE = ", ".join(f"{name} = {place}" for name, place in PLACES.items() if name != "page_id")
SAVE_STATES = f"UPDATE page_states SET {_SAVE} WHERE page_id = ?"
RESTORE_STATES = f"UPDATE page_states SET pings_since = ?, {_SAVE} WHERE page_id = ?"

WAKE = f"""
UPDATE page_states SET requested_at = ? WHERE page_id IN (SELECT value FROM json_each(?))
    AND gone AND n_failures > {GONE_CHECKS} AND requested_at IS NULL
RETURNING page_id
"""

READ_PAGES = f"""
{STATES}, NULL, NULL, url, importance, min_crawl_rate, max_crawl_rate, created_at
FROM pages JOIN page_states ON page_states.page_id = pages.page_id
WHERE pages.page_id > ? ORDER BY pages.page_id LIMIT ?
"""

LOAD_COLUMNS = f"""
SELECT pages.page_id, observability + {OBSERVABILITIES} * (url_group + {URL_GROUPS} * host_id),
    CASE WHEN gone THEN 0.0 ELSE importance END, last_observed_at, last_interval, interval_factor,
    estimate
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
INSERT INTO schedule (epoch, page_id, change_rate, crawl_rate, crawl_probability, urgency)
VALUES (?, ?, ?, ?, ?, ?)
"""


WORDS = {
    "double": "",
    "greatest": "max",
    "least": "min",
    "in_hosts": "IN (SELECT value FROM json_each(%(hosts)s))",
    "ids": "json_each(%(ids)s)",
    "names": "json_each(%(names)s)",
    "lock_rows": "",
    "days_since": "(%(now)s - pings_since) / 86400e6",
    "log_of_page": f"stretch IN ({STRETCHES}) AND page_id = %(page_id)s",
}


class Named(dict[str, str]):
    """Turns `%(name)s`, as Postgres's driver marks a parameter, into SQLite's `:name`."""

    def __missing__(self, name: str) -> str:
        return f":{name}"


@cache
def named(statement: str) -> str:
    """Return a statement of both databases with its parameters as SQLite marks them.

    >>> named("SELECT 7 %% %(b)s")
    'SELECT 7 % :b'
    """
    return worded(statement, WORDS) % Named()
