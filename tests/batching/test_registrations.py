"""Requests that register pages at the same moment: one commit, and each its own answer."""

import threading
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_equal
from support.crawl_cases import RUDE, UNTIL, rng, take
from support.store_cases import T0, page_columns, register, urls

from service.batching import registrations
from service.batching.registrations import Registration, batched_registrations
from service.leases.due import due_at, of_new
from service.leases.settle import LeaseSettler
from service.model.errors import StoreFull, StoreUnavailable
from service.storage.pages.noting import NotedRows

PATIENCE_S = 180


class Watched:
    """A store whose writing transactions are counted, can be held up and made to fail."""

    def __init__(self, store):
        self.store = store
        self.n_commits = 0
        self.open = threading.Event()
        self.open.set()
        self.entered = threading.Event()
        self.at_commit = []
        self.poison = None

    @contextmanager
    def begin(self, *, write=True):
        self.entered.set()
        assert self.open.wait(PATIENCE_S)
        with self.store.begin(write=write) as tx:
            register = tx.register

            def registered(pages, now):
                if self.poison in pages.url:
                    raise ZeroDivisionError
                return register(pages, now)

            tx.register = registered
            yield tx
            if self.at_commit:
                raise self.at_commit.pop(0)
        self.n_commits += 1


@pytest.fixture
def store(queue_store):
    return Watched(queue_store)


@pytest.fixture
def line(store):
    batcher = batched_registrations(store, LeaseSettler(RUDE, UNTIL, rng()))
    batcher.start()
    yield batcher
    batcher.stop()


def registration(urls):
    return Registration(page_columns(urls), T0)


@pytest.fixture
def together(store, line):
    """Register lists of URLs that all wait while another commit is under way."""

    def all_of(*lists):
        store.entered.clear()
        store.open.clear()
        first = line.submit(registration(["https://first.example/"]))
        assert store.entered.wait(PATIENCE_S)
        futures = [line.submit(registration(pages)) for pages in lists]
        store.open.set()
        for future in (first, *futures):
            wait([future], PATIENCE_S)
        return futures

    return all_of


def test_requests_that_wait_are_one_commit_and_each_gets_its_own_pages(store, line, together):
    lists = [urls(n, f"{n}.example") for n in (3, 1, 20, 7)]
    futures = together(*lists)
    assert store.n_commits == 2
    for given, future in zip(lists, futures, strict=True):
        page_id, created = future.result()
        assert created.all()
        with store.begin(write=False) as tx:
            assert tx.page_ids(page_columns(given).key).tolist() == page_id.tolist()
    assert len(take(store.store, T0)) == 32, "all are queued"


def test_a_page_that_two_bring_is_new_to_the_first(store, line, together):
    a, b, c = urls(3)
    one, two = (future.result() for future in together([a, b], [c, b]))
    assert one.created.tolist() == [True, True]
    assert two.created.tolist() == [True, False]
    assert two.page_id[1] == one.page_id[1]


def test_each_page_of_a_commit_keeps_its_own_note_whatever_the_order_of_ids(store, line):
    a, b, c, d = urls(4)
    line.flush([registration([b])])
    texts = {a: '"a"', b: '"b"', d: '"d"'}
    noted = {2: (texts[b], False), 1: (texts[a], True)}
    one = replace(registration([c, a, b]), notes=NotedRows.of(noted))
    two = replace(registration([d]), notes=NotedRows.of({0: (texts[d], False)}))
    line.flush([one, two])
    with store.begin(write=False) as tx:
        names = dict(zip(tx.page_ids(page_columns([a, b, c, d]).key).tolist(), "abcd", strict=True))
        stored = tx.validators(np.array(sorted(names)))
    notes = dict(zip(stored.page_id.tolist(), stored.note.tolist(), strict=True))
    assert {names[page]: note for page, note in notes.items()} == {n: f'"{n}"' for n in "abd"}
    part = registrations.some_pages(one, np.array([0, 2])).notes
    assert (part.row.tolist(), part.note.tolist()) == ([1], [texts[b]])
    assert registrations.some_pages(one, np.array([0])).notes is None


def test_a_request_that_cannot_be_written_spares_the_others(store, line, together):
    store.poison = "https://poison.example/"
    good, bad, other = together(
        urls(2), [store.poison, *urls(2, "b.example")], urls(2, "c.example")
    )
    assert good.result().created.all()
    assert other.result().created.all()
    with pytest.raises(ZeroDivisionError):
        bad.result()
    with store.begin(write=False) as tx:
        assert not tx.page_ids(page_columns(urls(2, "b.example")).key).any(), "nothing half-done"


@pytest.mark.parametrize("error", [StoreFull(), StoreUnavailable()])
def test_a_database_that_fails_is_told_to_all_who_waited(store, line, together, error, monkeypatch):
    flush = line.flush

    def fail(jobs):
        if len(jobs) > 1:
            store.at_commit = [error]
        return flush(jobs)

    monkeypatch.setattr(line, "flush", fail)
    one, two = together(urls(2), urls(3, "b.example"))
    for future in (one, two):
        with pytest.raises(type(error)):
            future.result()
    with store.begin(write=False) as tx:
        assert not tx.page_ids(page_columns(urls(2)).key).any()
    again = line.submit(registration(urls(2))).result(PATIENCE_S)
    assert again.created.all(), "the next one is served"


def test_a_commit_is_bounded(store, line, together):
    line.limits = replace(registrations.REGISTRATION_LIMITS, max_batch=10)
    futures = together(*(urls(4, f"{i}.example") for i in range(5)), urls(30, "large.example"))
    assert all(future.result().created.all() for future in futures)
    assert store.n_commits == 1 + 3 + 1


def test_two_processes_of_many_threads_get_what_one_would_have_got(queue_store):
    draw = np.random.default_rng(5)
    every = [f"https://h{i % 7}.example/{i}" for i in range(120)]
    lists = [[every[i] for i in draw.permutation(120)[:40]] for _ in range(60)]
    lines = [
        batched_registrations(queue_store, LeaseSettler(RUDE, UNTIL, rng()), 2) for _ in range(2)
    ]
    for line in lines:
        line.start()

    def register(k):
        return lines[k % 2].submit(registration(lists[k])).result(PATIENCE_S)

    with ThreadPoolExecutor(12) as pool:
        done = list(pool.map(register, range(len(lists))))
    for line in lines:
        line.stop()
    ids = {}
    for given, (page_id, _) in zip(lists, done, strict=True):
        for url, page in zip(given, page_id.tolist(), strict=True):
            assert ids.setdefault(url, page) == page
    assert len(set(ids.values())) == len(ids)
    assert sum(int(created.sum()) for _, created in done) == len(ids)
    assert sorted(crawl.page_id for crawl in take(queue_store, T0, 200)) == sorted(ids.values())


def test_new_pages_are_queued_as_if_their_rows_were_read(queue_store):
    page_id = register(queue_store, 30)
    with queue_store.begin(write=False) as tx:
        read, known = tx.due_columns(page_id), of_new(page_id, T0)
    assert_equal(due_at(known), due_at(read))
    for name, column in known.arrays().items():
        # only the order in the queue, and the due time, depend on the columns
        assert_equal(column, getattr(read, name), err_msg=name)
