"""Loading every page for an epoch on Postgres: one snapshot, whatever the order of the files."""

import numpy as np
import pytest
from support.store_cases import instants, register, same, states_of

from service.model.columns import EpochColumns
from service.model.host_sets import host_sets
from service.storage.epochs import postgres_loading as loading


def naive(tx) -> dict[str, np.ndarray]:
    """Return what a plain join reads, row by row."""
    query = """
        SELECT page_id, CASE WHEN has_share THEN importance ELSE 0 END AS importance, observability,
            pages.host_id, n_observations, CASE WHEN has_share THEN min_crawl_rate END AS low,
            max_crawl_rate AS high, coalesce(n_pings, 0) AS n_pings, last_age::float8 AS last_age,
            CASE WHEN n_failures > 0 THEN last_crawl_at END AS last_failure_at
        FROM pages JOIN (
            SELECT *, NOT gone AND coalesce(n_failures, 0) < 3 AS has_share FROM page_states
        ) AS page_states USING (page_id) ORDER BY page_id
    """
    rows = tx.read(query)
    none = {"low": np.nan, "high": np.nan, "last_age": np.nan}
    columns = {
        name: np.array([none.get(name) if row[name] is None else row[name] for row in rows])
        for name in rows[0]
    }
    return columns | {"last_failure_at": instants(columns["last_failure_at"].tolist())}


def check(pages: EpochColumns, expected: dict[str, np.ndarray]) -> None:
    names = {"low": "min_crawl_rate", "high": "max_crawl_rate"}
    for name, values in expected.items():
        np.testing.assert_array_equal(getattr(pages, names.get(name, name)), values, err_msg=name)


@pytest.mark.dear
@pytest.mark.parametrize("n_blocks", [1, 2_048])
def test_the_columns_are_those_of_a_join(postgres_store, monkeypatch, n_blocks):
    """Rows are deleted, moved within the file, gone, bounded, pinged and dated."""
    monkeypatch.setattr(loading, "RANGE", n_blocks)
    rng = np.random.default_rng(1)
    ids = register(postgres_store, 600, importance=rng.random(600))
    for column, value in (
        ("last_crawl_at = now() - random() * interval '1 day'", "page_states"),
        ("gone = true", "page_states"),
        ("n_failures = 2", "page_states"),
        ("n_failures = 3", "page_states"),
        ("n_pings = 3", "page_states"),
        ("last_age = 2.5", "page_states"),
        ("n_observations = 7", "page_states"),
        ("observability = 1", "page_states"),
        ("min_crawl_rate = 0.25", "pages"),
        ("max_crawl_rate = 2", "pages"),
    ):
        some = rng.choice(ids, 120, replace=False)
        with postgres_store.begin() as tx:
            tx.run(f"UPDATE {value} SET {column} WHERE page_id = ANY(%(ids)s)", ids=some)
    with postgres_store.begin() as tx:
        tx.delete_many(np.sort(ids[::7]))
    with postgres_store.read_whole() as tx:
        pages, expected = tx.load_columns(), naive(tx)
    check(pages, expected)
    np.testing.assert_array_equal(pages.estimate, states_of(postgres_store, pages.page_id).estimate)


def test_all_columns_are_as_of_one_instant(postgres_store, monkeypatch):
    """Another process registers, changes and deletes pages between the two tables."""
    ids = np.sort(register(postgres_store, 30))
    plain = loading.read_packed

    def read(driver, statement, table, width):
        if table is loading.STATES:
            register(postgres_store, 5, host="late.example")
            with postgres_store.begin() as tx:
                tx.run("UPDATE page_states SET n_observations = 99")
                tx.delete_page(int(ids[3]))
        return plain(driver, statement, table, width)

    monkeypatch.setattr(loading, "read_packed", read)
    for opened in (postgres_store.read_whole, lambda: postgres_store.begin(write=False)):
        with postgres_store.begin() as tx:
            tx.run("UPDATE page_states SET n_observations = 1")
            before = tx.next_page_ids(0, 1_000)
        ids = before
        with opened() as tx:
            pages = tx.load_columns()
        np.testing.assert_array_equal(pages.page_id, before)
        assert (pages.n_observations == 1).all()


def test_an_epoch_without_pages_loads_nothing(postgres_store):
    with postgres_store.read_whole() as tx:
        pages = tx.load_columns()
    assert len(pages) == 0
    assert pages.estimate.shape == (0, postgres_store.width)


def with_hosts(store, n_hosts, n_pages=40):
    """Register hosts with as many pages each; return their ids."""
    for n in range(n_hosts):
        register(store, n_pages, host=f"h{n}.example", importance=1.0 + n)
    with store.begin(write=False) as tx:
        return np.unique(tx.load_columns().host_id)


def test_sets_of_hosts_together_have_the_columns_of_all(postgres_store):
    host_id = with_hosts(postgres_store, 9)
    groups = [host_id[[0, 4, 8]]]
    with postgres_store.read_whole() as tx:
        whole = tx.load_columns()
        sets = host_sets(tx.host_sizes(4_096), groups, 3)
        parts = [tx.load_hosts(each) for each in sets]
    for each, (pages, digest) in zip(sets, parts, strict=True):
        assert each.has(pages.host_id).all()
        assert (np.diff(pages.page_id) > 0).all()
        assert len(digest) == len(pages) > 0
    pages = EpochColumns.concatenate([pages for pages, _ in parts])
    same(pages.take(np.argsort(pages.page_id)), whole)


def test_hosts_are_counted_in_whole_or_by_a_sample(postgres_store):
    host_id = with_hosts(postgres_store, 8, 400)
    with postgres_store.begin(write=False) as tx:
        sizes = tx.host_sizes(4_096)
        assert sizes.host_id.tolist() == host_id.tolist()
        assert sizes.n_pages.tolist() == [400] * 8
        sample = tx.host_sizes(30)
        again = tx.host_sizes(30)
        assert again.n_pages.tolist() == sample.n_pages.tolist()
        assert sample.n_pages.sum() == pytest.approx(3_200, rel=0.5)


def test_a_database_without_pages_has_no_sizes(postgres_store):
    with postgres_store.begin(write=False) as tx:
        assert len(tx.host_sizes(4_096).host_id) == 0
