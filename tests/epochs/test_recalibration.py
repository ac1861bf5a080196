"""Recalibration in epochs: forecasts as the crawls met them, kept by the epoch, used by all."""

from datetime import timedelta

import numpy as np
import pytest

from recrawl_lab.policies.lineup import DEFAULT_PLAN
from recrawl_lab.replay.calibration import calibration, later
from recrawl_lab.replay.playing import choose
from recrawl_lab.replay.replay import LocalFleet, replay
from recrawl_lab.worlds.simulated_time import Clock
from recrawl_lab.worlds.world import World
from service.core.recalibration import N_NUMBERS, Recalibration
from service.epochs.recalibration import NO_OUTCOMES, read_outcomes
from service.epochs.urgency import LATE
from service.estimation.rules import fitted_last
from service.estimation.shard_rates import EpochFacts
from service.model.arrays import instant


def clockwork(n_pages, days, every):
    """Return a site whose pages change at even intervals, each at an hour of its own."""
    phase = np.random.default_rng(3).random(n_pages)
    times = [every * (p + np.arange(days / every - 1)) + 0.01 for p in phase]
    return World(
        name="clockwork",
        days=float(days),
        url=tuple(f"https://a.example/d{i % 5}/{i}" for i in range(n_pages)),
        importance=np.ones(n_pages),
        announced=np.zeros(n_pages, np.bool_),
        created=np.zeros(n_pages),
        ended=np.full(n_pages, float(days)),
        changed_at=np.concatenate(times),
        first=np.append(0, np.cumsum([len(t) for t in times])),
        change_rate=np.full(n_pages, 1 / every),
    )


@pytest.mark.dear
def test_pages_that_change_like_clockwork_are_forecast_as_crawls_find_them():
    world = clockwork(40, 90, 1.0)
    found = replay(world, 20.0, DEFAULT_PLAN, seed=1).predicted
    error = calibration(later(found, 45.0)).expected_error
    assert error < 0.05
    raw = 1 - np.exp(-2.0)  # a page with a change a day, after two days
    assert later(found, 45.0).changed.mean() > raw + 0.05


def test_an_epoch_reads_the_forecasts_that_the_crawls_met():
    world, clock = clockwork(30, 30, 3.0), Clock()
    fleet = LocalFleet(world, clock, DEFAULT_PLAN, 1)
    fleet.discover(np.arange(30))
    for day in range(20):
        clock.advance(float(day))
        fleet.new_epoch()
        due = fleet.due(day + 1.0)
        clock.advance(day + 1.0)
        fleet.crawl(choose(due, float(day), day + 1.0, 10.0))
    with fleet.store.begin(write=False) as tx:
        last = tx.epoch_in_force()
        estimator = fitted_last(tx, fleet.plan.estimator, last)
        outcomes = read_outcomes(tx, tx.load_columns(), estimator, last, instant(clock()))
    met, late = fleet.predicted, LATE / timedelta(days=1)
    newest = (met.at > 19.0 - late) & (met.at <= 20.0 - late)
    page, rows = np.unique(met.page[newest], return_index=True)
    told = EpochFacts.of(last).recalibration.forecast(outcomes.probability)
    assert len(outcomes.changed) == len(page) > 2
    np.testing.assert_array_equal(outcomes.changed, met.changed[newest][rows])
    # the state before the last crawl is known nearly, without a change exactly
    np.testing.assert_allclose(told, met.probability[newest][rows], atol=0.06)
    same = ~outcomes.changed
    np.testing.assert_allclose(told[same], met.probability[newest][rows][same], rtol=1e-3)
    assert len(last.certificate.recalibration) == N_NUMBERS
    assert Recalibration.unpacked(last.certificate.recalibration) != Recalibration.none()


def test_the_first_epoch_has_forecast_nothing():
    clock = Clock()
    fleet = LocalFleet(clockwork(5, 10, 1.0), clock, DEFAULT_PLAN, 1)
    fleet.discover(np.arange(5))
    with fleet.store.begin(write=False) as tx:
        pages = tx.load_columns()
        now = instant(clock())
        assert read_outcomes(tx, pages, DEFAULT_PLAN.estimator, None, now) is NO_OUTCOMES
