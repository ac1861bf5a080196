"""What a change weighs on disk."""

import numpy as np
from support.feed_cases import change_columns
from support.store_cases import T0

from service.model.arrays import instant

PER_COMMIT, N_COMMITS = 100, 300
MOST_BYTES = 25.0
WEIGHED = {
    "postgresql": "SELECT pg_total_relation_size('feed')",
    "sqlite": "SELECT sum(pgsize) FROM dbstat WHERE name = 'feed'",
}


def test_a_change_weighs_25_bytes_at_most_with_its_digest_and_interval(sql_store):
    """The instants have microseconds, the pages are any of a million, the digests are random."""
    rng = np.random.default_rng(1)
    if sql_store.engine.dialect.name == "postgresql":
        with sql_store.begin() as tx:
            tx.run("TRUNCATE feed")  # other tests have left room in it
    for _ in range(N_COMMITS):
        page_id = np.sort(rng.choice(1_000_000, PER_COMMIT, replace=False)) + 1
        at = instant(T0) + rng.integers(0, 60_000_000, PER_COMMIT).view("m8[us]")
        before = rng.integers(3_600, 30 * 86_400, PER_COMMIT).view("m8[s]")
        digest = rng.integers(-(2**63), 2**63 - 1, PER_COMMIT)
        changes = change_columns(page_id, at, changed_after=at - before, digest=digest)
        with sql_store.begin() as tx:
            tx.append_changes(changes)
    with sql_store.begin(write=False) as tx:
        weight = float(tx.scalar(WEIGHED[sql_store.engine.dialect.name]))
    assert weight / (PER_COMMIT * N_COMMITS) <= MOST_BYTES
