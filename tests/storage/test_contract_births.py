"""What every store promises of births: which new pages were born, and that all readers know it."""

from dataclasses import replace

import numpy as np
import pytest
import sqlalchemy as sa
from support.store_cases import (
    CERTIFICATE,
    DAY,
    T0,
    page_columns,
    publish,
    register,
    schedule_columns,
    states_of,
)

from service.model.arrays import NO_TIME, instant
from service.storage.pages.contract import Brought

LATER = T0 + 8 * DAY


def known_since(store, at=T0):
    """Register the first pages of a host."""
    store.clock = lambda: at
    return register(store, 2, now=at)


def births_of(store, page_id):
    """Return the births of pages as epochs, verdicts and exports read them."""
    with store.begin(write=False) as tx:
        readers = tx.load_columns(), tx.freshness_columns(np.sort(page_id)), tx.read_pages(0, 99)[0]
        by_reader = [dict(zip(r.page_id.tolist(), r.born_at, strict=True)) for r in readers]
        pages = [tx.page(int(one)).born_at for one in page_id]
    found = [instant(at) if at else NO_TIME for at in pages]
    for born_at in by_reader:
        np.testing.assert_array_equal([born_at[one] for one in page_id.tolist()], found)
    return pages


def test_a_page_is_born_if_its_host_has_been_known_for_a_week(store):
    first = known_since(store)
    with store.begin() as tx:
        early = tx.register(page_columns(["https://example.org/early"]), T0 + DAY).page_id
    store.clock = lambda: LATER
    with store.begin() as tx:
        late = tx.register(page_columns(["https://example.org/late"]), LATER).page_id
        other = tx.register(page_columns(["https://other.example/"]), LATER).page_id
    found = births_of(store, np.concatenate([first, early, late, other]))
    assert found == [None, None, None, LATER, None]
    with store.begin() as tx:  # known meanwhile, so that nothing changes
        again = tx.register(page_columns(["https://example.org/late"]), LATER + DAY)
    assert not again.created.any()
    assert births_of(store, late) == [LATER]


def test_pages_bring_their_births_along(store):
    ids = known_since(store)
    urls = ["https://example.org/a", "https://example.org/b"]
    born_at = np.array([instant(T0 - DAY), NO_TIME])
    brought = Brought(states_of(store, ids), np.full(2, NO_TIME), born_at)
    with store.begin() as tx:
        page_id = tx.register(page_columns(urls), LATER, brought).page_id
    assert births_of(store, page_id) == [T0 - DAY, None]


def test_hosts_of_an_older_release_have_been_known_for_long(sql_store):
    known_since(sql_store)
    with sql_store.engine.begin() as connection:
        connection.execute(sa.text("UPDATE hosts SET known_at = NULL"))
    with sql_store.begin() as tx:
        page_id = tx.register(page_columns(["https://example.org/late"]), T0 + DAY).page_id
    assert births_of(sql_store, page_id) == [T0 + DAY]


@pytest.mark.parametrize("numbers", [(), (1.0, 1e22, 0.5)])
def test_an_epoch_keeps_its_evidence_of_ages(store, numbers):
    certificate = replace(CERTIFICATE, age_evidence=numbers)
    epoch = publish(store, schedule_columns(np.sort(register(store))), certificate=certificate)
    with store.begin(write=False) as tx:
        assert tx.epoch(epoch).certificate == certificate
