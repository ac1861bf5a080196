"""GF08 again: its estimates are the plain likeliest ones, its fits fit, its claims are computed."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import brentq
from support.sim_cases import write_trace

from recrawl_lab.errors import InvalidTrace
from recrawl_lab.experiments import gf08_corpus, gf08_initial, gf08_new, gf08_pages, gf08_prior
from recrawl_lab.experiments.base import Setup
from recrawl_lab.experiments.imaginary import ImaginaryIntervals
from recrawl_lab.experiments.plain import ALWAYS, NEITHER, NO_TIME, plain_likelihood
from service.core.prior import Prior

SMALL = Setup(scale=0.1)


# -- estimates and crawls


def test_estimates_solve_the_paper_s_equation_2_or_take_its_substitutes():
    interval = np.array([[2.0, 3.0, 5.0], [7.0, 4.0, 1.0], [1.0, 6.0, 2.0]])
    changed = np.array([[True, False, True], [False, False, True], [True, False, True]])
    found = plain_likelihood(interval, changed)
    root = brentq(lambda x: 2 / np.expm1(2 * x) + 1 / np.expm1(x) - 7.0, 1e-3, 10)
    assert found.change_rate == pytest.approx([root, 1 / 13, 1.0])
    assert found.edge.tolist() == [NEITHER, NO_TIME, ALWAYS]


def test_pages_are_crawled_after_their_share_of_the_estimate():
    rng = np.random.default_rng(1)
    first = np.array([10.0, 40.0])
    paths = gf08_pages.follow(rng, np.array([0.1, 0.02]), first, 6, share=0.8)
    assert paths.interval[0] == pytest.approx(first)
    assert paths.interval[1:] == pytest.approx(0.8 * paths.period[:-1])
    last = plain_likelihood(paths.interval, paths.changed)
    assert paths.period[-1] == pytest.approx(1 / last.change_rate)


def test_watching_a_page_for_25_changes_gives_its_rate_to_a_fifth():
    truth = np.full(4000, 0.02)
    found = gf08_pages.watched(np.random.default_rng(1), truth)
    error = np.log(found.change_rate / truth)
    assert error.std() == pytest.approx(25**-0.5, rel=0.15)
    assert abs(np.median(error)) < 0.05
    assert (found.edge == NEITHER).all()


def test_a_page_that_always_changed_counts_as_changing_once_an_interval():
    found = gf08_pages.watched(np.random.default_rng(1), np.array([5.0]))
    assert found.edge.tolist() == [ALWAYS]
    assert found.change_rate == pytest.approx(1 / gf08_pages.WATCH_INTERVAL)


def test_the_corpus_may_be_a_recording(tmp_path):
    changes = "page,t,bulk\n" + "".join(f"/old,{t},0\n" for t in range(200_000, 800_000, 100_000))
    trace = write_trace(tmp_path, changes=changes)
    rates = gf08_pages.corpus(Setup(trace=trace), np.random.default_rng(1), 3)
    assert rates == pytest.approx([6 / (9_900_000 / 3600)] * 3)


def test_a_recording_without_busy_pages_is_refused(tmp_path):
    with pytest.raises(InvalidTrace, match="no page has 5 changes"):
        gf08_pages.corpus(Setup(trace=write_trace(tmp_path)), np.random.default_rng(1), 3)


# -- the two numbers


def test_the_distribution_of_imaginary_intervals_is_its_density_integrated():
    intervals = ImaginaryIntervals(changed=30.0, unchanged=12.0)

    def density(x):
        return -np.expm1(-30.0 * x) * np.exp(-12.0 * x)

    total, _ = quad(density, 0, np.inf)
    for x in (0.01, 0.05, 0.3):
        part, _ = quad(density, 0, x)
        assert gf08_prior.cumulative(intervals, np.array([x])) == pytest.approx(part / total)


def test_a_corpus_made_of_imaginary_intervals_is_recovered_by_least_squares():
    """The density is a difference of exponentials: a sum of two, at rates u and u + c."""
    rng = np.random.default_rng(1)
    quiet, changed = 200.0, 600.0
    rates = rng.exponential(1 / quiet, 20_000) + rng.exponential(1 / (quiet + changed), 20_000)
    found = gf08_prior.nearest_intervals(rates)
    assert found.unchanged == pytest.approx(quiet, rel=0.05)
    assert gf08_prior.distance(lambda x: gf08_prior.cumulative(found, x), rates) < 0.005


def test_least_squares_is_nearer_than_the_likeliest_intervals():
    (_, likeliest, *_), (_, nearest, *_) = (
        (row[0], row[3]) for row in gf08_prior.two_intervals(SMALL).tables[0].rows[:2]
    )
    assert nearest <= likeliest


def test_the_gamma_prior_of_watched_pages_is_that_of_their_rates():
    truth = np.random.default_rng(1).gamma(2.0, 0.01, 20_000)
    sample = gf08_pages.watched(np.random.default_rng(2), truth).change_rate
    prior = gf08_corpus.gamma_prior(sample)
    assert prior.a == pytest.approx(2.0, rel=0.1)
    assert prior.mean == pytest.approx(0.02, rel=0.1)


# -- the figures


def test_figure_4_has_a_best_first_interval_inside():
    result = gf08_initial.initial_interval(SMALL)
    every = [row[1] for row in result.tables[0].rows]
    assert 2.0 <= result.tables[0].rows[int(np.argmin(every))][0] <= 14.0


def test_figure_7_a_gamma_prior_beats_first_intervals_without_one():
    result = gf08_new.new_pages(Setup(scale=0.5))
    rows = {row[0]: np.array(row[1:]) for row in result.tables[0].rows}
    without = [row for name, row in rows.items() if name.startswith("no prior")]
    assert (rows["gamma"] < np.min(without, axis=0)).all()
    assert rows["imaginary intervals"][-1] < rows["imaginary intervals"][0] / 3


def test_the_estimates_of_new_pages_start_at_the_prior():
    no_crawls = np.empty((0, 2)), np.empty((0, 2), bool)
    gamma = gf08_new.with_gamma(Prior(2.0, 100.0))
    assert gamma(*no_crawls).change_rate == pytest.approx([0.02, 0.02])
    intervals = ImaginaryIntervals(changed=30.0, unchanged=12.0)
    imaginary = gf08_new.with_intervals(intervals)
    assert imaginary(*no_crawls).change_rate == pytest.approx([intervals.change_rate] * 2)
