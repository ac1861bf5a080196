"""What an import of captures changes in a store, and what it leaves alone."""

import gzip
import json
from datetime import timedelta

import numpy as np
import pytest
from support.ingest_cases import counts, crawl, estimate, rules
from support.store_cases import (
    DAY,
    T0,
    due_of,
    page_of,
    register,
    same,
    save,
    states_of,
    urls,
)

from recrawl_lab.memory.store import MemoryStore
from service.core.estimators import ESTIMATORS, make_estimator
from service.estimation.estimates import width
from service.model.errors import NotExportable, UnreadableFile
from service.model.urls import key_of
from service.storage.tables import metadata
from service.transfer import capture_import, capture_sort
from service.transfer.capture_import import CaptureCounts, Teaching, import_captures

LATER = T0 + 100 * DAY
FILLED = "SELECT EXISTS (SELECT 1 FROM {})"
OF_NEW_STORES = {"meta", "incarnations", "history_parts", "host_queues"}
"""Tables with rows before any report, and the queues that each new host gets."""
SAME = "the content before"
"""Digest of a revisit without one."""


def write(path, captures):
    """Write (URL, instant, digest) as CDXJ."""
    lines = []
    for url, at, digest in captures:
        item = {"url": url, "status": "200", "digest": digest}
        if digest == SAME:
            item = {"url": url, "status": "304"}
        lines.append(f"key {at:%Y%m%d%H%M%S} {json.dumps(item)}\n")
    path.write_text("".join(lines))
    return path


def take(store, path, *more, by=None, have_copies=False, after="", now=LATER):
    """Import files; return the sums of the counts."""
    teaching = Teaching(store, by or rules(), lambda: now, have_copies)
    steps = import_captures(dict.fromkeys([path, *more], "cdxj"), now, teaching, after)
    return sum_of(steps)


def sum_of(steps):
    total = CaptureCounts()
    for step in steps:
        total = total.plus(step.counts)
    return total


def drawn(n_pages=7, n=120, seed=1):
    """Return captures of some pages in any order, no two of one page at one time."""
    rng = np.random.default_rng(seed)
    seconds = rng.choice(80 * 86_400, n, replace=False)
    page, digest = rng.integers(0, n_pages, n), rng.choice(["A", "B", "C", SAME], n)
    all_urls = urls(n_pages)
    return [
        (all_urls[p], T0 + timedelta(seconds=int(s)), str(d))
        for p, s, d in zip(page, seconds, digest, strict=True)
    ]


def id_of(store, url):
    with store.begin(write=False) as tx:
        return int(tx.page_ids(np.array([np.void(key_of(url))], "V16"))[0])


def one_by_one(store, captures, by):
    """Register the pages and report the captures as a crawler's own, each in its own batch."""
    ids = dict(zip(urls(7), register(store, 7).tolist(), strict=True))
    for url, at, digest in sorted(captures, key=lambda capture: capture[1]):
        told = {"status": 304} if digest == SAME else {"digest": ord(digest), "status": 200}
        crawl(store, ids[url], at, by, **told)


@pytest.mark.parametrize("have_copies", [False, True])
@pytest.mark.parametrize("n_files", [1, 3])
def test_captures_teach_what_the_same_crawls_teach(store, tmp_path, have_copies, n_files):
    """Files are merged in the order of time, whatever the order of their lines."""
    captures = drawn()
    paths = [write(tmp_path / f"{i}.cdxj", captures[i::n_files]) for i in range(n_files)]
    took = take(store, *paths, have_copies=have_copies)
    assert took == CaptureCounts(content=120, distinct=120, pages=7, created=7, taught=7)
    other = MemoryStore(width(rules().estimator))
    one_by_one(other, captures, rules())
    for url in urls(7):
        page_id, twin = id_of(store, url), id_of(other, url)
        assert estimate(store, page_id) == pytest.approx(estimate(other, twin), rel=1e-12)
        assert counts(store, page_id) == (0, 0)


@pytest.mark.parametrize("name", sorted(set(ESTIMATORS) - {"gamma"}))
def test_every_estimator_learns_from_captures_as_from_crawls(tmp_path, name):
    by = rules(make_estimator(name))
    path = write(tmp_path / "a.cdxj", captures := drawn(seed=2))
    if by.estimator.needs_history:
        with pytest.raises(NotExportable, match="needs the observation log"):
            take(MemoryStore(1), path, by=by)
        return
    stores = MemoryStore(width(by.estimator)), MemoryStore(width(by.estimator))
    take(stores[0], path, by=by)
    one_by_one(stores[1], captures, by)
    for url in urls(7):
        learnt, expected = (estimate(store, id_of(store, url)) for store in stores)
        if by.estimator.needs_crawl_rate:  # of crawls in no schedule they learn nothing
            assert any(learnt)
        else:
            assert learnt == pytest.approx(expected, rel=1e-12)


