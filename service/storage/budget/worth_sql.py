"""The statements on levels of URLs that both databases share."""

from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from service.model.arrays import Ints
from service.model.outcomes import OFFER
from service.storage.budget.worth import (
    HeldImportance,
    HeldPages,
    ShownLevel,
    UrlLevels,
    WorthStatements,
)
from service.storage.dialect import Dialect

ABOVE = """WITH RECURSIVE wanted (level) AS (
    SELECT value FROM {ids}
    UNION
    SELECT url_levels.parent FROM wanted
    JOIN url_levels ON url_levels.level = wanted.level WHERE url_levels.parent <> 0
)"""
OF_LEVEL = {
    "level": "i8",
    "parent": "i8",
    "last": "?",
    "n_first": "i8",
    "n_new": "i8",
    "n_opened": "i8",
    "n_opened_new": "i8",
    "n_in_flight": "i8",
    "n_forbidden": "i8",
    "n_led": "i8",
    "rule": "i2",
    "stopped": "?",
}
LOCK_HOSTS = f"""
{ABOVE}
SELECT level FROM url_levels WHERE level IN (SELECT level FROM wanted) AND parent = 0
ORDER BY level {{lock_rows}}
"""
LEVELS = f"""
{ABOVE}
SELECT level, parent, name LIKE '%%?%%' AS last, n_first, n_new, n_opened, n_opened_new,
    n_in_flight, n_forbidden, n_led, coalesce(rule, 0) AS rule, stopped
FROM url_levels WHERE level IN (SELECT level FROM wanted) ORDER BY level
"""
"""Statement that knows last levels by the `?` of their names, which no directory has."""
MOST_WEIGHED, MOST_WAITING = 20_000, 100
"""Maximum levels that a sample is chosen from, and pages of each that count."""
UNOPENED_BELOW = """WITH RECURSIVE below (level, name, since) AS (
    SELECT level, name, since FROM url_levels WHERE parent IN (SELECT value FROM {ids})
        AND n_first = 0 AND n_in_flight = 0 AND rule IS NULL
    UNION
    SELECT url_levels.level, url_levels.name, url_levels.since FROM below
    JOIN url_levels ON url_levels.parent = below.level
    WHERE url_levels.n_first = 0 AND url_levels.n_in_flight = 0 AND url_levels.rule IS NULL
)"""
UNOPENED = f"""
{UNOPENED_BELOW}
SELECT level FROM below WHERE name LIKE '%%?%%'
    AND EXISTS (SELECT 1 FROM page_states WHERE held = below.level)
LIMIT %(limit)s
"""
FULLEST = f"""
{UNOPENED_BELOW}
SELECT level FROM (
    SELECT level, since, (
        SELECT count(*) FROM (
            SELECT 1 FROM page_states WHERE held = candidate.level LIMIT {MOST_WAITING}
        ) AS waiting
    ) AS n FROM (
        SELECT level, since FROM below WHERE name LIKE '%%?%%' LIMIT {MOST_WEIGHED}
    ) AS candidate
) AS weighed WHERE n > 0 ORDER BY n DESC, since DESC, level LIMIT 1
"""
BELOW = """WITH RECURSIVE below (level) AS (
    SELECT level FROM url_levels WHERE level = %(level)s
    UNION ALL
    SELECT url_levels.level FROM below JOIN url_levels ON url_levels.parent = below.level
)"""
WAITING_BELOW = f"""
{BELOW}
SELECT level FROM below
WHERE EXISTS (SELECT 1 FROM page_states WHERE held = below.level) LIMIT %(limit)s
"""
IN_FLIGHT_BELOW = f"""
{BELOW}
SELECT page_id, -held AS level FROM page_states
WHERE held IN (SELECT -level FROM below) AND last_crawl_at IS NULL {{lock_free_rows}}
"""
HOLD = "UPDATE page_states SET held = -held WHERE held < 0 AND page_id IN (SELECT value FROM {ids})"
OF_HELD = {"page_id": "i8", "level": "i8"}
ADMIT = (
    "UPDATE page_states SET held = -held WHERE held > 0 AND page_id IN (SELECT value FROM {ids})"
)
END_HOLDS = """
UPDATE page_states SET held = NULL
WHERE held IS NOT NULL AND page_id IN (SELECT value FROM {ids})
"""
HAND_ON = """
UPDATE page_states SET held = source.held FROM page_states AS source
WHERE source.page_id IN (SELECT value FROM {ids}) AND page_states.page_id = source.redirects_to
"""
HELD = f"""
SELECT page_id, CASE WHEN outcome = {OFFER} THEN abs(held) ELSE held END AS level FROM page_states
WHERE held IS NOT NULL AND page_id IN (SELECT value FROM {{ids}}) ORDER BY page_id
"""
WAITING_LEVELS = """
WITH RECURSIVE waiting (level) AS (
    SELECT min(held) FROM page_states WHERE held > %(after)s AND held > 0
    UNION ALL
    SELECT (SELECT min(held) FROM page_states WHERE held > waiting.level)
    FROM waiting WHERE waiting.level IS NOT NULL
)
SELECT level FROM waiting WHERE level IS NOT NULL LIMIT %(limit)s
"""
"""Statement that looks each level up in the index, so that the number of pages does not matter."""
URLS_OF_LEVELS = """
SELECT (SELECT url FROM pages WHERE page_id = (
    SELECT min(page_id) FROM page_states WHERE held = value
)) AS url
FROM {ids} WHERE NOT EXISTS (SELECT 1 FROM url_levels WHERE level = value)
"""
DROP_DIGESTS = """
DELETE FROM digests WHERE digest IN (
    SELECT digest FROM page_states WHERE page_id IN (SELECT value FROM {ids})
)
"""
SET_RULE = """
UPDATE url_levels SET rule = nullif(%(rule)s, 0), since = %(now)s WHERE level = %(level)s
"""
N_SAMPLED = """
SELECT count(*) FROM url_levels WHERE stopped AND name LIKE '%%?%%'
    AND sampled_at >= %(pending_since)s AND (sampled_at >= %(since)s OR n_in_flight > 0)
"""
DUE_SAMPLES = """
SELECT level FROM url_levels WHERE stopped AND coalesce(rule, 0) = 0
    AND (sampled_at IS NULL OR sampled_at <= %(before)s)
    AND (EXISTS (SELECT 1 FROM page_states WHERE held = url_levels.level)
        OR EXISTS (SELECT 1 FROM url_levels AS child
            WHERE child.parent = url_levels.level AND child.n_first = 0))
    AND NOT EXISTS (
        WITH RECURSIVE above (parent, rule) AS (
            SELECT own.parent, own.rule FROM url_levels AS own
            WHERE own.level = url_levels.parent
            UNION ALL
            SELECT own.parent, own.rule FROM above
            JOIN url_levels AS own ON own.level = above.parent
        )
        SELECT 1 FROM above WHERE above.rule IS NOT NULL
    )
ORDER BY sampled_at IS NOT NULL, sampled_at, level LIMIT %(limit)s
"""
"""Statement that leaves out levels with a rule of their own, and those below a rule."""
MARK_SAMPLED = "UPDATE url_levels SET sampled_at = %(now)s WHERE level IN (SELECT value FROM {ids})"
DATE_SAMPLES = f"{MARK_SAMPLED} AND sampled_at IS NOT NULL"
SHOWN = """
SELECT level, parent, name, n_first, n_new, n_opened, n_opened_new, n_in_flight,
    n_forbidden, n_led, coalesce(rule, 0) AS rule, stopped, since
FROM url_levels
"""
SHOWN_LEVELS = f"""
{SHOWN} WHERE name > %(after)s AND name >= %(prefix)s AND name < %(end)s
    AND (stopped OR NOT %(only_stopped)s)
ORDER BY name LIMIT %(limit)s
"""
LEVELS_ABOVE = f"""
{ABOVE}
{SHOWN} WHERE level IN (SELECT level FROM wanted) ORDER BY name
"""
BELOW_EACH = """
WITH RECURSIVE below (top, level) AS (
    SELECT value, value FROM {ids}
    UNION ALL
    SELECT below.top, url_levels.level FROM below
    JOIN url_levels ON url_levels.parent = below.level
)
"""
N_WAITING = f"""{BELOW_EACH}
SELECT top, count(*) AS n FROM below JOIN page_states ON held = below.level
GROUP BY top
"""
N_IN_FLIGHT = f"""{BELOW_EACH}
SELECT top, CAST(sum(n_in_flight) AS bigint) AS n
FROM below JOIN url_levels ON url_levels.level = below.level
WHERE NOT EXISTS (SELECT 1 FROM url_levels AS child WHERE child.parent = below.level)
GROUP BY top
"""
"""Statement that counts last levels alone: those above have only what leans on them."""
IMPORTANCE_HELD = """
SELECT held AS level, sum(importance) AS importance FROM page_states
JOIN pages ON pages.page_id = page_states.page_id WHERE held > 0 AND NOT gone GROUP BY held
"""
OF_IMPORTANCE = {"level": "i8", "importance": "f8"}
HIGHEST = "\U0010ffff"
"""Text after all names with a prefix."""


