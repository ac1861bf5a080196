"""A22 again: errors are the exact ones, and the claims come out as the numbers say."""

from dataclasses import replace

import numpy as np
import pytest
import scipy
from support.sim_cases import write_trace

from recrawl_lab.errors import InvalidTrace
from recrawl_lab.experiments import a22_history, a22_loop, a22_measured, a22_steps
from recrawl_lab.experiments.base import Setup
from recrawl_lab.experiments.runs import (
    checkpoints,
    estimates,
    poisson_runs,
    relative_error,
    start_at,
)
from service.core.allocation.alternatives import allocate_binary
from service.core.estimators.lln import LLN
from service.core.estimators.mle import MLE
from service.core.estimators.naive import Naive
from service.core.estimators.stochastic import SA, SAM

CHANGE_RATE, CRAWL_RATE = 5.0, 3.0
SMALL = Setup(scale=0.1)


def share_changed(change_rate=CHANGE_RATE, crawl_rate=CRAWL_RATE):
    return change_rate / (change_rate + crawl_rate)


def exact_counting(k, estimate):
    """RMSE of an estimate that depends on the number of changes alone."""
    changes = np.arange(k + 1)
    weight = scipy.stats.binom.pmf(changes, k, share_changed())
    return np.sqrt(weight @ (estimate(changes) / CHANGE_RATE - 1) ** 2)


def exact_stepping(k, eta, beta=None):
    """RMSE of SA or SAM: the second moments of (z_k, z_(k-1), 1), step by step."""
    q, p = share_changed(), CRAWL_RATE
    first = np.array([p, p, 1.0])
    moments = np.outer(first, first)
    for j in range(k):
        step, momentum = (j + 1.0) ** -eta, 0.0
        if beta is not None and j:
            momentum = ((j + 1.0) ** -beta - step) / j**-beta
        after = np.zeros((3, 3))
        for changed, chance in ((1.0, q), (0.0, 1.0 - q)):
            move = np.array(
                [
                    [1 + step * (changed - 1) + momentum, -momentum, step * changed * p],
                    [1, 0, 0],
                    [0, 0, 1],
                ]
            )
            after += chance * move @ moments @ move.T
        moments = after
    second, mean = moments[0, 0], moments[0, 2]
    return np.sqrt(second - 2 * mean * CHANGE_RATE + CHANGE_RATE**2) / CHANGE_RATE


PRIOR = start_at(CRAWL_RATE)
EXACT = [
    (Naive(PRIOR), lambda k: exact_counting(k, lambda c: CRAWL_RATE * c / k)),
    (LLN(prior=PRIOR), lambda k: exact_counting(k, lambda c: CRAWL_RATE * c / (k - c + 1))),
    (SA(0.75, PRIOR), lambda k: exact_stepping(k, 0.75)),
    (SAM(0.75, 0.6, prior=PRIOR), lambda k: exact_stepping(k, 0.75, 0.6)),
]


@pytest.mark.parametrize(("estimator", "exact"), EXACT, ids=lambda x: getattr(x, "name", ""))
def test_errors_over_the_runs_are_the_exact_ones(estimator, exact):
    runs = poisson_runs(np.random.default_rng(4), CHANGE_RATE, CRAWL_RATE, (200, 1500))
    after = np.array([20, 200])
    error = relative_error(estimates(estimator, runs, after), CHANGE_RATE)
    for row, k in enumerate(after):
        assert abs(error.rmse[row] - exact(k)) <= 4 * error.standard_error[row]


def test_the_tabulated_errors_of_the_paper_s_setting_are_the_exact_ones():
    for name, expected in a22_measured.REFERENCE[a22_measured.BALANCED].items():
        exact = next(of for estimator, of in EXACT if estimator.name == name)
        assert exact(100) == pytest.approx(expected[0], rel=0.04)
        assert exact(1000) == pytest.approx(expected[1], rel=0.04)


def test_estimates_from_the_history_are_those_of_the_crawls_so_far():
    runs = poisson_runs(np.random.default_rng(4), CHANGE_RATE, CRAWL_RATE, (30, 3))
    found = estimates(MLE(), runs, np.array([7, 30]))
    history = MLE().init(3)
    for k in range(7):
        history = MLE().update(history, runs.interval[k], runs.changed[k])
    assert found[0] == pytest.approx(MLE().change_rate(history))
    assert found.shape == (2, 3)


def test_checkpoints_are_whole_and_end_with_the_last_crawl():
    after = checkpoints(77, 5, also=(10, 100))
    assert after.dtype == np.int64
    assert after[-1] == 77
    assert 10 in after
    assert 100 not in after


