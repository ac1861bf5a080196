"""Pages with states are exported from one database into another and are the same pages there."""

import gzip
from contextlib import closing
from dataclasses import fields, replace
from datetime import datetime, timedelta

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.store_cases import (
    DAY,
    T0,
    crawl_columns,
    page_columns,
    page_of,
    ping_columns,
    register,
    same,
)

from recrawl_lab.memory.store import MemoryStore
from service.core.estimators.gamma import Gamma
from service.core.estimators.mle import MLE
from service.epochs.plan import Plan
from service.epochs.run import run_epoch
from service.estimation.rules import Rules
from service.ingest.record import ping, record
from service.leases.due import next_crawl_at
from service.model.arrays import INSTANT, NO_TIME, instant
from service.model.columns import PageStates, StoredPages
from service.model.domain import Timing
from service.model.errors import EstimatorMismatch, NotExportable, UnreadableFile
from service.model.listing import PageTags
from service.storage import open_store
from service.storage.stores.postgres import PostgresTransaction
from service.transfer.exporting import exported, writer
from service.transfer.files import holds_states, read_items
from service.transfer.importing import add_pages, add_states
from service.transfer.lines import StateLine, instants, parse, states_of

pytestmark = pytest.mark.dear

GAMMA = Gamma()
END = T0 + 40 * DAY
LATER = END + 3 * DAY
FITTED = 2e-3
"""How well a prior is fitted: one that goes on from the last epoch's stops elsewhere."""
WRITTEN = [
    f.name
    for f in fields(PageStates)
    if f.name not in ("page_id", "observability", "host_id", "crawl_rate", "crawl_probability")
]
ENDINGS = ["csv", "tsv.gz", "ndjson", "ndjson.gz", "parquet"]


def watched(store, seed, n=50):
    """A store in which everything has happened that can happen to a page."""
    rng = np.random.default_rng(seed)
    rules = Rules(Gamma(), Timing.periodic, rng)
    urls = [f"https://{'abc'[i % 3]}.example/é?{i}" for i in range(n)]
    low = np.where(rng.random(n) < 0.2, 0.01, np.nan)
    clock, store.clock = store.clock, lambda: T0 - 30 * DAY
    with store.begin() as tx:  # the other pages of these hosts are born later
        tx.register(page_columns(urls[:2]), T0 - 30 * DAY)
    store.clock = clock
    with store.begin() as tx:
        tx.set_estimator("gamma")
        pages = page_columns(
            urls,
            importance=rng.lognormal(size=n),
            observability=rng.integers(0, 3, n),
            min_crawl_rate=low,
            max_crawl_rate=low * 900,
        )
        page_id = tx.register(pages, T0).page_id
    for day in range(0, 40, 3):
        crawled = np.flatnonzero(rng.random(max(n - 5, 1)) < 0.5)
        pinged = np.flatnonzero(rng.random(n) < 0.2)
        at = T0 + timedelta(days=day, microseconds=int(rng.integers(1_000_000)))
        with store.begin() as tx:
            record(
                tx,
                crawl_columns(
                    page_id[crawled],
                    at,
                    digest=rng.integers(-(2**63), 2**63 - 1, len(crawled)),
                    status=rng.choice([200, 404, 503], len(crawled)),
                    last_modified=np.where(
                        rng.random(len(crawled)) < 0.5,
                        instant(at - timedelta(hours=7, microseconds=day)),
                        NO_TIME,
                    ),
                ),
                rules,
            )
            ping(tx, ping_columns(page_id[pinged], at + DAY), rules)
        if day == 21:
            run_epoch(store, Plan(Gamma()), lambda at=at: at)
    return store


def export(store, path, estimator=GAMMA):
    with writer(path, None, states=estimator is not None) as write:
        for block in exported(store, estimator):
            write(block)
    return path


def bring(path, store, estimator=GAMMA, now=END):
    return list(add_states(path, store, estimator, lambda: now))


