"""Epochs over one database in parts by hosts: equal bits by each runner, and what losses leave."""

import pickle
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import timedelta
from signal import SIGKILL

import numpy as np
import psycopg
import pytest
from structlog.testing import capture_logs
from support.epoch_cases import Clock
from support.runner_cases import Haunted, Here, InNear
from support.runner_stores import HOSTS, LATER, PLAN, Published, assert_equal, filled
from support.store_cases import T0, instants, read_schedule, save

from recrawl_cluster.epochs import hosts
from recrawl_cluster.epochs.actors import LOCAL, Actors
from recrawl_cluster.epochs.hosts import ByHosts, HostParts, host_sources
from service.epochs import part
from service.epochs.inputs import Task
from service.epochs.parts import InProcess, in_this_process
from service.epochs.run import run_epoch
from service.leases.host_settings import change_group
from service.leases.politeness import Politeness
from service.model.calendars import Calendars, HourRules
from service.model.domain import EpochStatus
from service.model.errors import EpochRunning, LeadershipLost, StoreUnavailable
from service.storage import open_store

N_PARTS = 3
ALWAYS = {n: [(2, SIGKILL)] for n in range(1, 900)}


@pytest.fixture(autouse=True)
def few_pages(monkeypatch):
    """Divide few pages, and write them in several stretches."""
    monkeypatch.setattr(hosts, "LEAST_PAGES", 1)
    monkeypatch.setattr(part, "STRETCH", 16)
    monkeypatch.setattr(hosts, "TOGETHER", 2)


def corpus(store):
    """Register hosts with twins in all parts and a group with a cap in all parts."""
    ids = filled(store)
    save(store, ids[::4], digest=77)
    with store.begin() as tx:
        change_group(tx, "far", {"max_crawl_rate": 3.0}, HOSTS[1::4], T0, Politeness())
    return ids


@contextmanager
def here(store, lead, task):
    """Compute the parts in this process, one after the other."""
    yield HostParts(InProcess(host_sources(store, lead, N_PARTS), task), lead)


def near(signals, asked=None, before=None):
    """Return a runner of actors in this process, which get signals before some questions."""

    @contextmanager
    def opened(store, lead, task):
        own = Watched(InNear(Here(list), host_sources(store, lead, N_PARTS), task), signals, before)
        yield HostParts(own, lead)
        if asked is not None:
            asked.append(own.n_asked)

    return opened


class Watched(Haunted):
    """Haunted parts; a function is called with each question before it is asked."""

    def __init__(self, parts, signals, before):
        super().__init__(parts, signals)
        self.before = before

    def ask(self, question, arguments):
        if self.before is not None:
            self.before(question)
        return super().ask(question, arguments)


def published(url, runner, *, last=None):
    """Return what two epochs of a new store publish; `last` is the runner of the second."""
    with closing(open_store(url, 2)) as store:
        ids = corpus(store)
        clock = Clock(LATER)
        run_epoch(store, PLAN, clock, runner)
        at = instants([LATER + timedelta(hours=3)] * len(ids[::2]))
        interval = np.where(ids[::2] % 3, 1.5, -1.5)
        save(store, ids[::2], last_crawl_at=at, last_observed_at=at, last_interval=interval)
        clock.at += timedelta(hours=6)
        epoch = run_epoch(store, PLAN, clock, last or runner)
        shown = Published.by(store, epoch)
        with store.begin(write=False) as tx:
            evidence = tx.share_evidence(epoch.epoch)
        return shown._replace(tables={**shown.tables, "score": evidence.packed()})


@pytest.fixture
def expected(postgres_url, postgres_clone):
    shown = published(postgres_url, here)
    postgres_clone.empty()
    return shown


def test_a_part_in_another_process_knows_the_windows_of_its_hosts(postgres_url):
    """The rules of all hosts come from the settings of the leader alone."""
    with closing(open_store(postgres_url, 2)) as store, store.lead() as lead:
        ids = corpus(store)
        store.calendars = Calendars(HourRules(("Mon-Fri 22:00-06:00 Europe/Berlin",)))
        sources = [pickle.loads(pickle.dumps(s)) for s in host_sources(store, lead, N_PARTS)]
        inputs = [own for s in sources for own in s.load(Task(PLAN, None, LATER)).values()]
    assert len(inputs) == N_PARTS
    assert sum(len(each.pages) for each in inputs) == len(ids)
    for each in inputs:
        assert set(each.windows.host_id) == set(each.pages.host_id)


