"""Outages of a site in a replay: they cost crawls, teach nothing and show no copy."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.sim_cases import crawls_of, world_of

from recrawl_lab.replay.playing import CARRIED_DAYS, Due, choose
from recrawl_lab.replay.replay import LocalFleet, replay
from recrawl_lab.replay.staleness import merged, staleness
from recrawl_lab.worlds.outages import NO_OUTAGES, OUTAGE, OUTAGE_EVERY, STATUSES, Outages
from recrawl_lab.worlds.simulated_time import Clock
from recrawl_lab.worlds.world import synthetic_world
from service.core.estimators.gamma import Gamma
from service.epochs.plan import Plan
from service.model.arrays import UNSPECIFIED
from service.model.outcomes import Outcome


def away(*starts, length=1.0):
    return Outages(np.array(starts, float), length)


def test_an_hour_a_week_in_the_mean():
    n = [len(Outages.drawn(700.0, np.random.default_rng(seed))) for seed in range(60)]
    # 100 weeks; the pauses are exponential, so that the count has nearly the deviation 10
    assert np.mean(n) == pytest.approx(700.0 / OUTAGE_EVERY, abs=3 * 10 / np.sqrt(60))
    assert np.std(n) == pytest.approx(10.0, rel=0.35)


@given(seed=st.integers(0, 1000), days=st.floats(0.01, 400.0))
def test_outages_are_apart_and_inside(seed, days):
    start = Outages.drawn(days, np.random.default_rng(seed)).start
    assert (np.diff(start) >= OUTAGE).all()
    assert ((start >= 0) & (start < days)).all()


@given(
    starts=st.lists(st.integers(0, 40), max_size=9, unique=True),
    at=st.lists(st.floats(-1.0, 60.0), max_size=20),
)
def test_a_status_is_that_of_the_outage_around_the_instant(starts, at):
    outages = away(*sorted(starts))

    def around(instant):
        for turn, start in enumerate(sorted(starts)):
            if start <= instant < start + 1.0:
                return STATUSES[turn % len(STATUSES)]
        return UNSPECIFIED

    assert outages.status(np.array(at, float)).tolist() == [around(instant) for instant in at]


def test_a_crawl_in_an_outage_refreshes_no_copy():
    world = replace(world_of([[2.0]]), outages=away(3.0))
    missed, seen = crawls_of((0, 3.5)), crawls_of((0, 4.0))
    assert staleness(world, missed).binary == pytest.approx(0.8)
    assert staleness(world, seen).binary == pytest.approx(0.2)
    assert staleness(world, merged(missed, seen)).binary == pytest.approx(0.2)


def fleet_of(world):
    fleet = LocalFleet(world, Clock(), Plan(Gamma(), bandwidth=1.0), seed=1)
    fleet.discover(np.arange(len(world)))
    return fleet


def states_of(fleet):
    with fleet.store.begin(write=False) as tx:
        return tx.lock_states(np.arange(1, len(fleet.world) + 1))


@pytest.mark.parametrize("turn", range(len(STATUSES)))
def test_the_crawler_reports_the_outage_and_the_page_learns_nothing(turn):
    outages = away(*range(turn + 1))
    world = replace(world_of([[0.2, 8.0]]), outages=outages)
    fleet = fleet_of(world)
    fleet.crawl(crawls_of((0, turn + 0.5)))
    states = states_of(fleet)
    absent = STATUSES[turn] == 404
    assert states.outcome[0] == (Outcome.absent if absent else Outcome.failed)
    assert not states.gone[0]
    assert states.n_observations[0] == states.n_changes[0] == 0
    fleet.crawl(crawls_of((0, turn + 1.5)))
    states = states_of(fleet)
    assert (states.outcome[0], states.n_failures[0]) == (Outcome.content, 0)
    assert (states.n_observations[0], states.n_changes[0]) == (1, 1)


def test_a_deleted_page_is_found_gone_once_the_outage_is_over():
    world = replace(world_of([[], []], ended=[2.0, 10.0]), outages=away(3.0))
    fleet = fleet_of(world)
    took_place = fleet.crawl(crawls_of((0, 3.2), (1, 3.3), (0, 3.7)))
    assert took_place.at.tolist() == [3.2, 3.7, 3.3]
    assert len(states_of(fleet)) == 2
    took_place = fleet.crawl(crawls_of((0, 3.9), (0, 4.5), (0, 4.6), (1, 4.7)))
    # the second crawl of these finds the page gone, and the third does not take place
    assert took_place.at.tolist() == [3.9, 4.5, 4.7]
    assert states_of(fleet).page_id.tolist() == [2]


@pytest.mark.dear
def test_crawls_in_outages_are_paid_and_the_page_is_tried_again():
    world = synthetic_world(100, 40.0, rng=np.random.default_rng(5), complete_share=0.0)
    outages = away(*range(7, 40, 7), length=0.5)
    lost = replace(world, outages=outages)
    crawls = replay(lost, 20.0, Plan(Gamma())).crawls
    missed = outages.during(crawls.at)
    assert missed.sum() > 30
    assert 20.0 * 39 <= len(crawls.at) <= 20.0 * (40 + CARRIED_DAYS)
    for page, at in zip(crawls.page[missed], crawls.at[missed], strict=True):
        if at < 36.0:
            later = crawls.at[(crawls.page == page) & (crawls.at > at)]
            assert later.min() <= at + 2.0, "the retry comes in the next step"


@pytest.mark.dear
def test_crawls_in_outages_do_not_use_up_the_loan():
    """A fleet that lends a week lends it for bursts, not for a tenth of its crawls for ever."""
    world = synthetic_world(100, 100.0, rng=np.random.default_rng(5), complete_share=0.0)
    lost = replace(world, outages=away(*range(7, 100, 7), length=0.5))
    crawls = replay(lost, 20.0, Plan(Gamma())).crawls
    missed, extra = lost.outages.during(crawls.at).sum(), len(crawls.at) - 20.0 * 100
    assert missed > 20.0 * 6
    assert abs(extra) < 20.0 * 2


@pytest.mark.dear
def test_without_an_outage_all_is_as_before():
    world = synthetic_world(60, 30.0, rng=np.random.default_rng(5))
    outside = replace(world, outages=away(1000.0))
    plain, same = (replay(w, 12.0, Plan(Gamma())).crawls for w in (world, outside))
    assert world.outages is NO_OUTAGES
    assert np.array_equal(plain.at, same.at)


@pytest.mark.dear
def test_the_command_plays_the_same_pages_with_outages(recrawl, tmp_path):
    found = []
    for flags in ((), ("--outages",)):
        ended = recrawl(
            *("replay", "--pages", 40, "--days", 30, "--policies", "uniform,recrawl"),
            *("--processes", 1, "--out", "found", *flags),
        )
        assert ended.status == 0, ended.err
        found.append(json.loads((tmp_path / "found" / "results.json").read_text()))
    plain, outages = found
    assert plain["bandwidth"] == outages["bandwidth"]
    assert outages["policies"][0]["n_crawls"] == plain["policies"][0]["n_crawls"]
    assert "answers 404, 503, 429 or nothing, in turn" in json.dumps(outages)
    assert "(--outages)" not in json.dumps(plain)


def test_verdicts_are_not_asked_of_a_site_with_outages(recrawl):
    ended = recrawl("replay", "--freshness", "--outages")
    assert ended.status == 2
    assert "--freshness asks about copies of a site without --outages" in " ".join(
        ended.err.replace("│", " ").split()
    )


def test_a_retry_is_as_late_as_the_crawl_that_failed():
    due = Due(np.array([0, 1]), np.array([5.1, 3.0]), np.array([0.1, 0.1]), np.array([1.0, 3.0]))
    assert choose(due, 5.0, 6.0, 1.0).page.tolist() == [0]
    assert choose(due._replace(late_since=None), 5.0, 6.0, 1.0).page.tolist() == [1]
    assert choose(due, 5.0, 6.0, 2.0).at.min() == 5.0
    assert choose(due, 5.0, 6.0, 1.0).at.tolist() == [5.1], "not before its retry"


def test_the_fleet_counts_the_lateness_of_a_retry_from_the_missed_crawl():
    world = replace(world_of([[]] * 5, days=40.0), outages=away(20.0))
    fleet = fleet_of(world)
    fleet.new_epoch()
    fleet.crawl(crawls_of((0, 20.5)))
    due = fleet.due(40.0)
    retry = due.page.tolist().index(0)
    assert due.at[retry] > 20.5
    assert due.late_since[retry] < 20.5
    others = np.flatnonzero(due.page != 0)
    assert (due.late_since[others] == due.at[others]).all()