def test_a_simulation_that_is_off_is_not_said_to_agree():
    wrong = a22_measured.BALANCED._replace(change_rate=20.0)
    measured = a22_measured.measure(wrong, SMALL, with_mle=False)
    measured = measured._replace(page=a22_measured.BALANCED)
    checks = a22_measured.as_simulated(measured)
    naive, lln, sa, _ = zip(checks[::2], checks[1::2], strict=True)
    for after_100_and_1000 in (naive, lln, sa):
        assert "differs" in {check.verdict for check in after_100_and_1000}


def test_lln_of_the_paper_s_worst_choice_divides_by_unchanged_crawls_and_k_to_three_quarters():
    steep = a22_steps.SteepLLN(prior=PRIOR)
    state = steep.init()
    for changed in (True, False, True, True):
        state = steep.update(state, 0.4, changed, 3.0)
    assert steep.change_rate(state) == pytest.approx(9.0 / (1 + 4**0.75))


def test_the_optimum_of_figure_6_is_azar_s():
    rate = a22_loop.optimum()
    spread = np.sqrt(a22_loop.IMPORTANCE * a22_loop.CHANGE_RATE)
    level = (a22_loop.BANDWIDTH + a22_loop.CHANGE_RATE.sum()) / spread.sum()
    assert rate == pytest.approx(level * spread - a22_loop.CHANGE_RATE)
    assert (rate > 0).all()


class Knowing(SA):
    """An estimator that is told the truth."""

    def change_rate(self, state):
        return np.tile(a22_loop.CHANGE_RATE, len(state.crawls) // a22_loop.N_PAGES)


def test_who_knows_the_change_rates_is_at_the_optimum_from_the_first_round():
    loop = a22_loop.close_the_loop(Knowing(), np.random.default_rng(1), 2)
    assert loop.off == pytest.approx(0, abs=1e-12)
    assert loop.excess == pytest.approx(0, abs=1e-12)
    assert loop.frequent == pytest.approx(a22_loop.optimum()[0])


def test_crawl_rates_from_estimates_approach_the_optimum(monkeypatch):
    monkeypatch.setattr(a22_loop, "ROUNDS", 6)
    loop = a22_loop.close_the_loop(SA(prior=start_at(1.0)), np.random.default_rng(1), 4)
    assert loop.off[-1] < loop.off[0] / 2
    assert loop.excess[-1] < loop.excess[0] / 2
    assert np.all(loop.excess >= 0)


def test_a_page_that_gets_no_crawls_is_not_learned_of(monkeypatch):
    monkeypatch.setattr(a22_loop, "ROUNDS", 2)
    starved = np.arange(a22_loop.N_PAGES) == 50
    given = []

    def allocate(importance, change_rate, complete, bandwidth):
        allocation = allocate_binary(importance, change_rate, complete, bandwidth)
        given.append(change_rate)
        return replace(allocation, crawl_rate=np.where(starved, 0.0, allocation.crawl_rate))

    monkeypatch.setattr(a22_loop, "allocate_binary", allocate)
    a22_loop.close_the_loop(SA(), np.random.default_rng(1), 1)
    first, second = given[-2:]
    assert (first == second).nonzero()[0].tolist() == [50]


# -- the history of a page


def test_a_made_up_page_is_no_poisson_process_and_says_so():
    page = a22_history.made_up(np.random.default_rng(1))
    gaps = np.diff(page.changed_at, prepend=0.0)
    assert gaps.min() >= 0
    assert page.change_rate == pytest.approx(1.1, rel=0.1)
    assert a22_history.distance_to_exponential(gaps) > a22_history.MAX_DISTANCE
    even = np.random.default_rng(1).exponential(size=4_000)
    assert a22_history.distance_to_exponential(even) < 0.03


def test_crawls_see_the_changes_between_them():
    page = a22_history.EditHistory("page", np.array([1.0, 2.0, 7.0]), 10.0, "day")
    runs = a22_history.crawl(np.random.default_rng(2), page, 0.5, 40)
    at = np.cumsum(runs.interval, axis=0)
    before = at - runs.interval
    for change in page.changed_at:
        assert (((before < change) & (change <= at)) <= runs.changed).all()
    assert runs.changed.sum(axis=0).max() <= 3
    assert runs.interval.shape == (5, 40)


def test_the_busiest_page_of_a_recording_stands_in(tmp_path):
    at = np.sort(np.random.default_rng(3).integers(100_001, 10_000_000, 120))
    changes = "page,t,bulk\n" + "".join(f"/old,{t},0\n" for t in at)
    trace = write_trace(tmp_path, changes=changes)
    result = a22_history.on_a_history(Setup(scale=0.01, trace=trace))
    assert "site.example/old: 119 changes" in result.title
    exponential = result.checks[0]
    assert exponential.claim.startswith("the times between changes are exponential")
    assert exponential.verdict == "agrees"


def test_a_recording_of_pages_that_hardly_change_is_refused(tmp_path):
    with pytest.raises(InvalidTrace, match="changed 2 times; use a recording"):
        a22_history.on_a_history(Setup(trace=write_trace(tmp_path)))