@pytest.mark.dear
def test_actors_publish_the_bits_of_the_same_parts_in_one_process(expected, postgres_url):
    assert_equal(expected, published(postgres_url, near({})))
    assert len(expected.rows) > 200


@pytest.mark.dear
def test_parts_by_hosts_publish_what_one_process_publishes(expected, postgres_url):
    one = published(postgres_url, in_this_process)
    with closing(open_store(postgres_url, 2)) as store, store.lead() as lead:
        sources = host_sources(store, lead, N_PARTS)
        assert len(sources) == N_PARTS
        assert any(source.hosts.named for source in sources), "a group is in several ranges"
        with store.read_whole() as tx:
            sizes = [len(tx.load_hosts(source.hosts)[0]) for source in sources]
            assert min(sizes) > 20
            whole = tx.load_columns()
            url_group = np.unique(np.column_stack((whole.host_id, whole.url_group)), axis=0)[:, 1]
            size = tx.url_group_rate(1).size
            assert len(np.unique(url_group % size)) == len(url_group), "no two share a bucket"
            assert (whole.importance < tx.load_hosts(hosts.HostSet())[0].importance).sum() > 10
    for name in ("bandwidth_used", "multiplier", "harmonic_cost", "binary_cost", "budget_factor"):
        assert expected.certificate[name] == pytest.approx(one.certificate[name], rel=1e-9), name
    assert expected.certificate["n_pages"] == one.certificate["n_pages"]
    assert [row.page_id for row in expected.rows] == [row.page_id for row in one.rows]
    for mine, theirs in zip(expected.rows, one.rows, strict=True):
        for name in ("change_rate", "crawl_rate", "crawl_probability"):
            assert getattr(mine, name) == pytest.approx(getattr(theirs, name), rel=1e-6), name
        assert (mine.next_crawl_at is None) == (theirs.next_crawl_at is None)
        if mine.next_crawl_at is not None:
            assert abs(mine.next_crawl_at - theirs.next_crawl_at) < timedelta(minutes=1)
    np.testing.assert_allclose(expected.tables[0], one.tables[0], rtol=1e-6)
    np.testing.assert_allclose(expected.tables["score"], one.tables["score"], rtol=1e-5)
    assert len(one.tables["score"]) > 50


@pytest.mark.dear
@pytest.mark.parametrize("step", [60, pytest.param(1, marks=pytest.mark.slow)])
def test_an_actor_that_is_lost_at_any_question_changes_no_bit(
    step, expected, postgres_url, postgres_clone
):
    asked = []
    assert_equal(expected, published(postgres_url, here, last=near({}, asked)))
    questions = [*range(2, asked[0] + 1, step), asked[0]]  # the last ones write
    for question in questions:
        postgres_clone.empty()
        last = near({question: [(question % N_PARTS, SIGKILL)]}, asked)
        assert_equal(expected, published(postgres_url, here, last=last))
        assert asked[-1] > asked[0]


def leftover(url):
    """Return the tables of schedules beside those that are attached."""
    with psycopg.connect(url) as session:
        rows = session.execute(
            "SELECT relname FROM pg_class WHERE relname ~ '^schedule_[0-9]+$' AND relkind = 'r' "
            "AND NOT relispartition"
        )
        return rows.fetchall()


@pytest.mark.dear
def test_an_epoch_that_loses_its_actors_again_and_again_leaves_the_old_one(postgres_url):
    with closing(open_store(postgres_url, 2)) as store:
        corpus(store)
        clock = Clock(LATER)
        first = run_epoch(store, PLAN, clock, near({}))
        rows = read_schedule(store, first.epoch)
        lost = run_epoch(store, PLAN, clock, near(ALWAYS))
        assert lost.status is EpochStatus.failed
        assert "PartLost" in lost.reason
        with store.begin(write=False) as tx:
            assert tx.number_in_force() == first.epoch
        assert read_schedule(store, first.epoch) == rows
        assert leftover(postgres_url) == []
        assert run_epoch(store, PLAN, clock, near({})).status is EpochStatus.published


def end_sessions(url):
    """End all sessions of a database."""
    with psycopg.connect(url, autocommit=True) as session:
        session.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


