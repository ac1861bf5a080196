"""The policies Recrawl is compared with: evenly timed, within the budget, and as good as theory."""

from dataclasses import replace

import numpy as np
import pytest
from support.sim_cases import world_of

from recrawl_lab.policies.plain import hindsight, matched, uniform, with_true_rates
from recrawl_lab.replay.staleness import staleness
from recrawl_lab.worlds.world import synthetic_world
from service.core.allocation.harmonic import allocate_harmonic
from service.core.costs import costs
from service.core.estimators.gamma import Gamma


def gaps(crawls, page):
    return np.diff(np.sort(crawls.at[crawls.page == page]))


def synthetic(n_pages=1_000, days=60.0, **options):
    return synthetic_world(n_pages, days, rng=np.random.default_rng(5), **options)


def test_uniform_crawls_every_page_at_the_same_even_gap_within_the_budget():
    world = synthetic(50)
    crawls = uniform(world, bandwidth=10.0)
    assert len(crawls.at) == pytest.approx(600, abs=3)
    for page in range(50):
        assert gaps(crawls, page) == pytest.approx(np.full(len(gaps(crawls, page)), 5.0))


def test_uniform_spreads_the_first_crawls_over_one_interval():
    world = synthetic(50)
    crawls = uniform(world, bandwidth=10.0)
    firsts = [crawls.at[crawls.page == page].min() for page in range(50)]
    assert np.histogram(firsts, 5, (0, 5))[0].tolist() == pytest.approx([10] * 5, abs=1)


def test_the_budget_is_divided_anew_when_pages_come_and_go():
    world = world_of([[], []], days=100.0, created=[0.0, 40.0])
    crawls = uniform(world, bandwidth=1.0)
    first = np.sort(crawls.at[crawls.page == 0])
    assert np.diff(first[first < 40]) == pytest.approx(np.ones((first < 40).sum() - 1))
    assert np.diff(first[first > 42]) == pytest.approx(np.full((first > 42).sum() - 1, 2.0))
    assert (crawls.at[crawls.page == 1] > 40).all()
    assert len(crawls.at) == pytest.approx(100, abs=2)


def test_a_deleted_page_is_crawled_in_vain_once_and_then_left_alone():
    world = world_of([[], []], days=100.0, ended=[50.25, 100.0])
    crawls = uniform(world, bandwidth=1.0)
    in_vain = crawls.at[(crawls.page == 0) & (crawls.at >= 50.25)]
    assert len(in_vain) == 1
    survivor = np.sort(crawls.at[(crawls.page == 1) & (crawls.at > 54)])
    assert np.diff(survivor) == pytest.approx(np.ones(len(survivor) - 1))


def test_a_page_crawled_several_times_a_day_is_in_vain_only_once():
    world = world_of([[], []], days=20.0, ended=[10.1, 20.0])
    crawls = uniform(world, bandwidth=40.0)
    assert world.gone(crawls.page, crawls.at).sum() == 1


def test_hindsight_costs_what_its_allocation_promises():
    world = synthetic(2_000, 200.0, complete_share=0.0)
    bandwidth = 0.2 * len(world)
    allocation = allocate_harmonic(world.importance, world.change_rate, world.announced, bandwidth)
    promised = (
        costs(
            world.importance,
            world.change_rate,
            allocation.crawl_rate,
            allocation.crawl_probability,
            world.announced,
            timing="periodic",
        ).harmonic.sum()
        / world.importance.sum()
    )
    measured = staleness(world, hindsight(world, bandwidth))
    assert measured.harmonic == pytest.approx(promised, rel=0.03)


