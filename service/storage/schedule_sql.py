"""How the schedule is read, in words that Postgres and SQLite share.

Every statement walks along primary keys from `after` on and never further than `last`: the
tables have the same key and are merged, and a filter that matches little costs a bounded walk.
Each table is told where to begin and end; a planner does not conclude it from the join.
"""

from collections.abc import Collection

from service.storage.composing import all_of
from service.storage.contract import EPOCHS_KEPT

SCHEDULE = """
SELECT schedule.page_id, created_at, last_crawl_at, requested_at, coalesce(gone, false) AS gone,
    coalesce(n_failures, 0) AS n_failures, coalesce(interval_factor, 1.0) AS interval_factor,
    {due_rate} AS due_rate, coalesce(url, '') AS url, coalesce(importance, 0.0) AS importance,
    schedule.change_rate, schedule.crawl_rate,
    coalesce(schedule.crawl_probability, 0.0) AS crawl_probability
FROM {source}
LEFT JOIN pages ON {pages}
LEFT JOIN page_states ON {states}
WHERE {where}
ORDER BY schedule.page_id
LIMIT %(limit)s
"""
"""A page deleted since has no URL. Were the joins inner ones, Postgres would take the keys for
independent, expect a row or two, and look each up instead of merging."""

BETWEEN = "{table}.page_id > %(after)s AND {table}.page_id <= %(last)s"
"""For walks along the key; a host or a page is found by its own index."""

RATE = "{row}.crawl_rate{{double}}"
DUE_RATE = "schedule.crawl_rate{double} * schedule.urgency"
"""How often a page falls due, 1/day: `DueColumns.due_rate`."""
MEASURES = (RATE, f"{RATE} * {{row}}.urgency", "coalesce({row}.crawl_probability, 0.0)")
"""What is news when it has moved."""


def _moved(measure: str) -> str:
    now, before = measure.format(row="schedule"), measure.format(row="before")
    return (
        f"{{greatest}}({now}, {before})\n"
        f"            > %(ratio)s * {{least}}({now}, {before}, 1e300)"
    )


MOVED = f"""(
    SELECT schedule.* FROM schedule
    LEFT JOIN schedule AS before ON before.epoch = %(since)s
        AND before.page_id = schedule.page_id AND {BETWEEN.format(table="before")}
    WHERE schedule.epoch = %(epoch)s AND {BETWEEN.format(table="schedule")}
        AND (before.page_id IS NULL OR {" OR ".join(map(_moved, MEASURES))})
    ORDER BY schedule.page_id
    LIMIT %(limit)s
) AS schedule"""
"""The rows that are news, in the place of the schedule: nothing is joined to the others."""

REMOVED = """
SELECT before.page_id
FROM schedule AS before
LEFT JOIN schedule ON schedule.epoch = %(epoch)s AND schedule.page_id = before.page_id
    AND schedule.page_id > %(after)s AND schedule.page_id <= %(last)s
LEFT JOIN pages ON pages.page_id = before.page_id
    AND pages.page_id > %(after)s AND pages.page_id <= %(last)s
WHERE before.epoch = %(since)s AND before.page_id > %(after)s AND before.page_id <= %(last)s
    AND (schedule.page_id IS NULL OR pages.page_id IS NULL)
ORDER BY before.page_id
"""

INDEXED = "schedule.page_id IN ({ids}) AND +schedule.page_id > %(after)s"
"""The plus keeps both planners from walking along the schedule instead."""

ONLY = {
    "host": INDEXED.format(ids="SELECT page_id FROM pages WHERE host_id = %(host_id)s"),
    "page_id": INDEXED.format(ids="%(page_id)s"),
    "observability": "observability = %(observability)s",
}
"""What each field of a `ScheduleFilter` asks for."""


HOST_QUEUE = "coalesce(-hosts.group_id, hosts.host_id)"
"""What a page is crawled one after the other with: its host, or its host's group."""

KEPT = f"""
SELECT epoch FROM epochs WHERE status = 'published' ORDER BY epoch DESC LIMIT {EPOCHS_KEPT}
"""


def rows(only: Collection[str], *, since: bool) -> str:
    """Return the statement that reads rows under these filters, or what moved since an epoch."""
    indexed = "host" in only or "page_id" in only
    conditions = [ONLY[name] for name in only]
    if not since:
        conditions += ["schedule.epoch = %(epoch)s", *_walk("schedule", indexed=indexed)]
    return SCHEDULE.format(
        source=MOVED if since else "schedule",
        pages=_same_page("pages", indexed=indexed),
        states=_same_page("page_states", indexed=indexed),
        where=all_of(conditions),
        due_rate=DUE_RATE,
    )


def _walk(table: str, *, indexed: bool) -> list[str]:
    """Return where a walk along the key begins and ends; none where an index finds the rows."""
    return [] if indexed else [BETWEEN.format(table=table)]


def _same_page(table: str, *, indexed: bool) -> str:
    return all_of([f"{table}.page_id = schedule.page_id", *_walk(table, indexed=indexed)])
