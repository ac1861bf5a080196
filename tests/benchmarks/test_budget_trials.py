"""Trials of the budget: their worlds, and the figures of a game."""

import json

import numpy as np
import pytest
from scipy.special import exp1

from benchmarks.budget.__main__ import main
from benchmarks.budget.game import Game, TrialFleet, figures, part_of
from benchmarks.budget.optimum import least_staleness
from benchmarks.budget.sites import lines_of
from benchmarks.budget.trials import CAP, TRIALS, junk, quiet
from recrawl_lab.policies.lineup import suitable_step
from recrawl_lab.replay.gated import Gate, Played
from recrawl_lab.replay.replay import LocalFleet
from recrawl_lab.replay.staleness import Crawls, staleness
from recrawl_lab.worlds.simulated_time import Clock, day_of
from recrawl_lab.worlds.world import synthetic_world


@pytest.mark.parametrize("name", TRIALS)
def test_a_trial_is_drawn_by_its_seed(name):
    one, again, other = (TRIALS[name](40, seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.world.changed_at, again.world.changed_at)
    assert not np.array_equal(one.world.change_rate, other.world.change_rate)
    assert one.budget(0.5) > 0


def test_pages_of_trial_c1_time_out_for_good():
    trial = TRIALS["c1"](200, 1)
    page = np.arange(200)
    lost = trial.status(page, np.full(200, 41.0)) == 0
    assert 0.2 < lost.mean() < 0.4
    assert (trial.watched == ~lost).all()
    assert (trial.status(page, np.full(200, 39.0)) == -1).all()


def test_junk_shows_one_content_and_may_be_left_waiting():
    trial = junk(20, 1, 100)
    clock = Clock()
    fleet = TrialFleet(trial, clock, 1, Gate(budget=trial.budget))
    digests = fleet.digests(np.arange(120), np.zeros(120, np.int64))
    assert len(set(digests.tolist())) == 21
    fleet.register(np.arange(20))
    fleet.register(np.arange(20, 120))
    waits = ~np.isfinite(fleet.pages().due)
    assert 80 <= waits[20:].sum() < 100
    assert not waits[:20].any()


def of_days(by_day, n=20):
    """Return the figures of a game with some crawls on each day."""
    trial = quiet(n, 1, float(len(by_day)))
    at = np.repeat(np.arange(len(by_day)), by_day) + 0.5
    crawls = Crawls(np.arange(len(at)) % n, at)
    none = np.zeros(len(at), np.bool_)
    return figures(Game(trial, Played(crawls, none, none, none, ~none)))


def test_figures_of_days_and_weeks():
    even = of_days([4] * 14)  # 20 pages have 4 crawls a day
    assert (even["day_0"], even["used"], even["worst_day"], even["worst_week"]) == (1, 1, 0, 0)
    uneven = of_days([4] * 7 + [8, 6] + [4] * 5)
    assert uneven["worst_day"] == pytest.approx(0.75), "8 of 4, less one crawl"
    assert uneven["days_of_loan"] == pytest.approx(1.5)
    assert uneven["most_in_a_day"] == 2
    assert uneven["worst_week"] == pytest.approx(34 / 28 - 1)


def test_the_staleness_of_a_part_is_that_of_its_pages():
    trial = quiet(30, 3, 10.0)
    rng = np.random.default_rng(1)
    crawls = Crawls(rng.integers(0, 30, 200), 10 * rng.random(200))
    which = np.arange(30) % 3 == 0
    of_part, of_rest = (
        staleness(*part_of(trial.world, crawls, w)).harmonic for w in (which, ~which)
    )
    whole = staleness(trial.world, crawls).harmonic
    assert (10 * of_part + 20 * of_rest) / 30 == pytest.approx(whole)


def test_no_other_rates_of_the_same_budget_are_less_stale():
    rng = np.random.default_rng(1)
    change_rate = rng.lognormal(-1, 1.2, 50)
    least = least_staleness(change_rate, 10.0).sum()
    for _ in range(20):
        rate = rng.dirichlet(np.ones(50)) * 10.0
        x = change_rate / rate
        assert least < (np.euler_gamma + np.log(x) + exp1(x) - 1 - np.expm1(-x) / x).sum()


@pytest.mark.dear
def test_a_loan_is_compared_with_the_same_site_without_a_gate():
    world = synthetic_world(40, 12.0, rng=np.random.default_rng(2), complete_share=0.0)
    hard, lent = lines_of(world, {"rate": 0.2, "seed": 1}, [0.0, 3.0])
    assert hard["before"] == lent["before"] > 0
    assert hard["ratio"] == pytest.approx(hard["staleness"] / hard["before"])
    assert hard["days_of_loan"] <= 1 / 8 + 1e-9, "a crawl that a day before had left"
    assert hard["used"] == pytest.approx(1.0, abs=0.03)


@pytest.mark.slow
def test_the_command_plays_a_trial_and_writes_how_its_days_kept_the_budget(
    monkeypatch, tmp_path, capsys
):
    written = tmp_path / "out" / "budget.json"
    words = ["budget", "d", "--pages", "40", "--seeds", "1", "--json", str(written)]
    monkeypatch.setattr("sys.argv", words)
    main()
    (line,) = json.loads(written.read_text("utf-8"))
    assert (line["name"], line["loan"]) == ("d", 0.0)
    assert line["of_cap"] <= 1 + 1 / (CAP * 40 / 800)
    assert line["worst_day"] <= 0.01
    assert line["day_0"] == pytest.approx(1.0)
    assert "worst_week" in capsys.readouterr().out


@pytest.mark.dear
def test_a_comparison_may_have_equal_epochs_although_a_host_has_change_hours(monkeypatch):
    world = synthetic_world(40, 4.0, rng=np.random.default_rng(2), complete_share=0.0)
    at: list[float] = []

    def finds_hours(fleet):
        at.append(day_of(fleet.clock()))
        fleet._has_hours = True

    monkeypatch.setattr(LocalFleet, "_look_at_hours", finds_hours)
    for hours, every in ((12.0, 0.5), (None, 0.5 * suitable_step(world, 0.2 * world.mean_pages))):
        at.clear()
        list(lines_of(world, {"rate": 0.2, "seed": 1}, [0.0], hours))
        n = round(4.0 / every)
        assert at == pytest.approx([k * every for k in range(n)] * 2, abs=1e-6)
