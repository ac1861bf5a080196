"""The floor of one crawl at a time on Postgres: two commits of bare SQL over libpq, no HTTP.

The first statement marks a queued crawl as leased. The second writes its page's state and log
entry, and deletes it from the queue. There is no search for the most overdue page, no check of a
host's delay and no estimate. The remaining costs are round trips, row writes and two fsyncs.
"""

import threading
import time

from benchmarks.http.floors_postgres import Bare

QUEUED = """
SELECT page_id FROM due_pages WHERE token IS NULL ORDER BY page_id DESC LIMIT 100000
"""
LEASE = (
    "UPDATE due_pages SET token = 1, expires_at = now(), next_at = now() WHERE page_id = $1::bigint"
)
REPORT = """
WITH ended AS (DELETE FROM due_pages WHERE page_id = $1::bigint AND token = 1 RETURNING page_id),
seen AS (
    UPDATE page_states SET last_crawl_at = now(), last_observed_at = now()
    FROM ended WHERE page_states.page_id = ended.page_id
)
INSERT INTO observations (page_id, observed_at, kind, changed, "interval")
SELECT page_id, now(), 0, 0, 1 FROM ended
"""


def singles(url: str, n_clients: int, seconds: float) -> float:
    """Return crawls a second of `n_clients` connections, each with one crawl under way."""
    result = Bare(url).run(QUEUED)
    pages = [result.get_value(i, 0) for i in range(result.ntuples)]
    connections = [Bare(url) for _ in range(n_clients)]
    done = [0] * n_clients
    for connection in connections:
        connection.prepare("lease", LEASE)
        connection.prepare("report", REPORT)
    deadline = time.monotonic() + seconds

    def repeat(client: int) -> None:
        for page in pages[client::n_clients]:
            if time.monotonic() > deadline:
                break
            connections[client].prepared("lease", page)
            connections[client].prepared("report", page)
            done[client] += 1

    threads = [threading.Thread(target=repeat, args=[client]) for client in range(n_clients)]
    begun = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(done) / (time.monotonic() - begun)
