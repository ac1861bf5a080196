"""The feed in the SQL of Postgres.

A commit takes a lock before it draws its number, and holds the lock until its end. Postgres frees
the lock after the commit is visible, so the next commit draws a higher number later. The append is
sent in one message with COMMIT, so a client that stops holds nobody up, but for a message that was
cut off. `end_stuck_commit` ends the session of such a client.
"""

import numpy as np
from typing_extensions import override

from service.model.arrays import Ints
from service.model.changes import ChangeColumns, ChangeFilter, PageUrls
from service.storage.feed.contract import STUCK_S, FeedSql, blocks, url_condition
from service.storage.postgres.dialect import PostgresDialect

LOCK = 0x7265_6372_6665_6564  # "recrfeed"
CLOCK = "CAST(extract(epoch FROM clock_timestamp()) * 1e6 AS bigint)"
"""Time of the database, microseconds since 1970."""

APPEND = f"""
INSERT INTO feed (seq, items)
SELECT setval('feed_seq', greatest(nextval('feed_seq'), {CLOCK})), %(items)s
FROM (SELECT pg_advisory_xact_lock({LOCK}) OFFSET 0) AS locked
"""
"""Statement that locks, then draws the number; OFFSET keeps the two apart."""

LATEST = f"SELECT greatest((SELECT last_value FROM feed_seq), {CLOCK})"

URLS = """
SELECT array_agg(page_id), string_agg(url, E'\\n') FROM (
    SELECT page_id, url FROM pages WHERE page_id = ANY(%(page_id)s::bigint[]) AND {condition}
    ORDER BY page_id
) AS named
"""
"""Statement that reads all URLs as one text, because no URL has a line break."""

END_STUCK = f"""
SELECT count(pg_terminate_backend(stuck.pid)) FROM (
    SELECT DISTINCT holder.pid
    FROM pg_locks AS holder
    JOIN pg_stat_activity AS holding ON holding.pid = holder.pid
    JOIN pg_locks AS waiter ON waiter.locktype = 'advisory' AND NOT waiter.granted
        AND (waiter.database, waiter.classid, waiter.objid)
            = (holder.database, holder.classid, holder.objid)
    JOIN pg_stat_activity AS waiting ON waiting.pid = waiter.pid
    WHERE holder.locktype = 'advisory' AND holder.granted
        AND holder.database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND (holder.classid::bigint << 32) + holder.objid::bigint = {LOCK}
        AND holding.wait_event = 'ClientRead'
        AND waiting.query_start < clock_timestamp() - interval '{STUCK_S} seconds'
) AS stuck
"""
"""Statement that ends only sessions that wait for their clients, and never a slow commit."""


class PostgresFeed(FeedSql, PostgresDialect):
    """The feed in the SQL of Postgres."""

    @override
    def append_changes(self, changes: ChangeColumns) -> None:
        for items in blocks(changes):
            self.statements.at_end(APPEND, {"items": items})

    @override
    def page_urls(self, page_id: Ints, only: ChangeFilter) -> PageUrls:
        condition, values = url_condition(only)
        (row,) = self.run(URLS.format(condition=condition), page_id=page_id, **values)
        ids, urls = row
        if ids is None:
            return PageUrls(np.zeros(0, np.int64), np.zeros(0, object))
        return PageUrls(ids, np.array(urls.split("\n"), object))

    @override
    def latest_number(self) -> int:
        return int(self.scalar(LATEST))

    @override
    def end_stuck_commit(self) -> bool:
        return bool(self.scalar(END_STUCK))
