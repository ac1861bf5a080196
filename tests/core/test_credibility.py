"""Sections as priors: known chains found again, the mode by brute force, limits, invariances."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.special import gammaln

from service.core import DEFAULT_PRIOR, InvalidInput, Prior, fit_gamma_prior
from service.core.credibility import (
    START_BETWEEN,
    Evidence,
    SectionPrior,
    Totals,
    fit_sections,
    follow_sections,
)
from service.core.estimators import (
    Bursty,
    Gamma,
    GammaState,
    LogNormal,
    corpus_of,
    fit_corpus,
    of_sections,
    section_rate_of,
    with_corpus,
)
from service.core.prior import MAX_SHAPE, MIN_SHAPE

MEAN = 0.01


def chain(rng, n_sections, n_pages, between, within, days=400.0):
    """Evidence, sections and true rates of pages drawn from the model."""
    means = rng.gamma(between, MEAN / between, n_sections)
    section = rng.integers(0, n_sections, n_pages)
    rate = rng.gamma(within, means[section] / within)
    watched = rng.exponential(days, n_pages)
    return rng.poisson(rate * watched).astype(float), watched, section, rate, means


def fitted(changes, days, section, n_sections):
    return fit_sections(changes, days, section, fit_gamma_prior(changes, days), n_sections)


@pytest.mark.parametrize(("between", "within"), [(1.0, 6.0), (2.0, 1.5), (4.0, 0.8)])
def test_a_large_corpus_gives_back_the_shapes_it_was_drawn_from(between, within):
    rng = np.random.default_rng(1)
    changes, days, section, _, means = chain(rng, 2_000, 40_000, between, within)
    prior = fitted(changes, days, section, 2_000)
    assert prior.within == pytest.approx(within, rel=0.2)
    assert prior.between == pytest.approx(between, rel=0.2)
    log_ratio = np.log(prior.section_rate / means)[np.bincount(section, minlength=2_000) > 15]
    assert np.sqrt(np.mean(log_ratio**2)) < 0.5


def test_a_section_s_mean_is_the_mode_of_its_pages_likelihood():
    rng = np.random.default_rng(2)
    changes, days, section, _, _ = chain(rng, 60, 3_000, 1.5, 2.0)
    prior = fitted(changes, days, section, 60)
    p, g = prior.within, prior.between
    for s in range(60):
        k, t = changes[section == s], days[section == s]

        def negative(log_m, k=k, t=t):
            m = np.exp(log_m)
            pages = gammaln(p + k) + k * log_m - (p + k) * np.log(p + m * t)
            return -pages.sum() - g * log_m + g * m / (prior.a / prior.b)

        best = minimize_scalar(negative, bounds=(-12, 2), method="bounded")
        assert np.log(prior.section_rate[s]) == pytest.approx(best.x, abs=0.02)


def test_sections_foresee_their_pages_better_than_the_corpus_does():
    rng = np.random.default_rng(3)
    changes, days, section, rate, _ = chain(rng, 300, 6_000, 1.0, 5.0)
    new = np.arange(6_000) % 10 == 0
    days[new] = changes[new] = 0.0
    prior = fitted(changes, days, section, 300)
    foreseen = prior.of(section[new]).mean
    error = np.log(foreseen / rate[new])
    assert np.mean(error**2) < 0.5 * np.mean(np.log(prior.mean / rate[new]) ** 2)


def test_nothing_observed_leaves_the_corpus_prior():
    prior = fit_sections(np.zeros(5), np.zeros(5), np.arange(5), DEFAULT_PRIOR, 8)
    assert (prior.a, prior.b, prior.within) == (0.5, 15.0, 0.5)
    assert prior.between == START_BETWEEN
    np.testing.assert_allclose(prior.of(np.arange(8)).b, 15.0, rtol=1e-7)


def test_one_section_is_the_corpus():
    rng = np.random.default_rng(4)
    days = rng.exponential(300.0, 2_000)
    changes = rng.poisson(rng.gamma(0.7, MEAN / 0.7, 2_000) * days)
    corpus = fit_gamma_prior(changes, days)
    prior = fit_sections(changes, days, np.full(2_000, 3), corpus, 4)
    assert prior.within == pytest.approx(corpus.a, rel=0.06)
    assert prior.section_rate[3] == pytest.approx(corpus.mean, rel=0.04)
    np.testing.assert_allclose(prior.section_rate[:3], corpus.mean, rtol=1e-6)


def test_where_sections_are_alike_a_page_is_any_page():
    rng = np.random.default_rng(5)
    changes, days, section, _, _ = chain(rng, 200, 20_000, 1e6, 0.8)
    corpus = fit_gamma_prior(changes, days)
    prior = fit_sections(changes, days, section, corpus, 200)
    assert prior.between > 10
    assert prior.within == pytest.approx(corpus.a, rel=0.1)
    assert np.abs(np.log(prior.section_rate / corpus.mean)).max() < 0.5


@pytest.mark.parametrize(("between", "within"), [(1.0, 6.0), (4.0, 0.8), (1e6, 1e6)])
def test_wherever_the_search_begins_it_ends_at_the_same_chain(between, within):
    rng = np.random.default_rng(7)
    changes, days, section, _, _ = chain(rng, 200, 6_000, between, within)
    corpus = fit_gamma_prior(changes, days)
    cold = fit_sections(changes, days, section, corpus, 200)
    far = SectionPrior(1.0, 1.0, 0.1, 50.0, rng.gamma(0.3, 1.0, 200).astype(np.float32))
    for near in (cold, far, corpus):
        prior = fit_sections(changes, days, section, corpus, 200, near)
        assert prior.within == pytest.approx(cold.within, rel=0.005)
        assert prior.between == pytest.approx(cold.between, rel=0.01)
        np.testing.assert_allclose(prior.section_rate, cold.section_rate, rtol=0.005)


def test_from_the_last_fit_on_it_is_but_a_round_or_two(monkeypatch):
    rng = np.random.default_rng(9)
    changes, days, section, rate, _ = chain(rng, 200, 6_000, 1.0, 2.0)
    last = fitted(changes, days, section, 200)
    days = days + 1.0
    changes = changes + (rng.random(6_000) < rate)
    rounds, sums = [], Evidence.sums
    monkeypatch.setattr(Evidence, "sums", lambda *given: rounds.append(1) or sums(*given))
    cold = fitted(changes, days, section, 200)
    n_cold = len(rounds)
    prior = fit_sections(changes, days, section, fit_gamma_prior(changes, days), 200, last)
    assert len(rounds) - n_cold <= 2 < n_cold
    np.testing.assert_allclose(prior.section_rate, cold.section_rate, rtol=0.005)


def test_means_follow_the_evidence_while_the_shapes_stay():
    """The first step is a long one; a few lead where the fit itself would have led."""
    rng = np.random.default_rng(9)
    changes, days, section, rate, _ = chain(rng, 200, 6_000, 1.0, 2.0)
    last = fitted(changes, days, section, 200)
    news = (section == 3) & (days > 0)
    changes, days = changes + np.where(news, 20.0, rng.random(6_000) < rate), days + 1.0
    anew = fitted(changes, days, section, 200)
    moved = follow_sections(last, changes, days, section)
    assert (moved.within, moved.between, moved.mean) == (last.within, last.between, last.mean)
    assert moved.section_rate[3] > 1.5 * last.section_rate[3]
    again = moved
    for _ in range(4):
        again = follow_sections(again, changes, days, section)
    np.testing.assert_allclose(again.section_rate, anew.section_rate, rtol=0.05)
    assert last.section_rate[3] < moved.section_rate[3], "the fit before it is left as it was"


def test_totals_are_alike_while_none_has_moved_by_a_twentieth():
    seen = Totals.of([1.0, 2.0, 0.0, 0.0], [10.0, 20.0, 30.0, 0.0])
    assert seen == (3.0, 3.0, 60.0, 5.0)
    for name, total in seen._asdict().items():
        for factor, alike in ((0.94, False), (0.96, True), (1.04, True), (1.06, False)):
            assert seen.like(seen._replace(**{name: factor * total})) is alike, name
    assert Totals(0.0, 0.0, 0.0, 0.0).like(Totals.of([], []))
    assert not Totals(0.0, 0.0, 0.0, 0.0).like(seen), "the first evidence of all"


def corpus(estimator, rng, n_crawls=8):
    state, section = estimator.init(600), rng.integers(0, 30, 600)
    for _ in range(n_crawls):
        state = estimator.update(state, 2.0, rng.random(600) < 0.02 * section)
    return state, section


@pytest.mark.parametrize("estimator", [Gamma(), Bursty(), LogNormal()])
def test_shapes_are_fitted_again_when_there_is_more_evidence(estimator):
    rng = np.random.default_rng(8)
    state, section = corpus(estimator, rng)
    last = fit_corpus(estimator, state, section, 32)
    told = corpus_of(last), section_rate_of(last)
    same = fit_corpus(estimator, state, section, 32, with_corpus(estimator, *told))
    assert corpus_of(same) == corpus_of(last)
    np.testing.assert_allclose(section_rate_of(same), section_rate_of(last), rtol=0.01)
    state = estimator.update(state, 2.0, rng.random(600) < 0.02 * section)
    more = fit_corpus(estimator, state, section, 32, last)
    anew = fit_corpus(estimator, state, section, 32)
    assert corpus_of(more) == pytest.approx(corpus_of(anew), rel=0.01)
    assert corpus_of(more) != corpus_of(last)


def test_shapes_are_fitted_again_for_other_sections_and_for_another_estimator():
    rng = np.random.default_rng(8)
    state, section = corpus(Gamma(), rng)
    last = fit_corpus(Gamma(), state, section, 32)
    moved = fit_corpus(Gamma(), state, section, 64, last)
    assert section_rate_of(moved).size == 64
    np.testing.assert_allclose(section_rate_of(moved)[:32], section_rate_of(last), rtol=0.01)
    bursty = with_corpus(Bursty(), corpus_of(last), section_rate_of(last))
    assert bursty.prior.mean == last.prior.mean
    assert bursty.prior.seen is None, "a steadiness was never fitted"


def test_sections_beyond_the_buckets_share_those_below():
    rng = np.random.default_rng(8)
    state, section = corpus(Gamma(), rng)
    few = fit_corpus(Gamma(), state, section, 8)
    same = fit_corpus(Gamma(), state, section % 8, 8)
    np.testing.assert_array_equal(section_rate_of(few), section_rate_of(same))
    np.testing.assert_array_equal(few.prior.of(section).b, few.prior.of(section % 8).b)


def test_a_page_alone_in_its_section_is_not_counted_twice():
    """However long it was watched: the root of g m²/M - (g - p) m - p r, r being its rate."""
    rng = np.random.default_rng(6)
    changes, days, section, _, _ = chain(rng, 100, 2_000, 2.0, 2.0)
    corpus = fit_gamma_prior(changes, days)
    for rate in (1e-4, 0.01, 0.1):
        more = np.append(changes, rate * 1e9), np.append(days, 1e9), np.append(section, 100)
        prior = fit_sections(*more, corpus, 101)
        p, g, mean = prior.within, prior.between, corpus.mean
        limit = (g - p + np.sqrt((g - p) ** 2 + 4 * g * p * rate / mean)) * mean / (2 * g)
        assert prior.section_rate[100] == pytest.approx(limit, rel=0.02)


def test_the_fit_keeps_within_bounds_however_strange_the_corpus():
    section = np.repeat(np.arange(50), 2)
    for changes in (np.zeros(100), np.full(100, 1e6), np.where(section < 1, 1e6, 0.0)):
        prior = fitted(changes, np.full(100, 10.0), section, 50)
        assert MIN_SHAPE <= prior.within <= MAX_SHAPE
        assert 0 < prior.between < np.inf
        assert (prior.section_rate > 0).all()
        assert np.isfinite(prior.section_rate).all()


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), unit=st.floats(0.01, 100.0))
def test_the_order_of_pages_the_names_of_sections_and_the_unit_of_time_say_nothing(seed, unit):
    rng = np.random.default_rng(seed)
    changes, days, section, _, _ = chain(rng, 20, 300, 1.0, 2.0)
    corpus = fit_gamma_prior(changes, days)
    prior = fit_sections(changes, days, section, corpus, 20)
    order, names = rng.permutation(300), rng.permutation(1_000)[:20]
    other = fit_sections(
        changes[order], days[order] * unit, names[section[order]],
        Prior(corpus.a, corpus.b * unit), 1_000,
    )  # fmt: skip
    np.testing.assert_allclose(other.section_rate[names] * unit, prior.section_rate, rtol=1e-3)
    assert other.within == pytest.approx(prior.within, rel=1e-3)
    assert other.between == pytest.approx(prior.between, rel=1e-3)


@pytest.mark.parametrize("estimator", [Gamma(), Bursty(), LogNormal()])
def test_an_estimator_of_sections_is_that_of_each_page_s_own_prior(estimator):
    prior = SectionPrior(0.5, 15.0, 2.0, 1.0, np.array([0.5, 0.01], np.float32))
    state = estimator.init(3)
    one = type(estimator)(prior)
    own = of_sections(one, np.array([0, 1, 0]))
    after = own.update(state, 7.0, np.array([True, True, False]))
    rates = own.change_rate(after)
    for page, (mean, changed) in enumerate([(0.5, True), (0.01, True), (0.5, False)]):
        alone = type(estimator)(Prior(2.0, 2.0 / float(np.float32(mean))))
        expected = alone.change_rate(alone.update(alone.init(), 7.0, changed))
        assert rates[page] == pytest.approx(float(expected), rel=1e-12)


def test_without_sections_an_estimator_stays_what_it_is():
    assert of_sections(Gamma(), np.arange(3)) == Gamma()
    corpus = SectionPrior(0.5, 15.0, 2.0, 1.0, np.array([0.5], np.float32))
    assert Gamma(corpus).change_rate(GammaState(0.0, 0.0)) == pytest.approx(1 / 30)


@pytest.mark.parametrize(
    ("changes", "days", "section", "field"),
    [
        ([-1.0], [1.0], [0], "changes"),
        ([1.0], [np.nan], [0], "days"),
        ([1.0, 2.0], [1.0], [0, 0], "days"),
        ([1.0], [1.0], [0, 0], "section"),
        ([1.0], [1.0], [-1], "section"),
        ([1.0], [1.0], [4], "section"),
    ],
)
def test_impossible_evidence_is_refused(changes, days, section, field):
    with pytest.raises(InvalidInput, match=field):
        fit_sections(changes, days, np.array(section), DEFAULT_PRIOR, 4)


def test_the_estimator_of_single_pages_cannot_be_put_down_as_the_corpus():
    prior = SectionPrior(0.5, 15.0, 2.0, 1.0, np.array([0.5], np.float32))
    with pytest.raises(InvalidInput, match="single pages"):
        corpus_of(of_sections(Gamma(prior), np.zeros(1, np.int64)))


@pytest.mark.parametrize("estimator", [Gamma(half_life_days=9.0), Bursty(), LogNormal()])
def test_what_is_fitted_by_sections_is_put_down_and_taken_up_again(estimator):
    rng = np.random.default_rng(8)
    state, section = estimator.init(300), rng.integers(0, 30, 300)
    for _ in range(5):
        state = estimator.update(state, 2.0, rng.random(300) < 0.02 * section)
    fitted = fit_corpus(estimator, state, section, 32)
    again = with_corpus(estimator, corpus_of(fitted), section_rate_of(fitted))
    assert again == fitted
    shown = of_sections(again, section).change_rate(state)
    np.testing.assert_array_equal(shown, of_sections(fitted, section).change_rate(state))
    assert np.corrcoef(section, of_sections(fitted, section).prior.mean)[0, 1] > 0.5
