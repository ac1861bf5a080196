"""A shard that moves: nothing lost or doubled, under load, after kills, and with other maps."""

import threading
from contextlib import closing
from itertools import count

import numpy as np
import psycopg
import pytest
from support.crawl_cases import HOUR, queue, rng, take
from support.move_cases import (
    SHARD,
    SOURCE,
    TARGET,
    Killed,
    contents,
    contents_of,
    due,
    hosts_of,
    left_behind,
    moving,
    observe,
    settled,
    traces,
)
from support.shard_cases import LOGICAL, joined_store, shard_map_of
from support.store_cases import (
    DAY,
    EVERYTHING,
    T0,
    page_columns,
    publish,
    read_schedule,
    register,
    schedule_columns,
    states_of,
)

from recrawl_cluster.moves import move_source
from recrawl_cluster.moves.move_plan import alone, sizes
from recrawl_cluster.moves.move_rows import shard_range
from recrawl_cluster.sharded import ShardedStore
from recrawl_cluster.store.claims import claimed, put_claim
from recrawl_cluster.store.shard_map import SHIFT
from service.leases.queue import fill_queue
from service.model.arrays import instant
from service.model.errors import (
    MoveFailed,
    MoveRefused,
    ShardMoved,
    ShardMoving,
    ShardUnavailable,
    StoreUnavailable,
)
from service.storage.queue.columns import NEVER_FILLED

pytestmark = pytest.mark.slow

STEPS = (
    "copied 0 ",
    "copied 20 ",
    "changes to catch up",
    "closing shard",
    "is closed",
    "switching shard",
    "it was closed for",
    "the old rows are deleted",
)
"""Beginnings of the reports at which tests kill a move."""


@pytest.fixture(autouse=True)
def clean(shard_urls):
    """Drop what a move that did not end has left in the databases."""
    yield
    for url in shard_urls:
        with psycopg.connect(url, autocommit=True) as driver:
            for (table,) in driver.execute(
                "SELECT relname FROM pg_class WHERE relname LIKE 'moving%' AND relkind = 'r'"
            ).fetchall():
                driver.execute(f"DROP TABLE {table}")
            driver.execute("DROP FUNCTION IF EXISTS moving_note() CASCADE")


@pytest.fixture
def other(sharded_store, shard_urls):
    """Another process with the same databases, which has the map of before a move."""
    with closing(ShardedStore(shard_map_of(shard_urls), 2)) as store:
        store.map_in_force()
        yield store


def killed_at(step: str):
    """Return a receiver of reports that ends the process at a step."""

    def report(sentence: str) -> None:
        if step in sentence:
            raise Killed(sentence)

    return report


def in_shard(ids: np.ndarray, shard: int = SHARD) -> np.ndarray:
    return ids[ids >> SHIFT == shard]


def test_a_shard_moves_with_all_its_rows_and_leaves_nothing(sharded_store, shard_urls):
    ids = settled(sharded_store)
    before, epoch = contents(shard_urls), 2
    schedule = read_schedule(sharded_store, epoch)
    assert all(before.values()), {name: rows.total() for name, rows in before.items()}
    moving(sharded_store).run()
    assert contents(shard_urls) == before
    assert left_behind(shard_urls[1]) == 0
    assert left_behind(shard_urls[2]) > len(in_shard(ids)) * 3
    assert traces(shard_urls) == []
    assert read_schedule(sharded_store, epoch) == schedule
    with sharded_store.begin(write=False) as tx:
        assert tx.load_columns().page_id.tolist() == ids.tolist()
        assert tx.group("cdn").n_members == 6


def test_a_schedule_that_its_database_does_not_know_yet_moves_with_the_shard(
    sharded_store, shard_urls
):
    settled(sharded_store)
    schedule = read_schedule(sharded_store, 2)
    moving(sharded_store).run()
    with psycopg.connect(shard_urls[2]) as driver:  # as if the leader had died before
        driver.execute("DELETE FROM epochs WHERE epoch = 2")
    moving(sharded_store, to=SOURCE).run()
    assert read_schedule(sharded_store, 2) == schedule


def test_due_pages_are_queued_where_the_shard_is(sharded_store, shard_urls):
    """Pages without a lease are not copied, but their queue is filled again."""
    ids, until = settled(sharded_store), T0 + 6 * DAY
    some, (_, source, target) = shard_range(SHARD), sharded_store.databases
    for database in sharded_store.databases:
        fill_queue(database, until)
    queued = due(shard_urls[1], some)
    assert len(queued) > len(in_shard(ids)) / 2
    with pytest.raises(MoveFailed):
        moving(sharded_store, closed_s=0.0).run()
    assert due(shard_urls[1], some) == queued
    with source.begin(write=False) as tx:
        assert tx.filled() == NEVER_FILLED
    moving(sharded_store).run()
    assert due(shard_urls[2], some) == due(shard_urls[1], some) == set()
    with target.begin(write=False) as tx:
        assert tx.filled() == NEVER_FILLED
    fill_queue(target, until)
    assert due(shard_urls[2], some) == queued


