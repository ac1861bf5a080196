"""Measure leases on Postgres while a session holds a snapshot: rows read, and time of a request.

    PYTHONPATH=tests python -m benchmarks.leases.snapshot --hosts 1000 --held

100,000 pages, half of them due. Each request reports 20 crawls and leases 20 pages, a second after
the last one. `--rude`: hosts without delay and without a limit of leases.
"""

import argparse
import os
import time

import numpy as np
import psycopg
import sqlalchemy as sa
from support.live_server import Clock, created, running

from benchmarks.leases.data import Fleet, fill, tidy

SERVER = "postgresql://postgres@127.0.0.1:5432/postgres"
N_PAGES, EACH, PARTS = 100_000, 20, 5
FIRST = {
    "ready": "SELECT min(next_at) FROM host_queues",
    "queued": "SELECT min(next_at) FROM due_pages WHERE queue_id = 1",
}
LOOKS = {
    "ready": "SELECT queue_id FROM host_queues WHERE next_at >= %(first)s AND next_at <= %(now)s "
    "ORDER BY next_at LIMIT 28",
    "queued": "SELECT * FROM due_pages WHERE queue_id = 1 AND next_at >= %(first)s "
    "ORDER BY next_at LIMIT 4",
}
"""Statements like those of a lease, from a lower bound on."""
READ = """
SELECT indexrelname, idx_tup_read FROM pg_stat_user_indexes
WHERE indexrelname IN ('host_queues_next_at_idx', 'due_pages_queue_id_next_at_idx')
"""


def looked(look: psycopg.Connection, name: str, first: object, now: object) -> str:
    """Return the blocks and the time of a look from a bound on."""
    statement = f"EXPLAIN (ANALYZE, BUFFERS, TIMING OFF) {LOOKS[name]}"
    with psycopg.ClientCursor(look) as cursor:
        lines = [row for (row,) in cursor.execute(statement, {"first": first, "now": now})]
    blocks = next(line.strip() for line in lines if "Buffers" in line)
    return f"{blocks}, {lines[-1].strip()}"


def measure(live: object, look: psycopg.Connection, n_requests: int) -> None:
    """Lease and report, and print the figures of each part."""
    report: list[dict[str, object]] = []
    spent: list[float] = []
    for number in range(1, n_requests + 1):
        now = live.clock.advance(seconds=1)
        start = time.perf_counter()
        body = {"count": EACH, "worker": "w", "report": report}
        items = live.client.post("/leases", json=body).json()["items"]
        spent.append(time.perf_counter() - start)
        seen = {"observed_at": now.isoformat(), "status": 200, "changed": False}
        report = [{"lease": item["lease"], **seen} for item in items]
        if number % (n_requests // PARTS) == 0:
            print(f"{EACH * number:6} leases, {1_000 * np.median(spent):.1f} ms a request")
            for name, statement in FIRST.items():
                first = look.execute(statement).fetchone()[0]
                print(f"  {name}: {looked(look, name, '-infinity', now)}")
                print(f"  {name} from the first live row: {looked(look, name, first, now)}")
            print(" ", dict(look.execute(READ).fetchall()))
            spent = []


def main() -> None:
    """Measure one kind of hosts, with or without a snapshot."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=1_000)
    parser.add_argument("--requests", type=int, default=1_000)
    parser.add_argument("--rude", action="store_true")
    parser.add_argument("--held", action="store_true")
    arguments = parser.parse_args()
    if arguments.rude:
        os.environ |= {"RECRAWL_HOST_DELAY_S": "0", "RECRAWL_HOST_CONCURRENCY": "0"}
    clock = Clock()
    with created(sa.make_url(SERVER)) as url:
        fill(url, Fleet.half_due(N_PAGES, arguments.hosts), clock())
        tidy(url)
        with (
            running(url, clock=clock) as live,
            psycopg.connect(url) as holder,
            psycopg.connect(url, autocommit=True) as look,
        ):
            if arguments.held:
                holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                holder.execute("SELECT count(*) FROM hosts")
            measure(live, look, arguments.requests)


if __name__ == "__main__":
    main()
