"""The rows of all databases, compared with those of before the moves and with the clients."""

import json
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import psycopg

from benchmarks.moves.corpus import LOGICAL
from benchmarks.moves.load import Client
from recrawl_cluster.moves.move_rows import PAGE_TABLES, TAGS, checksums
from recrawl_cluster.store.shard_map import SHIFT, parse_shards

ALL_LOG = """
CREATE TEMP VIEW all_log AS
    SELECT page_id, observed_at, interval FROM observations WHERE kind = 0 AND {owned}
    UNION ALL SELECT page_id, observed_at, interval FROM sealed_observations
    WHERE kind = 0 AND {owned}
"""
ACKNOWLEDGED = "CREATE TEMP TABLE acknowledged (page_id bigint, at bigint)"
INSTANT = "TIMESTAMPTZ '1970-01-01 00:00Z' + at * INTERVAL '1 microsecond'"
LOGGED = f"""
SELECT n, count(*) FROM (
    SELECT page_id, at, (SELECT count(*) FROM all_log
        WHERE all_log.page_id = acknowledged.page_id AND observed_at = {INSTANT}) AS n
    FROM acknowledged
) AS counted GROUP BY n
"""
"""Statement that reads how many acknowledged crawls are so many times in the log."""
DOUBLED = """
SELECT count(*) FROM (
    SELECT FROM all_log GROUP BY page_id, observed_at HAVING count(*) > 1
) AS doubled
"""
UNEQUAL = """
SELECT count(*) FROM (SELECT * FROM page_states WHERE {owned}) AS states FULL JOIN (
    SELECT page_id, count(interval) AS n FROM all_log GROUP BY page_id
) AS logged USING (page_id)
WHERE n_observations IS DISTINCT FROM coalesce(n, 0)
"""
"""Statement that counts the states that do not have the intervals of their log."""


class Contents(NamedTuple):
    """Rows that a move must not change, and the number of crawls in the log."""

    n_pages: int
    pages: int
    """Checksum."""
    n_tags: int
    tags: int
    """Checksum of the tags by name."""
    n_log: int


class Check(NamedTuple):
    """A comparison: its name, the rows compared, and the violations."""

    name: str
    checked: int
    violations: int


def contents(urls: Sequence[str]) -> Contents:
    """Return the sums over all databases, each with the shards that it has."""
    total = [0] * len(Contents._fields)
    for url in urls:
        with psycopg.connect(url) as driver:
            owned = owned_by(driver)
            pages = f"SELECT {', '.join(PAGE_TABLES[0].columns)} FROM pages WHERE {owned}"
            tags = TAGS.format(within=owned)
            (n, sum_pages), (n_tags, sum_tags) = checksums(driver, [pages, tags])
            driver.execute(ALL_LOG.format(owned=owned))
            each = [n, sum_pages, n_tags, sum_tags, one(driver, "SELECT count(*) FROM all_log")]
            total = [a + b for a, b in zip(total, each, strict=True)]
    return Contents(*total)


def owned_by(driver: psycopg.Connection[tuple[object, ...]]) -> str:
    """Return the condition of the pages of a database's shards."""
    row = driver.execute("SELECT value FROM meta WHERE name = 'shards'").fetchone()
    numbers = parse_shards(json.loads(str(row and row[0]))["shards"], LOGICAL)
    return f"page_id >> {SHIFT} = ANY('{{{', '.join(map(str, sorted(numbers)))}}}'::bigint[])"


def check(urls: Sequence[str], before: Contents, clients: Sequence[Client]) -> Iterator[Check]:
    """Compare the databases with those of before, and with the clients."""
    after = contents(urls)
    same = zip(Contents._fields[:4], before[:4], after[:4], strict=True)
    changed = [name for name, ours, theirs in same if ours != theirs]
    yield Check("pages and tags", before.n_pages, len(changed))
    crawls = [crawl for client in clients for crawl in client.acknowledged]
    n_late = sum(client.n_late for client in clients)
    times, doubled, unequal = dict[int, int](), 0, 0
    for url in urls:
        with psycopg.connect(url) as driver:
            owned = owned_by(driver)
            driver.execute(ALL_LOG.format(owned=owned))
            driver.execute(ACKNOWLEDGED)
            with driver.cursor().copy("COPY acknowledged FROM STDIN") as copy:
                for crawl in crawls:
                    copy.write_row(crawl)
            for n, n_crawls in driver.execute(LOGGED):
                times[n] = times.get(n, 0) + n_crawls
            doubled += one(driver, DOUBLED)
            unequal += one(driver, UNEQUAL.format(owned=owned))
    yield Check("acknowledged crawls in the log", len(crawls), abs(times.get(1, 0) - len(crawls)))
    yield Check("crawls that are twice in the log", after.n_log, doubled)
    extra = after.n_log - before.n_log - len(crawls)
    yield Check("crawls that no client sent", after.n_log, max(extra - n_late, -extra, 0))
    yield Check("states that differ from their log", after.n_pages, unequal)
    faults = [fault for client in clients for fault in client.faults]
    yield Check("refusals of a client, and second leases", len(crawls), len(faults))


def one(driver: psycopg.Connection[tuple[object, ...]], query: str) -> int:
    """Return the number that a query reads."""
    row = driver.execute(query).fetchone()
    return int(str(row[0])) if row else 0
