"""Validators and notes of pages: rows only where present, which go with their page."""

from datetime import timedelta

import numpy as np
from support.store_cases import T0, instants, register

from service.model.arrays import moments
from service.storage import open_store
from service.storage.pages.validators import NO_NOTE, ValidatorChanges


def change(page_id, etag="", date=None, note="", *, resets=True):
    n = len(page_id)
    return ValidatorChanges(
        page_id=np.asarray(page_id, np.int64),
        etag=np.array([etag] * n, object),
        last_modified=instants([date] * n),
        note=np.array([note] * n, object),
        resets=np.full(n, resets),
    )


def save(store, *changes):
    for one in changes:
        with store.begin() as tx:
            tx.lock_states(one.page_id)
            tx.save_validators(one)


def clear(store, page_id):
    pages = np.asarray(page_id, np.int64)
    with store.begin() as tx:
        tx.lock_states(pages)
        tx.clear_validators(pages)


def rows(store, page_id):
    with store.begin(write=False) as tx:
        stored = tx.validators(np.asarray(page_id, np.int64))
    dates = [None if np.isnat(at) else at for at in stored.last_modified]
    return list(zip(stored.page_id.tolist(), stored.etag, dates, stored.note, strict=True))


DATE, AT = T0 - timedelta(days=3), instants([T0 - timedelta(days=3)])[0]


def test_present_values_are_read_by_ascending_page(queue_store):
    a, b, c = sorted(register(queue_store, 3).tolist())
    save(queue_store, change([c], '"c"', note='{"n":"ü"}'), change([a], date=DATE))
    assert rows(queue_store, [c, b, a]) == [(a, "", AT, ""), (c, '"c"', None, '{"n":"ü"}')]


def test_a_reset_replaces_both_validators_and_keeps_the_note(queue_store):
    (a,) = register(queue_store, 1).tolist()
    save(queue_store, change([a], '"1"', DATE, "1"), change([a], '"2"'))
    assert rows(queue_store, [a]) == [(a, '"2"', None, "1")]
    save(queue_store, change([a]))
    assert rows(queue_store, [a]) == [(a, "", None, "1")]


def test_without_a_reset_absent_values_stay(queue_store):
    (a,) = register(queue_store, 1).tolist()
    save(queue_store, change([a], '"1"', DATE, "1"), change([a], '"2"', resets=False))
    assert rows(queue_store, [a]) == [(a, '"2"', AT, "1")]


def test_a_row_without_a_value_is_deleted(queue_store):
    pages = register(queue_store, 3)
    save(queue_store, change(pages, '"1"', note="1"), change(pages[:2]))
    save(queue_store, change(pages[:1], note=NO_NOTE, resets=False))
    save(queue_store, change(pages[2:], note=NO_NOTE))
    assert [page for page, *_ in rows(queue_store, pages)] == [pages[1]]


def test_resets_of_pages_without_a_row_write_none(queue_store):
    pages = register(queue_store, 2)
    save(queue_store, change(pages), change(pages, note=NO_NOTE, resets=False))
    for part in queue_store.parts:
        with part.begin(write=False) as tx:
            assert tx.scalar("SELECT count(*) FROM page_validators") == 0


def test_cleared_pages_keep_their_notes_and_others_their_values(queue_store):
    a, b, c, d = sorted(register(queue_store, 4).tolist())
    clear(queue_store, [a])
    assert rows(queue_store, [a]) == []
    save(queue_store, change([a, c], '"1"', DATE), change([b], '"1"', note="1"))
    clear(queue_store, [a, b, d])
    assert rows(queue_store, [a, b, c, d]) == [(b, "", None, "1"), (c, '"1"', AT, "")]
    clear(queue_store, [])
    clear(queue_store, [b])
    assert rows(queue_store, [b]) == [(b, "", None, "1")]


def test_a_deleted_page_takes_its_row_along(queue_store):
    a, b = register(queue_store, 2).tolist()
    save(queue_store, change([a, b], '"1"'))
    with queue_store.begin() as tx:
        tx.delete_page(a)
    assert [page for page, *_ in rows(queue_store, [a, b])] == [b]


def test_a_304_with_the_same_etag_writes_no_row(postgres_url):
    """An unchanged row keeps its version, so pages that never change cost no vacuum."""
    store = open_store(postgres_url, 2)
    (a,) = register(store, 1).tolist()
    save(store, change([a], '"1"', DATE))
    versions = []
    for _ in range(2):
        with store.begin(write=False) as tx:
            versions += tx.run("SELECT ctid::text FROM page_validators")
        save(store, change([a], '"1"', DATE, resets=False))
    store.close()
    assert versions[0] == versions[1]


def doubts(store, page_id):
    with store.begin(write=False) as tx:
        stored = tx.validators(np.asarray(page_id, np.int64))
    return stored.doubted.tolist(), moments(stored.false_304_at)


def test_a_doubt_lasts_until_the_next_answer_and_a_proof_is_one_of_the_host(queue_store):
    pages = np.sort(register(queue_store, 2))
    save(queue_store, change(pages, '"a"', note="1"))
    assert doubts(queue_store, pages) == ([False, False], [None, None])
    with queue_store.begin() as tx:
        host_id = np.unique(tx.lock_states(pages).host_id)
        tx.doubt_validators(pages[:1])
        tx.set_false_304(host_id, T0)
    assert doubts(queue_store, pages) == ([True, False], [T0, T0])
    save(queue_store, change(pages, '"a"', resets=False))
    assert doubts(queue_store, pages)[0] == [True, False]
    save(queue_store, change(pages, '"a"'))
    assert doubts(queue_store, pages)[0] == [False, False]
    with queue_store.begin() as tx:
        tx.lock_states(pages)
        tx.doubt_validators(pages)
        tx.clear_validators(pages)
        tx.set_false_304(host_id, None)
    assert doubts(queue_store, pages) == ([False, False], [None, None])