def test_a_shard_that_returns_finds_its_old_place(sharded_store, shard_urls):
    settled(sharded_store)
    before = contents(shard_urls)
    for to in (TARGET, "db0", SOURCE):
        moving(sharded_store, to=to).run()
        assert contents(shard_urls) == before
    (host,) = hosts_of(SHARD, 4)[3:]
    (new,) = register(sharded_store, 1, host=host)
    assert new >> SHIFT == SHARD
    assert sum(rows.total() for rows in contents(shard_urls).values()) > 0


def test_new_pages_never_get_an_id_again(sharded_store):
    (host,) = hosts_of(SHARD, 1)
    old = register(sharded_store, 3, host=host)
    with sharded_store.begin() as tx:
        tx.delete_many(old)
    moving(sharded_store).run()
    new = register(sharded_store, 3, host=host)
    assert new.min() > old.max()
    assert (new >> SHIFT == SHARD).all()


def test_the_first_shard_moves_to_a_database_without_epochs(shard_urls):
    """The target has no epoch and no partition of the schedule."""
    with closing(joined_store(shard_urls, 2)) as store:
        (host,) = hosts_of(0, 1)
        ids = np.sort(register(store, 20, host=host))
        epoch = publish(store, schedule_columns(ids, crawl_rate=1.0))
        before = read_schedule(store, epoch)
        with psycopg.connect(shard_urls[2]) as driver:
            driver.execute(f"DROP TABLE schedule_{epoch}")
            driver.execute("DELETE FROM epochs")
        moving(store, 0).run()
        assert read_schedule(store, epoch) == before
        assert len(before) == 20
        assert register(store, 21, host=host)[-1] not in ids


@pytest.mark.parametrize("step", STEPS)
def test_a_move_that_was_killed_at_any_step_goes_on(sharded_store, shard_urls, step):
    ids = settled(sharded_store)
    before = contents(shard_urls)
    with pytest.raises(Killed):
        moving(sharded_store, report=killed_at(step)).run()
    with closing(ShardedStore(shard_map_of(shard_urls), 2)) as later:
        closed = later.map_in_force().closed
        assert closed == ({SHARD} if step in ("is closed", "switching shard") else frozenset())
        moving(later).run()
        assert contents(shard_urls) == before
        assert left_behind(shard_urls[1]) == 0
        assert traces(shard_urls) == []
        n_observations = states_of(later, ids).n_observations
        observe(later, ids, 7)
        assert (states_of(later, ids).n_observations == n_observations + 1).all()


@pytest.mark.parametrize("step", STEPS[:4])
def test_changes_between_a_kill_and_the_next_run_are_copied(sharded_store, shard_urls, step):
    ids = settled(sharded_store)
    with pytest.raises(Killed):
        moving(sharded_store, report=killed_at(step)).run()
    of_shard = in_shard(ids)
    observe(sharded_store, ids, 6)
    with sharded_store.begin() as tx:
        tx.delete_many(of_shard[:5])
        tx.register(page_columns([f"https://{hosts_of(SHARD, 1)[0]}/new"]), T0)
    before = contents(shard_urls)
    for name, copies in contents_of(shard_urls[2], shard_range(SHARD)).items():
        before[name].subtract(copies)
    moving(sharded_store).run()
    assert contents(shard_urls) == {name: +rows for name, rows in before.items()}


@pytest.mark.parametrize("step", ["copied 20 ", "is closed"])
def test_a_move_that_is_cancelled_leaves_the_shard_where_it_was(sharded_store, shard_urls, step):
    ids = settled(sharded_store)
    before = contents(shard_urls)
    with pytest.raises(Killed):
        moving(sharded_store, report=killed_at(step)).run()
    moving(sharded_store).cancel()
    assert contents(shard_urls) == before
    assert left_behind(shard_urls[2]) == 0
    assert traces(shard_urls) == []
    observe(sharded_store, ids, 8)
    moving(sharded_store).run()
    assert left_behind(shard_urls[1]) == 0