@pytest.mark.dear
@pytest.mark.parametrize("at", ["census", "share", "rows"])
def test_a_database_that_goes_away_in_between_leaves_the_old_epoch(at, postgres_url):
    with closing(open_store(postgres_url, 2)) as store:
        corpus(store)
        clock = Clock(LATER)
        first = run_epoch(store, PLAN, clock, near({}))
        rows, ended = read_schedule(store, first.epoch), []

        def away(question):
            if question == at and len(ended) < 2:
                ended.append(end_sessions(postgres_url))

        with capture_logs(), pytest.raises((LeadershipLost, StoreUnavailable)):
            run_epoch(store, PLAN, clock, near({}, before=away))
        assert ended
        with store.begin(write=False) as tx:
            assert tx.number_in_force() == first.epoch
        assert read_schedule(store, first.epoch) == rows
        assert leftover(postgres_url) == []
        again = run_epoch(store, PLAN, clock, near({}))
        assert again.status is EpochStatus.published


@pytest.mark.dear
def test_a_leader_that_was_overtaken_publishes_nothing(postgres_url):
    others = []

    def overtake(question):
        if question != "share" or others:
            return
        with closing(open_store(postgres_url, 2)) as other:
            with pytest.raises(EpochRunning):
                run_epoch(other, PLAN, Clock(LATER))
            end_sessions(postgres_url)
            epoch = run_epoch(other, PLAN, Clock(LATER + timedelta(minutes=1)), near({}))
            others.append(Published.by(other, epoch))

    with closing(open_store(postgres_url, 2)) as store:
        corpus(store)
        with capture_logs(), pytest.raises((LeadershipLost, StoreUnavailable)):
            run_epoch(store, PLAN, Clock(LATER), near({}, before=overtake))
    with closing(open_store(postgres_url, 2)) as store, store.begin(write=False) as tx:
        in_force = tx.epoch_in_force()
        assert in_force.started_at == LATER + timedelta(minutes=1)
        assert_equal(others[0], Published.by(store, in_force))


def test_a_reader_sees_the_old_epoch_until_the_whole_new_one(postgres_url):
    with (
        closing(open_store(postgres_url, 2)) as store,
        closing(open_store(postgres_url, 2)) as reader,
    ):
        corpus(store)
        clock, seen = Clock(LATER), []
        first = run_epoch(store, PLAN, clock, in_this_process)
        rows = read_schedule(reader, first.epoch)

        def read(question):
            if question == "rows":
                with reader.begin(write=False) as tx:
                    seen.append(tx.number_in_force())
                assert read_schedule(reader, first.epoch) == rows

        second = run_epoch(store, PLAN, clock, near({}, before=read))
        assert second.status is EpochStatus.published
        assert len(seen) > 3
        assert set(seen) == {first.epoch}
        new = read_schedule(reader, second.epoch)
        assert [row.page_id for row in new] == [row.page_id for row in rows]


def test_an_error_of_a_part_fails_the_epoch_by_name(postgres_url):
    with closing(open_store(postgres_url, 2)) as store:
        corpus(store)

        @contextmanager
        def opened(store, lead, task):
            sources = host_sources(store, lead, N_PARTS)
            sources[1] = replace(sources[1], url="postgresql://postgres@127.0.0.1:1/no")
            yield HostParts(InNear(Here(list), sources, task), lead)

        failed = run_epoch(store, PLAN, Clock(LATER), opened)
        assert failed.status is EpochStatus.failed
        assert failed.reason.startswith("the database failed: connection failed")
        infeasible = run_epoch(store, replace(PLAN, bandwidth=1e-9), Clock(LATER), near({}))
        assert "minimum crawl rates" in infeasible.reason


def test_few_pages_are_computed_in_this_process(postgres_url, monkeypatch):
    monkeypatch.setattr(hosts, "LEAST_PAGES", 1_000)
    monkeypatch.setattr(ByHosts, "n_workers", lambda _: 4)
    with closing(open_store(postgres_url, 2)) as store:
        corpus(store)
        epoch = run_epoch(store, PLAN, Clock(LATER), ByHosts(Actors(list, LOCAL)).opened)
        assert epoch.status is EpochStatus.published, epoch.reason


@pytest.mark.slow
def test_workers_of_this_machine_compute_the_same_bits_also_after_a_kill(
    expected, postgres_url, postgres_clone
):
    pool = Actors(list, LOCAL, 60.0)

    def killed(at):
        @contextmanager
        def opened(store, lead, task):
            with pool.placed(host_sources(store, lead, N_PARTS), task) as parts:
                yield HostParts(Haunted(parts, {at: [(1, SIGKILL)]}), lead)

        return opened

    try:
        for at in (0, 3, 40):
            assert_equal(expected, published(postgres_url, here, last=killed(at)))
            postgres_clone.empty()
    finally:
        pool.close()
