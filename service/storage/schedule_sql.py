"""How the schedule is read, in words that Postgres and SQLite share.

Every statement walks along primary keys from `after` on and never further than `last`: the
tables have the same key and are merged, and a filter that matches little costs a bounded walk.
Each table is told where to begin and end; a planner does not conclude it from the join.
"""

SCHEDULE = """
SELECT schedule.page_id, url, importance, schedule.change_rate, schedule.crawl_rate,
    coalesce(schedule.crawl_probability, 0.0) AS crawl_probability,
    {next_crawl_at} AS next_crawl_at
FROM schedule
JOIN pages ON pages.page_id = schedule.page_id
JOIN page_states ON page_states.page_id = schedule.page_id
{joined}
WHERE schedule.epoch = %(epoch)s
    {only}
ORDER BY schedule.page_id
LIMIT %(limit)s
"""

BOUNDS = """AND schedule.page_id > %(after)s AND schedule.page_id <= %(last)s
    AND pages.page_id > %(after)s AND pages.page_id <= %(last)s
    AND page_states.page_id > %(after)s AND page_states.page_id <= %(last)s
"""
"""For walks along the key; a host or a page is found by its own index."""

BEFORE = """LEFT JOIN schedule AS before ON before.epoch = %(since)s
    AND before.page_id = schedule.page_id
    AND before.page_id > %(after)s AND before.page_id <= %(last)s
"""

MOVED = """AND (before.page_id IS NULL
    OR {greatest}(schedule.crawl_rate, before.crawl_rate)
        > %(ratio)s * {least}(schedule.crawl_rate, before.crawl_rate, 1e300)
    OR {greatest}(coalesce(schedule.crawl_probability, 0.0),
            coalesce(before.crawl_probability, 0.0))
        > %(ratio)s * {least}(coalesce(schedule.crawl_probability, 0.0),
            coalesce(before.crawl_probability, 0.0)))
"""

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

FOUND = "AND schedule.page_id IN ({ids}) AND +schedule.page_id > %(after)s"
"""The plus keeps both planners from walking along the schedule instead."""

ONLY = {
    "host": FOUND.format(ids="SELECT page_id FROM pages WHERE host_id = %(host_id)s"),
    "page_id": FOUND.format(ids="%(page_id)s"),
    "observability": "AND observability = %(observability)s",
    "due_before": "AND {next_crawl_at} < %(due_before)s",
}
"""What each field of a `ScheduleFilter` asks for."""