def test_a_closed_shard_refuses_requests_and_the_others_go_on(sharded_store, shard_urls, other):
    ids = settled(sharded_store)
    other.map_in_force()
    with pytest.raises(Killed):
        moving(sharded_store, report=killed_at("is closed")).run()
    closed, rest = in_shard(ids), ids[ids >> SHIFT != SHARD]
    for store in (sharded_store, other):
        for _ in range(2):  # the first transaction of the old map reads the claims again
            with pytest.raises(ShardUnavailable):
                observe(store, closed, 5.0)
        with pytest.raises(ShardUnavailable), store.begin() as tx:
            tx.register(page_columns([f"https://{hosts_of(SHARD, 9)[8]}/"]), T0)
        with pytest.raises(ShardUnavailable), store.lead() as lead, lead.begin() as tx:
            tx.start_epoch(T0)
        observe(store, rest, 5.0 + (store is other))
        leased = take(store, T0 + 30 * DAY + HOUR * (store is other))
        assert not {crawl.page_id for crawl in leased} & set(closed.tolist())
        assert f"shards {SHARD}" in store.check_ready()
    assert read_schedule(other, 2, limit=5)[0].page_id == ids[0]


def test_a_process_with_the_old_map_writes_nothing_at_the_old_place(
    sharded_store, other, shard_urls
):
    ids = settled(sharded_store)
    other.map_in_force()
    moving(sharded_store).run()
    (host,) = hosts_of(SHARD, 12)[11:]
    with pytest.raises(ShardMoved), other.begin() as tx:
        tx.register(page_columns([f"https://{host}/"]), T0)
    (new,) = register(other, 1, host=host)
    observe(other, ids, 9)
    assert left_behind(shard_urls[1]) == 0
    assert new >> SHIFT == SHARD
    assert (
        states_of(sharded_store, ids).n_observations == states_of(other, ids).n_observations
    ).all()


def test_a_process_with_the_old_map_skips_no_row_of_a_schedule(sharded_store, other):
    ids = settled(sharded_store)
    other.map_in_force()
    moving(sharded_store).run()
    with pytest.raises(ShardUnavailable):
        read_schedule(other, 2, after=int(in_shard(ids)[0]) - 1)
    assert [row.page_id for row in read_schedule(other, 2)] == ids.tolist()


def test_the_guard_refuses_a_write_that_was_routed_before_the_shard_closed(
    sharded_store, shard_urls
):
    ids = settled(sharded_store)
    with pytest.raises(Killed):
        moving(sharded_store, report=killed_at("is closed")).run()
    with psycopg.connect(shard_urls[1]) as driver, pytest.raises(psycopg.DatabaseError) as error:
        driver.execute(
            "UPDATE page_states SET n_changes = 9 WHERE page_id = %s", (int(in_shard(ids)[0]),)
        )
    assert error.value.sqlstate == "RC017"


def test_a_copy_that_differs_is_not_switched_to(sharded_store, shard_urls):
    ids = settled(sharded_store)
    spoilt = int(in_shard(ids)[3])

    def report(sentence: str) -> None:
        if "is closed" in sentence:
            with psycopg.connect(shard_urls[2]) as driver:
                driver.execute("DELETE FROM page_states WHERE page_id = %s", (spoilt,))

    with pytest.raises(MoveFailed, match="differs"):
        moving(sharded_store, report=report).run()
    observe(sharded_store, ids, 6)
    assert spoilt in in_shard(ids)
    assert (states_of(sharded_store, ids).n_observations >= 3).all()
    moving(sharded_store).cancel()
    moving(sharded_store).run()
    assert left_behind(shard_urls[1]) == 0


ADD_GROUP = "INSERT INTO host_groups (group_id, name) VALUES (%s, 'cdn')"


@pytest.mark.parametrize("step", ["is closed", "switching shard"])
def test_any_error_while_the_shard_is_closed_opens_it_again(sharded_store, shard_urls, step):
    ids = settled(sharded_store)
    group_id = 43 << SHIFT | 1

    def report(sentence: str) -> None:
        if step in sentence:
            with psycopg.connect(shard_urls[2]) as driver:
                driver.execute(ADD_GROUP, (group_id,))

    with pytest.raises(MoveFailed, match=r"cannot enter db2: duplicate key .*groups_name_key"):
        moving(sharded_store, report=report).run()
    observe(sharded_store, ids, 9)  # the hosts of the shard are there
    with psycopg.connect(shard_urls[2]) as driver:
        driver.execute("DELETE FROM host_groups WHERE group_id = %s", (group_id,))
    moving(sharded_store).run()
    last_crawl_at = states_of(sharded_store, ids).last_crawl_at
    assert (last_crawl_at == instant(T0 + 9 * DAY)).all()
    assert (left_behind(shard_urls[1]), traces(shard_urls)) == (0, [])