def test_hindsight_crawls_announced_changes_by_credit():
    world = synthetic(200, 100.0, complete_share=1.0)
    bandwidth = 0.3 * float(world.change_rate.sum())
    crawls = hindsight(world, bandwidth)
    allocation = allocate_harmonic(world.importance, world.change_rate, world.announced, bandwidth)
    changes = {(p, t) for p, t in zip(world.changed_page, world.changed_at, strict=True)}
    assert {(p, t) for p, t in zip(*crawls, strict=True)} <= changes
    crawled = np.bincount(crawls.page, minlength=200)
    due = allocation.crawl_probability * np.diff(world.first)
    assert crawled == pytest.approx(np.floor(due + 1e-9))


def test_hindsight_beats_uniform_where_pages_differ_and_ties_where_they_do_not():
    world = synthetic()
    spent = 0.2 * len(world)
    assert (
        staleness(world, hindsight(world, spent)).harmonic
        < 0.7 * staleness(world, uniform(world, spent)).harmonic
    )
    alike = replace(
        world,
        importance=np.ones(1_000),
        change_rate=np.ones(1_000),
        announced=np.zeros(1_000, bool),
    )
    assert staleness(alike, hindsight(alike, spent)).harmonic == pytest.approx(
        staleness(alike, uniform(alike, spent)).harmonic
    )


@pytest.mark.dear
@pytest.mark.parametrize("complete_share", [0.0, 0.3])
def test_who_is_told_of_changes_knows_none_before_it_is_made(complete_share):
    world = synthetic(200, complete_share=complete_share)
    past = world.changed_at <= 30.0
    first = np.concatenate(([0], np.cumsum(np.bincount(world.changed_page[past], minlength=200))))
    halved = replace(
        world, changed_at=world.changed_at[past], first=first, change_rate=np.full(200, np.nan)
    )
    until = {}
    for name, played in (("whole", world), ("half", halved)):
        crawls = with_true_rates(played, 40.0, Gamma())
        early = crawls.at <= 30.0
        until[name] = sorted(zip(crawls.page[early], crawls.at[early], strict=True))
    assert until["whole"] == until["half"]
    assert len(until["whole"]) == pytest.approx(1_200, rel=0.05)


@pytest.mark.dear
def test_who_is_told_of_changes_comes_to_do_as_well_as_hindsight_where_rates_never_change():
    world = synthetic(500, 300.0, complete_share=0.0)
    spent = 0.2 * len(world)
    found = {
        policy.__name__: staleness(world, policy(world, spent, *given), bins=10).harmonic_curve
        for policy, given in ((uniform, ()), (with_true_rates, (Gamma(),)), (hindsight, ()))
    }
    by_rates = found["with_true_rates"][-3:].mean()
    assert by_rates == pytest.approx(found["hindsight"][-3:].mean(), rel=0.02)
    assert found["with_true_rates"].mean() < 0.9 * found["uniform"].mean()


@pytest.mark.dear
def test_what_was_told_long_ago_fades():
    times = np.linspace(0.5, 100.0, 200)
    world = world_of([times, times + 100.0], days=200.0)
    late = {}
    for half_life in (10.0, None):
        crawls = with_true_rates(world, 1.0, Gamma(half_life_days=half_life))
        late[half_life] = np.bincount(crawls.page[crawls.at > 150.0], minlength=2)
    assert late[10.0][0] < 0.6 * late[None][0]


@pytest.mark.dear
@pytest.mark.parametrize("policy", [uniform, hindsight])
def test_a_matched_policy_crawls_as_often_as_it_is_told(policy):
    ended = np.linspace(5, 59, 300)
    world = synthetic(300, complete_share=0.1)
    first = np.concatenate(
        ([0], np.cumsum([(world.changes_of(i) <= ended[i]).sum() for i in range(300)]))
    )
    kept = world.changed_at <= ended[world.changed_page]
    mortal = replace(world, ended=ended, changed_at=world.changed_at[kept], first=first)
    for n_crawls in (700, 3_000):
        assert len(matched(policy, mortal, n_crawls).at) == pytest.approx(n_crawls, rel=0.01)


def test_no_bandwidth_is_no_crawls():
    assert len(matched(uniform, synthetic(20), 0).at) == 0
