"""What only a store over several databases does: split, merge, prepare, announce, refuse."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from datetime import timedelta

import numpy as np
import psycopg
import pytest
from support.epoch_cases import Clock
from support.feed_cases import change_columns, feed_of
from support.shard_cases import GROUPED, host_in, joined_store, map_file, shard_map_of
from support.store_cases import (
    CERTIFICATE,
    T0,
    crawl_columns,
    page_columns,
    publish,
    read_schedule,
    register,
    schedule_columns,
)

from recrawl_cluster.sharded import ShardedStore
from recrawl_cluster.store.claims import Claim, add, adopt, put_claim
from recrawl_cluster.store.database import ShardDatabase
from recrawl_cluster.store.epochs import write_share
from recrawl_cluster.store.shard_map import SHIFT, read_map
from service.core.estimators import make_estimator
from service.epochs.plan import Plan
from service.epochs.run import run_epoch
from service.estimation.estimates import width
from service.estimation.rules import Rules
from service.ingest.record import record
from service.leases.host_settings import change_group, change_host
from service.leases.politeness import Politeness
from service.model.changes import FeedPlace
from service.model.domain import Timing
from service.model.errors import (
    GroupDivided,
    LeadershipLost,
    ShardMoved,
    ShardsDisagree,
    ShardUnavailable,
)
from service.storage import open_store
from service.storage.feed.postgres import LOCK

pytestmark = pytest.mark.slow

HOSTS = [host_in(position, n) for position in range(3) for n in range(8)]
URLS = [f"https://{host}/{n}" for host in HOSTS for n in range(12)]


def learn(store, rules):
    """Register the same pages in any store, and record the same crawls."""
    rng = np.random.default_rng(3)
    importance, rate = rng.uniform(0.1, 5, len(URLS)), rng.lognormal(-1, 1.5, len(URLS))
    with store.begin() as tx:
        ids = tx.register(page_columns(URLS, importance=importance), T0).page_id
    for day in range(1, 9):
        changed = rng.random(len(URLS)) < -np.expm1(-rate)
        with store.begin() as tx:
            at = np.datetime64(T0.replace(tzinfo=None), "us") + np.timedelta64(day, "D")
            columns = crawl_columns(ids, at)
            record(tx, replace(columns, changed=changed.astype(np.int16)), rules)
    return ids


def test_an_epoch_over_three_databases_is_that_of_one(shard_urls, postgres_url):
    plan = Plan(
        estimator=make_estimator("gamma"),
        objective="harmonic",
        timing=Timing.periodic,
        bandwidth=90,
    )
    states, epochs = [], []
    n = width(plan.estimator)
    for store in (open_store(postgres_url, n), joined_store(shard_urls, n)):
        with closing(store):
            learn(store, Rules(plan.estimator, plan.timing, np.random.default_rng(1)))
            clock = Clock(T0 + timedelta(days=10))
            epoch = run_epoch(store, plan, clock)
            rows = {row.url: row for row in read_schedule(store, epoch.epoch)}
            states.append(rows)
            epochs.append(epoch)
    single, sharded = states
    assert set(single) == set(sharded) == set(URLS)
    for url in URLS:
        assert sharded[url].crawl_rate == pytest.approx(single[url].crawl_rate, rel=1e-6)
    one, other = (epoch.certificate for epoch in epochs)
    assert other.multiplier == pytest.approx(one.multiplier, rel=1e-11)
    assert other.prior == pytest.approx(one.prior, rel=1e-11)
    assert (one.n_pages, one.passes) == (other.n_pages, other.passes)


def test_ids_begin_with_the_shard_of_their_host(sharded_store):
    with sharded_store.begin() as tx:
        ids = tx.register(page_columns(URLS), T0).page_id
        hosts = tx.host_ids(HOSTS)
    shards = sharded_store.shard_map.shards_of(np.array(HOSTS, object))
    assert (hosts >> SHIFT).tolist() == shards.tolist()
    assert (ids >> SHIFT).tolist() == np.repeat(shards, 12).tolist()
    assert (ids < 2**53).all()


def test_ids_of_a_shard_are_dense_so_that_schedules_fill_their_blocks(sharded_store):
    hosts = [host_in(0), host_in(0, 1)]
    ids = [register(sharded_store, 50, host=host) for _ in range(4) for host in hosts]
    for of_host in (ids[::2], ids[1::2]):
        numbers = np.unique(np.concatenate(of_host) % (1 << SHIFT))
        assert numbers.tolist() == list(range(1, 51))


def test_a_list_of_many_hosts_has_each_page_once(sharded_store):
    ids = np.concatenate([register(sharded_store, 5, host=host) for host in HOSTS])
    with sharded_store.begin(write=False) as tx:
        for limit in (1, 7, 1_000):
            read, after = [], 0
            while len(page := tx.next_page_ids(after, limit)):
                read += page.tolist()
                after = read[-1]
            assert read == sorted(ids.tolist())
        columns = tx.load_columns()
        assert columns.page_id.tolist() == sorted(ids.tolist())
    epoch = publish(sharded_store, schedule_columns(np.sort(ids), crawl_rate=1.0))
    assert [row.page_id for row in read_schedule(sharded_store, epoch)] == sorted(ids.tolist())


@pytest.mark.parametrize("order", ["host", "-host", "host_id", "-host_id"])
@pytest.mark.parametrize("limit", [1, 5, 24, 100])
def test_hosts_of_all_databases_are_merged_in_order(sharded_store, order, limit):
    with sharded_store.begin() as tx:
        tx.host_ids(HOSTS)
    names, after = [], None
    with sharded_store.begin(write=False) as tx:
        while True:
            hosts, after = tx.hosts_in_order(order, after, limit)
            names += [getattr(host, order.removeprefix("-")) for host in hosts]
            if after is None:
                break
    assert len(names) == len(HOSTS)
    assert names == sorted(names, reverse=order.startswith("-"))


def test_a_group_over_two_shards_is_refused_with_the_remedy(sharded_store):
    with (
        pytest.raises(GroupDivided, match=r"is in logical shard .*\[exceptions\]"),
        sharded_store.begin() as tx,
    ):
        change_group(tx, "cdn", {}, [host_in(0), host_in(2)], T0, Politeness())
    with sharded_store.begin() as tx:
        change_group(tx, "cdn", {}, sorted(GROUPED), T0, Politeness())
        assert tx.group("cdn").n_members == len(GROUPED)


def test_two_requests_at_once_do_not_create_one_group_in_two_databases(sharded_store):
    together = threading.Barrier(2)

    def join(host: str, group: str) -> int:
        try:
            with sharded_store.begin() as tx:
                tx.host_ids([host])
                together.wait(10)
                change_host(tx, host, {"group": group}, T0, Politeness())
        except GroupDivided:
            return 409
        return 200

    with ThreadPoolExecutor(2) as pool:
        for n in range(5):
            done = pool.map(join, (host_in(0), host_in(2)), [f"group{n}"] * 2)
            assert sorted(done) == [200, 409]
    with sharded_store.begin(write=False) as tx:
        groups = tx.groups(0, 100)
    assert sorted(group.group for group in groups) == [f"group{n}" for n in range(5)]


# -- the feed


def seqs(store):
    return [(int(seq), int(at)) for seq, at in zip(*_places(feed_of(store, 3)), strict=True)]


def _places(feed):
    return feed.seq, feed.offset


def append(store, position, n, at):
    """Append changes in one database, and return their pages."""
    ids = np.sort(register(store, n, host=host_in(position)))
    with store.databases[position].begin() as tx:
        tx.append_changes(change_columns(ids, at))
    return ids


def test_blocks_of_one_number_in_two_databases_are_one_block(sharded_store, shard_urls):
    pages = [append(sharded_store, position, 4, T0) for position in range(3)]
    for url in shard_urls:
        with psycopg.connect(url, autocommit=True) as driver:
            driver.execute("UPDATE feed SET seq = 1000000")
    for limit in (1, 3, 100):
        feed = feed_of(sharded_store, limit)
        assert feed.page_id.tolist() == np.concatenate(pages).tolist()
        assert feed.seq.tolist() == [1_000_000] * 12
        assert feed.offset.tolist() == list(range(12))


def test_a_commit_in_flight_is_never_overtaken(sharded_store, shard_urls):
    first = append(sharded_store, 0, 2, T0)
    with psycopg.connect(shard_urls[2]) as slow:
        slow.execute(f"SELECT pg_advisory_xact_lock({LOCK})")
        (number,) = slow.execute(
            "SELECT setval('feed_seq', CAST(extract(epoch FROM clock_timestamp()) * 1e6 AS bigint))"
        ).fetchone()
        later = append(sharded_store, 0, 2, T0)
        with sharded_store.begin(write=False) as tx:
            part = tx.changes(FeedPlace(0), 100)
            assert tx.newest_change() < number
        assert part.after.seq <= number, "the reader waits for the commit in flight"
        with sharded_store.databases[0].begin(write=False) as tx:
            items = tx.scalar("SELECT items FROM feed LIMIT 1")
        slow.execute("INSERT INTO feed (seq, items) VALUES (%s, %s)", (number, items))
    with sharded_store.begin(write=False) as tx:
        rest = tx.changes(part.after, 100)
    read = [*part.changes.page_id.tolist(), *rest.changes.page_id.tolist()]
    assert sorted(read) == sorted([*first.tolist(), *first.tolist(), *later.tolist()])


# -- epochs


def test_a_leader_that_was_overtaken_attaches_no_schedule(sharded_store):
    ids = np.sort(register(sharded_store, 3, host=host_in(0)))
    schedule = schedule_columns(ids, crawl_rate=1.0)
    with sharded_store.begin() as tx:
        old = tx.start_epoch(T0).epoch
    with sharded_store.begin() as tx:
        new = tx.start_epoch(T0).epoch
    database = sharded_store.databases[0]
    with pytest.raises(LeadershipLost), database.begin() as tx:
        write_share(tx, old, schedule)
    with database.begin() as tx:
        write_share(tx, new, schedule)


def test_a_schedule_that_is_prepared_in_all_databases_is_in_force_in_none(sharded_store):
    ids = np.sort(np.concatenate([register(sharded_store, 2, host=host_in(p)) for p in range(3)]))
    with sharded_store.lead() as lead:
        with lead.begin() as tx:
            epoch = tx.start_epoch(T0).epoch
        lead.write_schedule(epoch, schedule_columns(ids, crawl_rate=2.0))
        for store in (sharded_store, *sharded_store.databases):
            with store.begin(write=False) as tx:
                assert tx.number_in_force() == 0
        with lead.begin() as tx:
            tx.publish(epoch, CERTIFICATE, T0)
    for store in (sharded_store, *sharded_store.databases):
        with store.begin(write=False) as tx:
            assert tx.number_in_force() == epoch
            assert tx.epoch_in_force().certificate == CERTIFICATE


# -- claims


@pytest.fixture
def joined(shard_urls, tmp_path):
    file = map_file(tmp_path / "cluster.toml", shard_urls)
    store = ShardedStore(read_map(file), 2)
    add(store.databases, store.shard_map)
    yield store
    store.close()


def test_databases_join_once(joined):
    joined.check()
    assert add(joined.databases, joined.shard_map) == []
    joined.check()


def test_a_database_without_a_claim_is_refused(shard_urls):
    new = ShardedStore(shard_map_of(shard_urls), 2)
    with (
        closing(new),
        pytest.raises(ShardsDisagree, match="db0 has no shards yet; run `recrawl shards add`"),
    ):
        new.check()


def test_the_databases_decide_which_shards_they_have_and_not_the_file(joined, shard_urls, tmp_path):
    (page_id,) = register(joined, 1, host=host_in(0))
    file = map_file(tmp_path / "other.toml", [shard_urls[2], shard_urls[1], shard_urls[0]])
    with closing(ShardedStore(read_map(file), 2)) as other:
        add(other.databases, other.shard_map)
        other.check()
        assert register(other, 1, host=host_in(0)).tolist() == [page_id]
        with other.databases[2].begin(write=False) as tx:
            assert tx.page(int(page_id)).url.startswith(f"https://{host_in(0)}/")


def test_two_databases_that_claim_one_shard_are_refused(joined, shard_urls):
    with joined.databases[0].begin() as tx:
        put_claim(tx, Claim(64, "0-21"))
    with (
        closing(ShardedStore(shard_map_of(shard_urls), 2)) as other,
        pytest.raises(ShardsDisagree, match="db0 and db1 both have shard 21"),
    ):
        other.check()


def test_a_new_database_takes_no_shard_that_another_one_has(joined, shard_urls, tmp_path):
    with joined.databases[2].unchecked(write=True) as tx:
        tx.run("DELETE FROM meta WHERE name = 'shards'")
    with joined.databases[1].unchecked(write=True) as tx:
        put_claim(tx, Claim(64, "21-50"))
    with pytest.raises(ShardsDisagree, match=r'shard 43 is in db1 already.*shards = ""'):
        add(joined.databases, joined.start)


@pytest.mark.parametrize(
    ("head", "tail", "sentence"),
    [
        ("version = 2", "", "has version 2, the coordinator has version 1; run `recrawl shards"),
        ("", '[exceptions]\n"a.test" = 1', "are not those of version 1; raise `version`"),
    ],
)
def test_exceptions_change_with_their_version(joined, shard_urls, tmp_path, head, tail, sentence):
    other = ShardedStore(read_map(map_file(tmp_path / "o.toml", shard_urls, head, tail)), 2)
    with closing(other), pytest.raises(ShardsDisagree, match=sentence):
        other.check()


def test_an_exception_must_precede_the_first_page_of_its_host(joined, shard_urls, tmp_path):
    register(joined, 1, host=host_in(0))
    head, tail = "version = 2", f'[exceptions]\n"{host_in(0)}" = 60\n"{host_in(1)}" = 60'
    other = ShardedStore(read_map(map_file(tmp_path / "o.toml", shard_urls, head, tail)), 2)
    with closing(other), pytest.raises(ShardsDisagree, match=rf"{host_in(0)} is in shard"):
        add(other.databases, other.shard_map)
    good = map_file(tmp_path / "g.toml", shard_urls, head, f'[exceptions]\n"{host_in(1)}" = 60')
    with closing(ShardedStore(read_map(good), 2)) as later:
        assert add(later.databases, later.shard_map) == []
        later.check()
        (page_id,) = register(later, 1, host=host_in(1))
        assert page_id >> SHIFT == 60
    with pytest.raises(ShardsDisagree, match="use the newer file"):
        joined.check()


def test_a_running_process_follows_new_exceptions(joined, shard_urls, tmp_path):
    """A process with the older file never puts a host into two shards."""
    host = host_in(0)
    joined.check()
    new = map_file(tmp_path / "n.toml", shard_urls, "version = 2", f'[exceptions]\n"{host}" = 60')
    with closing(ShardedStore(read_map(new), 2)) as later:
        assert add(later.databases, later.shard_map) == []
    with pytest.raises(ShardMoved):
        register(joined, 1, host=host)
    (page_id,) = register(joined, 1, host=host)
    assert page_id >> SHIFT == 60


def test_an_exception_stays_as_long_as_its_host_has_pages(joined, shard_urls, tmp_path):
    host = host_in(0)
    tail = f'[exceptions]\n"{host}" = 60'
    second = read_map(map_file(tmp_path / "2.toml", shard_urls, "version = 2", tail))
    third = read_map(map_file(tmp_path / "3.toml", shard_urls, "version = 3"))
    with closing(ShardedStore(second, 2)) as store, closing(ShardedStore(third, 2)) as without:
        add(store.databases, store.shard_map)
        register(store, 1, host=host)
        with pytest.raises(ShardsDisagree, match=rf"{host} is in shard 60 already"):
            add(without.databases, without.shard_map)
        register(store, 1, host=host_in(2))
        store.check()


def test_a_store_that_was_never_sharded_becomes_shard_0_and_keeps_its_ids(shard_urls, tmp_path):
    urls = [shard_urls[1], shard_urls[0], shard_urls[2]]
    old = open_store(urls[0], 2)
    before = np.sort(np.concatenate([register(old, 3, host=host) for host in HOSTS[:6]]))
    epoch = publish(old, schedule_columns(before, crawl_rate=1.0))
    old.close()
    file = map_file(tmp_path / "cluster.toml", urls)
    file.write_text(file.read_text().replace("true", "false").replace("false", "true", 1))
    with closing(ShardedStore(read_map(file), 2)) as store:
        with pytest.raises(ShardsDisagree, match="joins by `recrawl shards adopt`"):
            add(store.databases, store.shard_map)
        assert adopt(store.databases, store.shard_map) == 6
        assert add(store.databases, store.shard_map) == ["db1", "db2"]
        store.prepare()
        store.check()
        assert sorted(register(store, 3, host=HOSTS[0]).tolist()) == before[:3].tolist()
        later = register(store, 1, host=HOSTS[20])
        assert later[0] >> SHIFT == store.shard_map.shard_of(HOSTS[20]) > 0
        assert [row.page_id for row in read_schedule(store, epoch)] == before.tolist()
        with store.begin(write=False) as tx:
            assert tx.load_columns().page_id.tolist() == [*before.tolist(), *later.tolist()]
        epoch = publish(store, schedule_columns(np.append(before, later), crawl_rate=2.0))
        assert len(read_schedule(store, epoch)) == 19


def transact(database):
    with database.begin():
        pass


@pytest.mark.parametrize(
    ("act", "advice"), [(transact, "send this again"), (ShardDatabase.check, "RECRAWL_CLUSTER")]
)
def test_the_error_of_a_database_that_is_away_names_it_once_and_its_setting(act, advice):
    urls = [f"postgresql://nobody@127.0.0.1:{port}/none" for port in (1, 2, 3)]
    with closing(ShardedStore(shard_map_of(urls), 2)) as store:
        database = store.databases[1]
        with pytest.raises(ShardUnavailable, match=advice) as away:
            act(database)
    assert away.value.detail.count("is away") == 1, away.value.detail
    assert away.value.detail.startswith("the database db1 of the shards is away: ")
    assert away.value.extra["database"] == "db1"
    assert "RECRAWL_DATABASE_URL" not in away.value.detail