def test_a_shard_does_not_move_to_a_group_of_the_same_name(sharded_store, shard_urls):
    settled(sharded_store)
    with psycopg.connect(shard_urls[2]) as driver:
        driver.execute(ADD_GROUP, (43 << SHIFT | 1,))
    for act in (moving(sharded_store).run, lambda: sizes(sharded_store, SHARD, TARGET)):
        with pytest.raises(MoveRefused, match="both databases have a group 'cdn'; send DELETE /g"):
            act()
    assert traces(shard_urls) == []


def test_a_shard_that_was_closed_for_too_long_opens_again(sharded_store, shard_urls):
    ids = settled(sharded_store)
    with pytest.raises(MoveFailed, match=r"within 0 s; raise --closed-s"):
        moving(sharded_store, closed_s=0.0).run()
    observe(sharded_store, ids, 6)
    moving(sharded_store).run()
    assert left_behind(shard_urls[1]) == 0


def test_a_move_from_where_only_the_file_has_the_shard_is_refused(
    sharded_store, shard_urls, monkeypatch
):
    settled(sharded_store)
    moving(sharded_store).run()
    before = contents(shard_urls)
    with closing(ShardedStore(shard_map_of(shard_urls), 2)) as store:
        monkeypatch.setattr(store, "_claim", lambda _: None)  # no database answers in time
        with pytest.raises(MoveRefused, match=f"shard {SHARD} has left {SOURCE}"):
            moving(store, to="db0").run()
    assert contents(shard_urls) == before
    assert traces(shard_urls) == []
    moving(sharded_store, to="db0").run()


def test_two_moves_at_the_same_time_are_refused(sharded_store, other):
    settled(sharded_store)
    with alone(other), pytest.raises(ShardMoving):
        moving(sharded_store).run()
    with pytest.raises(Killed):
        moving(sharded_store, report=killed_at("copied 20 ")).run()
    for shard, to in ((SHARD, "db0"), (2, TARGET)):
        with pytest.raises(ShardMoving, match=f"shard {SHARD} is on its way from db1 to db2; run"):
            moving(sharded_store, shard, to).run()
    moving(sharded_store).run()


def test_a_run_that_was_overtaken_changes_nothing(sharded_store, shard_urls):
    settled(sharded_store)
    before = contents(shard_urls)
    old = moving(sharded_store, report=killed_at("switching"))
    with pytest.raises(Killed):
        old.run()
    moving(sharded_store).cancel()
    old.report = lambda _: None
    with pytest.raises(ShardMoving, match="another process went on"):
        old._activate([0, 0, 0])
    assert contents(shard_urls) == before


@pytest.mark.parametrize(
    ("shard", "to", "sentence"),
    [
        (SHARD, SOURCE, "shard 30 is in db1 already"),
        (SHARD, "db7", "RECRAWL_CLUSTER has no database db7; it has db0, db1, db2"),
        (LOGICAL, TARGET, "there is no shard 64; they are 0 to 63"),
        (-1, TARGET, "there is no shard -1"),
    ],
)
def test_a_move_that_is_not_possible_says_why(sharded_store, shard_urls, shard, to, sentence):
    with pytest.raises(MoveRefused, match=sentence):
        moving(sharded_store, shard, to).run()
    assert traces(shard_urls) == []


def test_the_first_shard_of_an_adopted_store_stays(sharded_store):
    with sharded_store.databases[0].begin() as tx:
        put_claim(tx, claimed(tx)._replace(adopted=True))
    with pytest.raises(MoveRefused, match="shard 0 of an adopted store stays"):
        moving(sharded_store, 0).run()


def test_a_move_to_a_database_that_is_away_is_refused(shard_urls):
    urls = [*shard_urls[:2], "postgresql://nobody@127.0.0.1:1/none"]
    with closing(joined_store(shard_urls, 2)):
        pass
    with (
        closing(ShardedStore(shard_map_of(urls), 2)) as store,
        pytest.raises(StoreUnavailable, match="db2 of the shards is away"),
    ):
        moving(store).run()


def test_the_sizes_of_a_move_are_shown_without_a_change(sharded_store, shard_urls):
    settled(sharded_store)
    before = contents(shard_urls)
    text = sizes(sharded_store, SHARD, TARGET)
    assert text.startswith("shard 30 would move from db1 to db2: 9 hosts, 72 pages, ")
    assert contents(shard_urls) == before
    assert traces(shard_urls) == []