def contents(store):
    """All pages and states, by URL; ids are each database's own, some numbers have seven digits."""
    with store.begin(write=False) as tx:
        pages, states = tx.read_pages(0, 10_000)
    short = {
        name: getattr(states, name).astype(np.float32)
        for name in ("interval_factor", "last_interval", "last_age", "retry_rate")
    }
    states = replace(states, **short)
    order = np.argsort(pages.url.astype(str))
    nobody = np.zeros(len(pages), np.int64)
    own = {"page_id": nobody, "host_id": nobody}
    return replace(pages.take(order), page_id=nobody), replace(states.take(order), **own)


@pytest.fixture(params=["sqlite to postgres", "postgres to sqlite"])
def here_and_there(request, sqlite_url, postgres_url):
    """A store to export from and one of the other kind to import into."""
    urls = [sqlite_url, postgres_url]
    stores = [open_store(url, 2) for url in (urls if "sqlite to" in request.param else urls[::-1])]
    yield stores
    for store in stores:
        store.close()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("ending", ENDINGS)
def test_pages_and_states_are_the_same_to_the_last_bit(here_and_there, tmp_path, ending):
    here, there = here_and_there
    watched(here, ENDINGS.index(ending))
    (step,) = bring(export(here, tmp_path / f"all.{ending}"), there)
    assert (step.n_rows, step.created, step.restored, step.skipped) == (50, 50, 50, [])
    for before, after in zip(contents(here), contents(there), strict=True):
        same(before, after)


def without_budget_factor(page, certificate):
    """Return the page at the urgency of its URL group; a store's own crawls set the factor."""
    if page.urgency is None or page.urgency == 1.0:
        return page
    urgency = page.urgency / certificate.budget_factor
    return replace(page, urgency=urgency, due_rate=page.due_rate / certificate.budget_factor)


@pytest.mark.dear
@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_next_epoch_is_the_same_and_so_are_the_due_times(here_and_there, tmp_path, seed):
    here, there = here_and_there
    bring(export(watched(here, seed), tmp_path / "all.parquet"), there)
    rows = []
    for store in here_and_there:
        plan = Plan(Gamma(), change_hours=False)  # ids, which differ, draw extra crawls
        epoch = run_epoch(store, plan, lambda: END)
        assert epoch.certificate is not None, epoch.reason
        found, of_store = contents(store)[0].url, {}
        with store.begin(write=False) as tx:
            for page_id in tx.next_page_ids(0, 100):
                page = tx.page(int(page_id))
                of_store[page.url] = without_budget_factor(page, epoch.certificate)
        rows.append([of_store[url] for url in found])
    for ours, theirs in zip(*rows, strict=True):
        assert ours.observability == theirs.observability
        for name in ("change_rate", "crawl_rate", "crawl_probability", "urgency"):
            mine = getattr(ours, name)
            assert getattr(theirs, name) == pytest.approx(mine, rel=FITTED, abs=1e-12), name
        assert (next_crawl_at(theirs) is None) == (next_crawl_at(ours) is None)
        if next_crawl_at(ours) is not None:
            digits = 2 * FITTED * (next_crawl_at(ours) - T0)
            assert abs(next_crawl_at(theirs) - next_crawl_at(ours)) < timedelta(seconds=10) + digits


def test_importing_twice_changes_nothing(sql_store, tmp_path):
    path = export(watched(sql_store, 4), tmp_path / "all.csv")
    before = contents(sql_store)
    (step,) = bring(path, sql_store)
    assert (step.created, step.restored) == (0, 0)
    for old, new in zip(before, contents(sql_store), strict=True):
        same(old, new)