class WorthSql(Dialect, WorthStatements):
    """The statements on levels that Postgres and SQLite share."""

    @override
    def lock_levels(self, level: Ints) -> UrlLevels:
        # read after the lock, so that the counts are those of the last commit
        self.ids(LOCK_HOSTS, ids=level)
        read = self.arrays(LEVELS, OF_LEVEL, ids=level)
        # Postgres returns counts in four bytes, where products would overflow
        levels: dict[str, Any] = {n: read[n].astype(kind) for n, kind in OF_LEVEL.items()}
        return UrlLevels(**levels)

    @override
    def unopened(self, level: Ints, limit: int) -> Ints:
        return np.sort(self.ids(UNOPENED, ids=level, limit=limit))

    @override
    def fullest(self, level: int) -> Ints:
        return self.ids(FULLEST, ids=np.array([level]))

    @override
    def waiting_below(self, level: int, limit: int) -> Ints:
        return np.sort(self.ids(WAITING_BELOW, level=level, limit=limit))

    @override
    def hold_again(self, level: int) -> HeldPages:
        rows = self.read(IN_FLIGHT_BELOW, level=level)
        pages, levels = ([row[name] for row in rows] for name in ("page_id", "level"))
        held = HeldPages(page_id=np.array(pages, np.int64), level=np.array(levels, np.int64))
        self.hold_pages(held.page_id)
        return held

    @override
    def hold_pages(self, page_id: Ints) -> None:
        self.run(HOLD, ids=page_id)

    @override
    def admit_pages(self, page_id: Ints) -> None:
        self.run(ADMIT, ids=page_id)

    @override
    def hand_on(self, page_id: Ints) -> None:
        self.run(HAND_ON, ids=page_id)

    @override
    def end_holds(self, page_id: Ints) -> None:
        self.run(END_HOLDS, ids=page_id)

    @override
    def held_pages(self, page_id: Ints) -> HeldPages:
        held: dict[str, Any] = dict(self.arrays(HELD, OF_HELD, ids=page_id))
        return HeldPages(**held)

    @override
    def waiting_levels(self, after: int, limit: int) -> Ints:
        return self.ids(WAITING_LEVELS, after=after, limit=limit)

    @override
    def urls_of_levels(self, level: Ints) -> NDArray[np.object_]:
        return np.array([url for (url,) in self.run(URLS_OF_LEVELS, ids=level) if url], object)

    @override
    def drop_digests(self, page_id: Ints) -> None:
        self.run(DROP_DIGESTS, ids=page_id)

    @override
    def set_rule(self, level: int, rule: int, now: datetime) -> None:
        self.run(SET_RULE, level=level, rule=rule, now=now)

    @override
    def n_sampled(self, since: datetime, pending_since: datetime) -> int:
        return int(self.scalar(N_SAMPLED, since=since, pending_since=pending_since))

    @override
    def due_samples(self, before: datetime, limit: int) -> Ints:
        return self.ids(DUE_SAMPLES, before=before, limit=limit)

    @override
    def mark_sampled(self, level: Ints, now: datetime) -> None:
        self.run(MARK_SAMPLED, ids=level, now=now)

    @override
    def date_samples(self, level: Ints, now: datetime) -> None:
        if len(level):
            self.run(DATE_SAMPLES, ids=level, now=now)

    @override
    def shown_levels(
        self, after: str, limit: int, prefix: str, *, only_stopped: bool
    ) -> list[ShownLevel]:
        bounds = {"after": after, "prefix": prefix, "end": prefix + HIGHEST}
        return self._shown(SHOWN_LEVELS, **bounds, only_stopped=only_stopped, limit=limit)

    @override
    def levels_above(self, level: Ints) -> list[ShownLevel]:
        return self._shown(LEVELS_ABOVE, ids=level)

    def _shown(self, statement: str, **parameters: Any) -> list[ShownLevel]:
        return list(map(shown_level, self.read(statement, **parameters)))

    @override
    def n_waiting(self, level: Ints) -> dict[int, int]:
        return dict(tuple(row) for row in self.run(N_WAITING, ids=level))

    @override
    def n_in_flight(self, level: Ints) -> dict[int, int]:
        return dict(tuple(row) for row in self.run(N_IN_FLIGHT, ids=level))

    @override
    def importance_held(self) -> HeldImportance:
        sums: dict[str, Any] = dict(self.arrays(IMPORTANCE_HELD, OF_IMPORTANCE))
        return HeldImportance(**sums)


def shown_level(row: dict[str, Any]) -> ShownLevel:
    """Return the level in a row of `SHOWN`."""
    return ShownLevel(**{**row, "stopped": bool(row["stopped"])})
