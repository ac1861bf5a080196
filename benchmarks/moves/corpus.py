"""The pages of the benchmark: most in the logical shard that moves, some in two others.

The service registers and crawls one page in `COPIES`. The others are copies of its rows in SQL
under their own page_id, url and key.
"""

from datetime import UTC, datetime, timedelta
from itertools import count, islice
from pathlib import Path

import numpy as np
import psycopg

from recrawl_cluster.moves.move_rows import LOG, PAGE_TABLES, Range, Table, shard_range
from recrawl_cluster.sharded import ShardedStore
from recrawl_cluster.store.claims import add
from recrawl_cluster.store.shard_map import SHIFT, hashed, parse_shards, read_map
from service.estimation.estimates import Rules, width
from service.ingest.record import record
from service.model.arrays import NO_TIME, UNSPECIFIED, Bools, Ints, instant
from service.model.columns import CrawlColumns, PageColumns
from service.model.domain import Timing
from service.model.listing import PageTags
from service.model.urls import normalise
from service.runtime.settings import Settings

LOGICAL = 64
SPANS = {"one": "0-31", "two": "32-63"}
MOVED, NEAR, FAR = 7, 8, 40
"""Shard that moves, one that stays in its database, and one of the other database."""
SHARES = {MOVED: 1.0, NEAR: 0.1, FAR: 0.1}
"""Pages of each shard over those of the shard that moves."""
COPIES, A_HOST = 50, 10
"""Pages with the rows of one page, and pages of a host that the service registers."""
BLOCK = 20_000
EVERY_TAG, EVERY_ETAG = 10, 2
"""One page in so many has a tag, and one in so many a validator."""
ESTIMATOR = Settings().plan().estimator
CHANGED = 0.3
"""Share of crawls that find a change."""
AGES = (timedelta(days=9), timedelta(days=5), timedelta(days=2))
"""Ages of the crawls of each page."""


def hosts_of(shard: int, n: int) -> list[str]:
    """Return n hosts whose hash is of a shard."""
    names = (f"m{i}.example" for i in count())
    return list(islice((name for name in names if hashed(name) % LOGICAL == shard), n))


def fill(file: Path, urls: list[str], n_pages: int) -> None:
    """Join the databases of the file and fill them."""
    shard_map = read_map(file)
    store = ShardedStore(shard_map, width(ESTIMATOR))
    try:
        add(store.databases, shard_map)
        ids = {
            shard: _shard(store, shard, max(round(n_pages * share) // COPIES, A_HOST))
            for shard, share in SHARES.items()
        }
    finally:
        store.close()
    for url, span in zip(urls, SPANS.values(), strict=True):
        with psycopg.connect(url, autocommit=True) as driver:
            for shard in parse_shards(span, LOGICAL) & SHARES.keys():
                _multiply(driver, shard_range(shard), len(ids[shard]))
            driver.execute("VACUUM ANALYZE")


def page_ids(urls: list[str]) -> dict[int, Ints]:
    """Return the ids of the pages of each shard, in whichever database."""
    ids = []
    for url in urls:
        with psycopg.connect(url) as driver:
            ids += [page for (page,) in driver.execute("SELECT page_id FROM pages")]
    every = np.unique(np.array(ids, np.int64))
    return {shard: every[every >> SHIFT == shard] for shard in SHARES}


def _multiply(driver: psycopg.Connection[tuple[object, ...]], some: Range, n: int) -> None:
    """Copy the rows of the n pages of a shard."""
    own = {
        "page_id": f"page_id + copy * {n}",
        '"page_id"': f"page_id + copy * {n}",
        '"key"': "CAST(md5(page_id || ' ' || copy) AS uuid)",
        '"url"': "url || '?' || copy",
    }
    tags = Table("page_tags", ("page_id", "tag_id"), LOG.within)
    for table in (*PAGE_TABLES, LOG, tags):
        values = ", ".join(own.get(column, column) for column in table.columns)
        driver.execute(
            f"INSERT INTO {table.name} ({', '.join(table.columns)}) SELECT {values} FROM "
            f"{table.name}, generate_series(1, {COPIES - 1}) AS copies (copy) "
            f"WHERE {some.within(table)} ORDER BY copy, page_id"
        )
    driver.execute(f"SELECT setval('page_ids_{some.first >> SHIFT}', {n * COPIES})")


def _shard(store: ShardedStore, shard: int, n_pages: int) -> Ints:
    """Register and crawl the pages of a shard, and return their ids."""
    names = hosts_of(shard, -(-n_pages // A_HOST))
    now = datetime.now(UTC)
    ids = [
        _block(store, [f"https://{names[i // A_HOST]}/{i}" for i in range(start, end)], now)
        for start in range(0, n_pages, BLOCK)
        for end in (min(start + BLOCK, n_pages),)
    ]
    return np.concatenate(ids)


def _block(store: ShardedStore, urls: list[str], now: datetime) -> Ints:
    with store.begin() as tx:
        ids = tx.register(_pages(urls), now - timedelta(days=10)).page_id
        tagged = ids[::EVERY_TAG]
        tx.add_tags(PageTags(page_id=tagged, tag=np.full(len(tagged), "news", object)))
    draw = np.random.default_rng(int(ids[0]))
    rules = Rules(ESTIMATOR, Timing.periodic, draw)
    for age in AGES:
        with store.begin() as tx:
            record(tx, _crawls(np.sort(ids), now - age, draw.random(len(ids)) < CHANGED), rules)
    return ids


def _pages(urls: list[str]) -> PageColumns:
    names, n = [normalise(url) for url in urls], len(urls)
    unspecified = np.full(n, np.nan)
    return PageColumns(
        key=np.array([np.void(name.key) for name in names], "V16"),
        url=np.array([name.url for name in names], object),
        host=np.array([name.host for name in names], object),
        importance=unspecified,
        observability=np.full(n, UNSPECIFIED, np.int16),
        min_crawl_rate=unspecified,
        max_crawl_rate=unspecified,
    )


def _crawls(ids: Ints, at: datetime, changed: Bools) -> CrawlColumns:
    n = len(ids)
    none = np.zeros(n, np.int64)
    etags = np.where(np.arange(n) % EVERY_ETAG == 0, f'"{at:%j}"', "").astype(object)
    return CrawlColumns(
        page_id=ids,
        observed_at=np.full(n, instant(at)),
        changed=changed.astype(np.int16),
        digest=none,
        status=np.full(n, 200, np.int16),
        leased_page_id=none,
        token=none,
        retry_after_s=np.full(n, np.nan),
        redirects_to=none,
        last_modified=np.full(n, NO_TIME),
        etag=etags,
        note=np.full(n, "", object),
    )