def test_only_states_with_newer_evidence_are_taken_over(sql_store, tmp_path):
    path = export(watched(sql_store, 5), tmp_path / "old.ndjson")
    with sql_store.begin(write=False) as tx:
        page_id = tx.next_page_ids(0, 100)
    rules = Rules(Gamma(), Timing.periodic, np.random.default_rng(1))
    with sql_store.begin() as tx:
        record(tx, crawl_columns(page_id[:10], LATER, changed=1), rules)
        ping(tx, ping_columns(page_id[10:15], LATER), rules)
    newer = contents(sql_store)
    assert sum(step.restored for step in bring(path, sql_store)) == 0
    path = export(sql_store, tmp_path / "new.ndjson")
    other = MemoryStore(2)
    bring(tmp_path / "old.ndjson", other)
    assert sum(step.restored for step in bring(path, other, now=LATER)) == 15
    for old, new in zip(newer, contents(other), strict=True):
        same(old, new)


def test_of_two_lines_with_one_url_the_newer_evidence_counts(tmp_path):
    store = watched(MemoryStore(2), 6, n=1)
    export(store, tmp_path / "old.ndjson")
    old = (tmp_path / "old.ndjson").read_bytes()
    last = page_of(store, 1).last_crawl_at or T0
    rules = Rules(Gamma(), Timing.periodic, np.random.default_rng(1))
    with store.begin() as tx:
        record(tx, crawl_columns(np.array([1]), last + 10 * DAY, changed=1), rules)
    new = export(store, tmp_path / "new.ndjson").read_bytes()
    for content in (old + new, new + old):
        (tmp_path / "both.ndjson").write_bytes(content)
        other = MemoryStore(2)
        bring(tmp_path / "both.ndjson", other, now=END + 20 * DAY)
        same(contents(store)[1], contents(other)[1])


def test_a_file_of_pages_holds_no_states(tmp_path):
    store = watched(MemoryStore(2), 7)
    pages = export(store, tmp_path / "pages.csv", estimator=None)
    assert not holds_states(pages)
    assert holds_states(export(store, tmp_path / "states.csv"))
    other = MemoryStore(2)
    (step,) = add_pages(pages, other, lambda: T0)
    assert (step.created, step.skipped) == (50, [])
    (ours, our_states), (theirs, their_states) = contents(store), contents(other)
    dates = {"created_at": theirs.created_at, "born_at": theirs.born_at}
    assert (ours.created_at <= theirs.created_at).all()
    same(replace(ours, **dates), theirs)
    assert (our_states.observability == their_states.observability).all()
    assert not their_states.n_observations.any()


def test_states_of_another_estimator_are_refused(tmp_path):
    path = export(watched(MemoryStore(2), 8), tmp_path / "gamma.csv")
    from service.core.estimators.lognormal import LogNormal

    with pytest.raises(EstimatorMismatch, match="RECRAWL_ESTIMATOR=gamma"):
        bring(path, MemoryStore(2), estimator=LogNormal())


def test_states_that_stand_in_the_log_are_not_exported():
    with pytest.raises(NotExportable, match="mle needs the observation log"):
        next(exported(MemoryStore(1), MLE()))


