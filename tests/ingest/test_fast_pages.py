"""Hosts that are crawled minute by minute: outages make no page gone, deletions do at once."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.ingest_cases import rules
from support.store_cases import T0, crawl_columns, publish, register, schedule_columns

from recrawl_lab.memory.store import MemoryStore
from service.ingest.doubts import end_incident
from service.ingest.recent_digests import RecentDigests
from service.ingest.record import record
from service.leases.due import due_at
from service.model.arrays import instant, moment

pytestmark = pytest.mark.dear

N = 100
MINUTE, STEP = np.timedelta64(1, "m"), np.timedelta64(10, "s")
START = instant(T0) + np.timedelta64(1, "D")
UNIFORM = np.full(N, 4.0)
SECTION = np.where(np.arange(N) < 30, 2.0, 30.0)
"""Minutes between crawls: those of a section, and those of the other pages."""
RARE_OTHERS = np.where(np.arange(N) < 30, 2.0, 1_440.0)
STEEP = np.geomspace(1.0, 240.0, N)


class World:
    """A host whose pages are crawled when they are due, from steady state on."""

    def __init__(self, every, seed=0):
        self.store, self.recent, self.rules = MemoryStore(2), RecentDigests(), rules(seed=seed)
        self.page_id = np.sort(register(self.store, N))
        publish(self.store, schedule_columns(self.page_id, crawl_rate=1_440.0 / every))
        self.gone = np.full(N, np.nan)
        """Minute in which each page was found gone for the first time."""
        wait = (np.random.default_rng(seed).random(N) * every * 60e6).astype("m8[us]")
        for ago in (2 * every, every):
            self.crawl(np.arange(N), START + wait - (ago * 60e6).astype("m8[us]"), np.zeros(N))
        self.due, self.now = START + wait, START

    def crawl(self, page, at, absent):
        order = np.lexsort((page, at))
        page, at, absent = page[order], at[order], absent[order].astype(bool)
        shown = {
            "status": np.where(absent, 404, 200).astype(np.int16),
            "digest": np.where(absent, 0, 1_000 + page),
        }
        ids = self.page_id[page]
        with self.store.begin() as tx:
            crawls = crawl_columns(ids, at, **shown)
            states = record(tx, crawls, self.rules, recent=self.recent).states
        gone = states.gone[states.page_id.searchsorted(ids)] & np.isnan(self.gone[page])
        self.gone[page[gone]] = (at[gone] - START) / MINUTE
        return order

    def run(self, minutes, absent):
        """Crawl until a minute; `absent(page, minute)` has the answers."""
        now, end = self.now, START + minutes * MINUTE
        while now < end:
            now += STEP
            page = np.flatnonzero(self.due < now)
            if len(page):
                at = self.due[page]
                self.crawl(page, at, absent(page, (at - START) / MINUTE))
                with self.store.begin(write=False) as tx:
                    self.due[page] = due_at(tx.due_columns(self.page_id[page]))
        self.now = now
        return self.gone


WORLDS = {"uniform": UNIFORM, "section": SECTION, "rare others": RARE_OTHERS, "steep": STEEP}


@pytest.mark.parametrize("every", WORLDS.values(), ids=WORLDS)
@pytest.mark.parametrize("minutes", [10, 60])
def test_an_outage_makes_no_page_gone(every, minutes):
    gone = World(every).run(minutes + 5, lambda _, at: at < minutes)
    assert np.isnan(gone).all()


@settings(max_examples=10)
@given(st.sampled_from([SECTION, STEEP]), st.integers(1, 70), st.integers(0, 99))
def test_an_outage_some_time_after_the_deletion_of_a_page(every, begins, seed):
    deleted = 99

    def absent(page, at):
        return (page == deleted) | (at >= begins) & (at < begins + 8)

    gone = World(every, seed).run(begins + 12, absent)
    # the hour that the deletion has opened may end between two looks of some pages
    assert np.count_nonzero(~np.isnan(np.delete(gone, deleted))) <= 4


@pytest.mark.parametrize("every", [UNIFORM, SECTION, RARE_OTHERS], ids=list(WORLDS)[:3])
@pytest.mark.parametrize("n", [1, 10])
def test_pages_that_were_deleted_are_gone_at_their_second_look(every, n):
    gone = World(every).run(12, lambda page, _: page < n)
    assert np.nanmax(gone) <= 2.2 * every[0]
    assert np.count_nonzero(~np.isnan(gone)) == n


def test_a_section_that_was_deleted_waits_for_content_of_another_page():
    gone = World(SECTION).run(12, lambda page, _: page < 30)
    assert np.isnan(gone).tolist() == [False] * 30 + [True] * 70
    assert np.nanmax(gone) <= 8


def test_absences_are_confirmed_after_an_operator_has_ended_the_incident():
    world = World(SECTION)
    assert np.isnan(world.run(20, lambda page, _: page >= 0)).all()
    with world.store.begin() as tx:
        (host_id,) = np.unique(tx.lock_states(world.page_id).host_id).tolist()
        assert end_incident(tx, host_id, moment(world.now))[0]
    gone = world.run(30, lambda page, _: page >= 0)
    assert not np.isnan(gone[:30]).any()
    assert np.nanmax(gone[:30]) <= 26


@pytest.mark.parametrize("every", [60.0, SECTION * 10], ids=["uniform", "section"])
def test_a_host_that_was_deleted_is_gone_after_a_day(every):
    gone = World(np.full(N, 1.0) * every).run(28 * 60, lambda page, _: page >= 0)
    assert np.nanmin(gone) >= 24 * 60
    assert np.nanmax(gone) <= 27 * 60 + 30