def test_without_copies_pages_wait_for_a_first_crawl_that_gives_no_verdict(store, tmp_path):
    (url,) = urls(1)
    days = [T0 + day * DAY for day in (0, 10, 20)]
    take(store, write(tmp_path / "a.cdxj", zip([url] * 3, days, "AAB", strict=True)))
    page = page_of(store, page_id := id_of(store, url))
    assert (page.last_crawl_at, page.last_observed_at) == (None, None)
    assert due_of(store, page_id) == LATER
    learnt = estimate(store, page_id)
    crawl(store, page_id, LATER, digest=5)
    assert (counts(store, page_id), estimate(store, page_id)) == ((0, 0), learnt)
    assert states_of(store, [page_id]).digest.tolist() == [5]
    crawl(store, page_id, LATER + DAY, digest=6)
    assert counts(store, page_id) == (1, 1)


def test_with_copies_pages_are_due_after_the_newest_capture_and_get_no_verdict(store, tmp_path):
    (url,) = urls(1)
    days = [T0, T0 + 10 * DAY, T0 + 99 * DAY]
    path = write(tmp_path / "a.cdxj", zip([url] * 3, days, "AAB", strict=True))
    take(store, path, have_copies=True)
    page = page_of(store, page_id := id_of(store, url))
    assert (page.last_crawl_at, page.last_observed_at) == (days[2], days[2])
    assert states_of(store, [page_id]).digest.tolist() == [0]
    crawl(store, page_id, LATER, digest=5)
    assert counts(store, page_id) == (0, 0)
    crawl(store, page_id, LATER + DAY, digest=6)
    assert counts(store, page_id) == (1, 1)


@pytest.mark.parametrize("have_copies", [False, True])
def test_captures_before_the_last_crawl_are_late_and_change_nothing(store, tmp_path, have_copies):
    page_id = int(register(store, 1)[0])
    crawl(store, page_id, T0 + 5 * DAY, digest=5)
    crawl(store, page_id, T0 + 6 * DAY, digest=6)
    learnt = estimate(store, page_id)
    (url,) = urls(1)
    old = [(url, T0 + day * DAY, "A") for day in (1, 2, 6)]
    path = write(tmp_path / "a.cdxj", old)
    took = take(store, path, have_copies=have_copies)
    assert took == CaptureCounts(content=3, distinct=3, late=3, pages=1)
    assert estimate(store, page_id) == learnt
    write(path, [*old, *((url, T0 + day * DAY, "A") for day in (7, 9))])
    took = take(store, path, have_copies=have_copies)
    assert (took.late, took.taught) == (3, 1)
    assert estimate(store, page_id)[1] > learnt[1]
    assert counts(store, page_id) == (1, 1)
    state = states_of(store, [page_id])
    # own content is compared with own content
    assert state.digest.tolist() == [0 if have_copies else 6]
    assert page_of(store, page_id).last_crawl_at == T0 + 9 * DAY
    if not have_copies:
        assert due_of(store, page_id) == LATER
        assert page_of(store, page_id).last_observed_at == T0 + 6 * DAY
    again = take(store, path, have_copies=have_copies)
    assert (again.late, again.taught) == (5, 0)


@pytest.mark.parametrize("have_copies", [False, True])
def test_an_import_repeated_changes_nothing(store, tmp_path, have_copies):
    path = write(tmp_path / "a.cdxj", drawn())
    take(store, path, have_copies=have_copies)
    ids = sorted(id_of(store, url) for url in urls(7))
    before = states_of(store, ids)
    again = take(store, path, have_copies=have_copies, now=LATER + DAY)
    assert (again.created, again.taught, again.late) == (0, 0, 120)
    same(states_of(store, ids), before)