def line(**changes):
    item = {
        "url": "https://a.example/",
        "created_at": "2026-05-01T00:00:00Z",
        "estimator": "gamma",
        "estimate": [0.5, 2.0],
        "interval_factor": 1.0,
        "n_observations": 3,
        "n_changes": 1,
        "pings_since": "2026-05-01T02:00:00+02:00",
    }
    return {name: value for name, value in (item | changes).items() if value is not None}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"url": "ftp://a.example/"}, "send http or https"),
        ({"interval_factor": None}, "interval_factor is missing; send "),
        ({"interval_factor": "nan"}, 'interval_factor is "nan"; send a number'),
        ({"interval_factor": -1.0}, "interval_factor is -1.0; send a number"),
        ({"estimate": [0.5]}, "1 number; gamma keeps 2"),
        ({"estimate": [0.5, "inf"]}, 'estimate[1] is "inf"; send '),
        ({"n_changes": 2**31}, "n_changes is 2147483648; send a whole number"),
        ({"importance": 0.0}, "importance is 0.0; send a positive number"),
        ({"observability": "some"}, 'observability is "some"; send one of incomplete'),
        (
            {"created_at": "2026-05-01T00:00:00"},
            'created_at is "2026-05-01T00:00:00"; send an RFC 3339',
        ),
        ({"last_crawl_at": "2027-01-01T00:00:00Z"}, "future"),
        ({"weight": 1}, '"weight" is no field of this; remove it'),
    ],
)
def test_a_bad_line_is_told_and_skipped(tmp_path, changes, says):
    import json

    good = line(url="https://a.example/good")
    path = tmp_path / "some.ndjson"
    path.write_text("".join(json.dumps(item) + "\n" for item in (good, line(**changes), good)))
    (step,) = bring(path, MemoryStore(2))
    assert (step.n_rows, step.created) == (3, 1)
    ((_, number, reason),) = step.skipped
    assert number == 2
    assert says in reason


def test_an_import_goes_on_after_a_line(tmp_path):
    store = watched(MemoryStore(2), 9)
    for ending in ENDINGS:
        path = export(store, tmp_path / f"all.{ending}")
        whole = [
            (at, item["url"])
            for b in read_items(path, block=7)
            for at, item in zip(b.lines, b.items, strict=True)
        ]
        assert len(whole) == 50
        for at in (1, 8, 30, 51):
            rest = [
                (line, item["url"])
                for b in read_items(path, at, 7)
                for line, item in zip(b.lines, b.items, strict=True)
            ]
            assert rest == [(line, url) for line, url in whole if line > at]


def test_a_file_bears_its_name_only_when_it_is_whole(tmp_path):
    path = tmp_path / "all.csv.gz"
    block = next(exported(watched(MemoryStore(2), 1), None))

    def broken():
        with writer(path, None, states=False) as write:
            write(block)
            raise KeyError

    with pytest.raises(KeyError):
        broken()
    assert not path.exists()


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    with (
        pytest.raises(UnreadableFile, match="No such file"),
        writer(tmp_path / "no" / "all.csv", None, states=False),
    ):
        pass


moments = st.integers(-(2**51), 2**51).map(lambda us: np.datetime64(us, "us"))
finite = st.floats(allow_nan=False, allow_infinity=False).filter(lambda x: abs(x) <= 1e300)
amounts = st.floats(0, 1e300)
counts = st.integers(0, 2**31 - 1)


@st.composite
def states(draw):
    n = draw(st.integers(1, 4))

    def column(of, dtype):
        return np.array(draw(st.lists(of, min_size=n, max_size=n)), dtype)

    def instant_or_never():
        return column(st.one_of(moments, st.just(NO_TIME)), INSTANT)

    return PageStates(
        page_id=np.arange(1, n + 1),
        last_crawl_at=instant_or_never(),
        last_observed_at=instant_or_never(),
        digest=column(st.integers(-(2**63), 2**63 - 1), "i8"),
        gone=column(st.booleans(), "?"),
        n_observations=column(counts, "i8"),
        n_changes=column(counts, "i8"),
        n_pings=column(counts, "i8"),
        recent_pings=column(finite, "f8"),
        last_ping_at=instant_or_never(),
        pings_since=column(moments, INSTANT),
        ping_credit=column(finite, "f8"),
        pings_since_crawl=column(counts, "i8"),
        real_pings=column(finite, "f8"),
        false_pings=column(finite, "f8"),
        trust=column(finite, "f8"),
        requested_at=instant_or_never(),
        renewed_at=instant_or_never(),
        interval_factor=column(amounts, "f8"),
        last_interval=column(st.floats(-1e7, 1e7), "f8"),
        last_age=column(st.one_of(st.floats(0, 1e7), st.just(np.nan)), "f8"),
        n_failures=column(st.integers(0, 1_000), "i8"),
        held=np.zeros(n, np.int64),
        outcome=column(st.integers(0, 7), "i2"),
        absent_since=instant_or_never(),
        hops=column(st.integers(-5, 5), "i2"),
        n_targets=column(st.integers(0, 1_000), "i2"),
        retry_rate=column(amounts, "f8"),
        cost=column(amounts, "f8"),
        redirects_to=np.zeros(n, np.int64),
        estimate=np.column_stack([column(finite, "f8"), column(finite, "f8")]),
        observability=column(st.integers(0, 2), "i2"),
        host_id=np.zeros(n, np.int64),
        crawl_rate=np.full(n, np.nan),
        crawl_probability=np.full(n, np.nan),
    )