class Load(threading.Thread):
    """A thread that repeats an act until the end, and keeps its errors."""

    def __init__(self, act) -> None:
        super().__init__()
        self.act, self.errors, self.ended, self.n = act, [], threading.Event(), 0

    def run(self) -> None:
        while not self.ended.is_set():
            try:
                self.act()
                self.n += 1
            except ShardUnavailable:
                continue
            except Exception as error:  # noqa: BLE001 - the test shows it
                self.errors.append(error)
                return


def n_logged(store: ShardedStore, ids: np.ndarray) -> np.ndarray:
    """Return the number of entries of each page's log; no entry may be there twice."""
    with store.begin(write=False) as tx:
        log = tx.log_of(ids)
    entries = set(
        zip(log.page_id.tolist(), log.observed_at.tolist(), log.kind.tolist(), strict=True)
    )
    assert len(entries) == len(log)
    return np.bincount(np.searchsorted(ids, log.page_id), minlength=len(ids))


def test_a_move_under_load_loses_and_doubles_nothing(sharded_store, other, shard_urls):
    ids = settled(sharded_store, n_pages=40)
    of_shard = in_shard(ids)
    start = states_of(sharded_store, ids).n_observations
    logged_before = n_logged(sharded_store, ids)
    acknowledged, lock, days = np.zeros(len(ids), np.int64), threading.Lock(), count(10)
    leased: list[tuple[int, int]] = []
    walks: list[list[int]] = []
    generator = rng()

    def reports() -> None:
        with lock:
            day, store = next(days), (sharded_store, other)[int(generator.random() < 0.5)]
            some = np.sort(generator.choice(ids, 40, replace=False))
        for part in (some[np.isin(some, of_shard)], some[~np.isin(some, of_shard)]):
            while True:  # send again, as callers do
                try:
                    observe(store, part, day)
                except ShardUnavailable:
                    threading.Event().wait(0.02)
                else:
                    break
            acknowledged[np.isin(ids, part)] += 1

    def leases() -> None:
        with sharded_store.begin(write=False) as tx:
            tx.number_in_force()
        crawls = take(other, T0 + 40 * DAY, count=20, ttl=100 * DAY)
        leased.extend((crawl.page_id, crawl.token) for crawl in crawls)

    def schedules() -> None:
        walk: list[int] = []
        after: int | None = 0
        while after is not None:
            try:
                with other.begin(write=False) as tx:
                    part = tx.schedule(2, after, 50, EVERYTHING)
            except ShardUnavailable:  # the same cursor again
                threading.Event().wait(0.02)
                continue
            walk += part.pages.page_id.tolist()
            after = part.after
        walks.append(walk)

    threads = [Load(reports), Load(leases), Load(schedules)]
    queue(sharded_store, ids, T0 + 39 * DAY)
    for thread in threads:
        thread.start()
    try:
        for to in (TARGET, "db0", SOURCE, TARGET):
            move = moving(sharded_store, to=to)
            move.grace_s, move.wait = 0.5, lambda seconds: threading.Event().wait(seconds) and None
            move.run()
    finally:
        for thread in threads:
            thread.ended.set()
        for thread in threads:
            thread.join()
    assert [thread.errors for thread in threads] == [[], [], []]
    assert all(thread.n > 5 for thread in threads), [thread.n for thread in threads]
    after = states_of(sharded_store, ids).n_observations
    assert (after - start == acknowledged).all()
    assert (n_logged(sharded_store, ids) - logged_before == acknowledged).all()
    assert len({page_id for page_id, _ in leased}) == len(leased), "a page was leased twice"
    assert all(walk == ids.tolist() for walk in walks)
    assert left_behind(shard_urls[1]) == left_behind(shard_urls[0], SHARD) == 0
    assert left_behind(shard_urls[2]) > len(of_shard)
    assert {n for rows in contents(shard_urls).values() for n in rows.values()} == {1}


def test_notes_are_kept_until_their_pages_are_copied(sharded_store, shard_urls):
    ids = settled(sharded_store)
    with sharded_store.databases[1].begin() as tx:
        move_source.watch(tx, SHARD)
    observe(sharded_store, ids, 6)
    with sharded_store.databases[1].begin(write=False) as tx:
        notes, pages = move_source.read_notes(tx, 1000)
    assert sorted(pages) == in_shard(ids).tolist(), "only pages of the shard are noted"
    assert len(notes) >= len(pages)
    with sharded_store.databases[1].begin(write=False) as tx:
        assert move_source.read_notes(tx, 1000) == (notes, pages)
    assert shard_range(SHARD).first == SHARD << SHIFT