def test_digests_of_two_algorithms_are_not_compared(store, tmp_path):
    """An archive that goes over to another algorithm shows no change by that."""
    sha_1, sha_256, other = f"sha1:{'A' * 32}", f"sha256:{'a' * 64}", f"sha256:{'b' * 64}"
    both, one = urls(2)
    took = [(both, 0, sha_1), (both, 1, sha_256), (both, 2, other), (both, 3, SAME)]
    took += [(one, 1, sha_256), (one, 2, other), (one, 3, SAME)]
    captures = [(url, T0 + day * DAY, digest) for url, day, digest in took]
    take(store, write(tmp_path / "a.cdxj", captures))
    learnt = estimate(store, id_of(store, both))
    assert learnt == estimate(store, id_of(store, one))
    assert sum(learnt) > 0


def test_pages_whose_pings_announce_changes_learn_nothing(store, tmp_path):
    ids = np.sort(register(store, 2, observability=[1, 2]))
    save(store, ids, n_pings=3, last_ping_at=T0)
    captures = [(url, T0 + day * DAY, "AB"[day]) for url in urls(2) for day in (0, 1)]
    take(store, write(tmp_path / "a.cdxj", captures))
    assert [sum(estimate(store, page_id)) for page_id in ids] == [0, 0]


def test_captures_write_pages_and_states_and_nothing_else(sql_store, tmp_path):
    """No event, entry of the log, incident, history, digest or spent budget."""
    store = sql_store
    store.holds_new = True
    take(store, write(tmp_path / "a.cdxj", drawn()), have_copies=True)
    with store.begin(write=False) as tx:
        filled = [name for name in metadata.tables if tx.scalar(FILLED.format(name))]
    assert sorted(set(filled) - OF_NEW_STORES) == ["hosts", "page_states", "pages"]
    ids = sorted(id_of(store, url) for url in urls(7))
    assert states_of(store, ids).held.tolist() == [0] * 7


def test_a_page_that_waits_for_its_first_crawl_waits_no_longer_with_a_copy(sql_store, tmp_path):
    def waits():
        return [bool(page_of(sql_store, id_of(sql_store, url)).held) for url in urls(2)]

    sql_store.holds_new = True
    register(sql_store, 2)
    path = write(tmp_path / "a.cdxj", [(urls(2)[0], T0, "A")])
    take(sql_store, path)
    assert waits() == [True, True]
    take(sql_store, path, have_copies=True)
    assert waits() == [False, True]


def test_many_parts_and_transactions_are_as_one(tmp_path, monkeypatch):
    path = write(tmp_path / "a.cdxj", drawn())
    whole = MemoryStore(2)
    take(whole, path)
    monkeypatch.setattr(capture_sort, "PART_BYTES", 1_000)
    monkeypatch.setattr(capture_import, "TOGETHER", 2)
    divided = MemoryStore(2)
    teaching = Teaching(divided, rules(), lambda: LATER, have_copies=False)
    steps = list(import_captures({path: "cdxj"}, LATER, teaching))
    keys = [step.after for step in steps if step.after is not None]
    assert len(keys) > 2
    assert keys == sorted(keys)
    shares = [step.share for step in steps]
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1.0, abs=0.5)
    for url in urls(7):
        learnt = [estimate(store, id_of(store, url)) for store in (whole, divided)]
        assert learnt[0] == learnt[1]


def test_an_import_goes_on_after_the_last_committed_page(tmp_path, monkeypatch):
    monkeypatch.setattr(capture_import, "TOGETHER", 2)
    path = write(tmp_path / "a.cdxj", drawn())
    teaching = Teaching(MemoryStore(2), rules(), lambda: LATER, have_copies=False)
    steps = import_captures({path: "cdxj"}, LATER, teaching)
    for step in steps:
        if step.after is not None:
            break
    steps.close()
    took = take(teaching.store, path, after=step.after)
    assert (step.counts.taught, took.taught, took.late) == (2, 5, 0)


def test_a_broken_file_leaves_the_store_as_it_was(store, tmp_path):
    good = write(tmp_path / "a.cdxj", drawn())
    broken = tmp_path / "b.cdxj.gz"
    broken.write_bytes(gzip.compress(good.read_bytes(), mtime=0)[:-9])
    with pytest.raises(UnreadableFile, match="broken or cut off"):
        take(store, good, broken)
    assert id_of(store, urls(1)[0]) == 0


def test_of_captures_of_one_second_the_first_counts(tmp_path):
    url, store = urls(1)[0], MemoryStore(2)
    path = write(tmp_path / "a.cdxj", [(url, T0, "A"), (url, T0, "B"), (url, T0 + DAY, "A")])
    took = take(store, path)
    assert (took.content, took.distinct) == (3, 2)
    assert estimate(store, id_of(store, url)) == (0, 1)  # an unchanged day