@pytest.mark.dear
@pytest.mark.sampled(1)
@pytest.mark.parametrize("ending", ["csv", "ndjson", "parquet"])
@settings(max_examples=30)
@given(states=states())
def test_any_state_survives_a_file(tmp_path_factory, ending, states):
    from service.transfer.exporting import columns_of

    n = len(states)
    pages = StoredPages(
        page_id=states.page_id,
        url=np.array([f"https://a.example/{i}" for i in range(n)], object),
        importance=np.ones(n),
        min_crawl_rate=np.full(n, np.nan),
        max_crawl_rate=np.ones(n),
        created_at=states.pings_since,
        born_at=states.last_ping_at,
        feed=np.zeros(n, np.bool_),
    )
    path = tmp_path_factory.mktemp("states") / f"all.{ending}"
    with writer(path, None, states=True) as write:
        tags = np.full(n, None, object)
        write(columns_of(pages, states, tags, Gamma()))
    (block,) = read_items(path)
    parsed = parse(block.items, StateLine)
    assert parsed.rejected == []
    read = states_of(parsed.lines)
    for name in WRITTEN:
        np.testing.assert_array_equal(getattr(read, name), getattr(states, name), err_msg=name)
    born_at = instants([line.born_at for line in parsed.lines])
    np.testing.assert_array_equal(born_at, states.last_ping_at)
    created_at = instants([line.created_at for line in parsed.lines])
    np.testing.assert_array_equal(created_at, pages.created_at)
    assert (parsed.pages.observability == states.observability).all()
    assert np.isnan(parsed.pages.min_crawl_rate).all()


def test_instants_are_read_with_their_zone():
    read = instants([datetime.fromisoformat("2026-05-01T02:00:00.000001+02:00"), None])
    assert read[0] == np.datetime64("2026-05-01T00:00:00.000001")
    assert np.isnat(read[1])


def test_gzip_is_written_as_gzip(tmp_path):
    path = export(watched(MemoryStore(2), 1), tmp_path / "all.ndjson.gz")
    assert gzip.decompress(path.read_bytes()).count(b"\n") == 50


@pytest.mark.sampled(4)
@pytest.mark.parametrize("ending", ["csv", "ndjson", "parquet", "csv.gz"])
@pytest.mark.parametrize("with_states", [False, True])
def test_tags_move_with_their_pages(here_and_there, tmp_path, ending, with_states):
    here, there = here_and_there
    page_id = np.sort(register(here, 3))
    with here.begin() as tx:
        pages = np.array([page_id[0], page_id[0], page_id[2]])
        tx.add_tags(PageTags(page_id=pages, tag=np.array(["a", "b", "a"], object)))
    path = tmp_path / f"pages.{ending}"
    estimator = Gamma() if with_states else None
    with writer(path, None, states=with_states) as write:
        for block in exported(here, estimator):
            write(block)
    steps = add_states(path, there, Gamma(), lambda: T0) if with_states else None
    for step in steps or add_pages(path, there, lambda: T0):
        assert step.skipped == []
        assert step.created == 3
    with there.begin(write=False) as tx:
        own = tx.tags_of(tx.next_page_ids(0, 10))
        urls = {page: tx.page(page).url for page in own.page_id.tolist()}
    with here.begin(write=False) as tx:
        expected = {(tx.page(p).url, t) for p, t in zip(pages.tolist(), "aba", strict=True)}
    assert {(urls[p], t) for p, t in zip(own.page_id.tolist(), own.tag, strict=True)} == expected


@pytest.mark.parametrize("name", ["pages.ndjson", "pages.csv", "pages.parquet"])
def test_validators_and_notes_move_with_their_pages(sqlite_url, postgres_url, tmp_path, name):
    first, second = open_store(sqlite_url, 2), open_store(postgres_url, 2)
    page_id = register(first, 2)
    crawls = crawl_columns(page_id[:1], T0, digest=1, etag='W/"a,1"', note='{"k": 1}')
    with first.begin() as tx:
        record(tx, crawls, Rules(GAMMA, Timing.periodic, np.random.default_rng(1)))
    bring(export(first, tmp_path / name), second)
    with second.begin(write=False) as tx:
        stored = tx.validators(np.arange(1, 3))
    assert (stored.etag.tolist(), stored.note.tolist()) == (['W/"a,1"'], ['{"k": 1}'])
    first.close()
    second.close()


def test_each_page_is_as_of_one_instant(postgres_url, tmp_path, monkeypatch):
    rules = Rules(GAMMA, Timing.periodic, np.random.default_rng(1))
    with closing(open_store(postgres_url, 2)) as store:
        page_id = register(store, 1)

        def crawl(n: int) -> None:
            crawls = crawl_columns(page_id, T0 + n * DAY, digest=n, etag=f'"{n}"')
            with store.begin() as tx:
                record(tx, crawls, rules)

        read, meanwhile = PostgresTransaction.validators, iter([2])

        def read_late(tx, page_id):
            for n in meanwhile:  # once, because a crawl reads validators too
                crawl(n)
            return read(tx, page_id)

        crawl(1)
        monkeypatch.setattr(PostgresTransaction, "validators", read_late)
        (block,) = exported(store, GAMMA)
    assert block["last_observed_at"].tolist() == [(T0 + DAY).replace(tzinfo=None)]
    assert block["etag"].tolist() == ['"1"']


def test_a_damaged_parquet_file_is_refused(tmp_path):
    path = export(watched(MemoryStore(2), 1), tmp_path / "all.parquet")
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 40] = bytes(40)
    path.write_bytes(content)
    with pytest.raises(UnreadableFile, match="not Parquet, or no values of its"):
        bring(path, MemoryStore(2))


def test_a_link_to_a_file_stays_and_the_file_is_replaced(tmp_path):
    (tmp_path / "old.ndjson").write_text("")
    (tmp_path / "link.ndjson").symlink_to("old.ndjson")
    export(watched(MemoryStore(2), 1), tmp_path / "link.ndjson")
    assert (tmp_path / "link.ndjson").is_symlink()
    assert (tmp_path / "old.ndjson").stat().st_size > 0


@pytest.mark.parametrize("ending", ["csv", "ndjson.gz", "parquet"])
@pytest.mark.parametrize("states", [False, True], ids=["pages", "states"])
def test_kinds_move_with_their_pages(here_and_there, tmp_path, ending, states):
    here, there = here_and_there
    with watched(here, 3).begin() as tx:
        tx.set_kinds(tx.next_page_ids(0, 1), feed=True)
    path = export(here, tmp_path / f"all.{ending}", GAMMA if states else None)
    steps = add_states(path, there, GAMMA, lambda: LATER)
    list(steps if states else add_pages(path, there, lambda: LATER))
    assert feeds(there) == feeds(here)
    assert len(feeds(here)) == 1


def feeds(store):
    with store.begin(write=False) as tx:
        pages, _ = tx.read_pages(0, 100)
    return set(pages.url[pages.feed])
