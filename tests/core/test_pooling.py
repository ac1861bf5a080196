"""URL groups as priors: known chains found again, the mode by brute force, limits, invariances."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.special import gammaln

from service.core.checks import InvalidInput
from service.core.estimators.bursty import Bursty
from service.core.estimators.gamma import Gamma, GammaState
from service.core.estimators.lognormal import LogNormal
from service.core.pooling import (
    MIN_WITHIN,
    GroupEvidence,
    Totals,
    UrlGroupPrior,
    fit_url_groups,
    update_group_means,
)
from service.core.prior import (
    DEFAULT_PRIOR,
    MAX_SHAPE,
    START_DISPERSION,
    Prior,
    fit_gamma_prior,
)

MEAN = 0.01


def chain(rng, n_url_groups, n_pages, between_shape, within_shape, days=400.0):
    """GroupEvidence, URL groups and true rates of pages drawn from the model."""
    means = rng.gamma(between_shape, MEAN / between_shape, n_url_groups)
    url_group = rng.integers(0, n_url_groups, n_pages)
    rate = rng.gamma(within_shape, means[url_group] / within_shape)
    watched = rng.exponential(days, n_pages)
    return rng.poisson(rate * watched).astype(float), watched, url_group, rate, means


def fitted(changes, days, url_group, n_url_groups):
    return fit_url_groups(changes, days, url_group, fit_gamma_prior(changes, days), n_url_groups)


@pytest.mark.parametrize(("between_shape", "within_shape"), [(1.0, 6.0), (2.0, 1.5), (4.0, 0.8)])
def test_a_large_corpus_gives_back_the_shapes_it_was_drawn_from(between_shape, within_shape):
    rng = np.random.default_rng(1)
    changes, days, url_group, _, means = chain(rng, 2_000, 40_000, between_shape, within_shape)
    prior = fitted(changes, days, url_group, 2_000)
    assert prior.within_shape == pytest.approx(within_shape, rel=0.2)
    assert prior.between_shape == pytest.approx(between_shape, rel=0.2)
    log_ratio = np.log(prior.url_group_rate / means)[np.bincount(url_group, minlength=2_000) > 15]
    assert np.sqrt(np.mean(log_ratio**2)) < 0.5


def test_a_url_group_s_mean_is_the_mode_of_its_pages_likelihood():
    rng = np.random.default_rng(2)
    changes, days, url_group, _, _ = chain(rng, 60, 3_000, 1.5, 2.0)
    prior = fitted(changes, days, url_group, 60)
    p, g = prior.within_shape, prior.between_shape
    for s in range(60):
        k, t = changes[url_group == s], days[url_group == s]

        def negative(log_m, k=k, t=t):
            m = np.exp(log_m)
            pages = gammaln(p + k) + k * log_m - (p + k) * np.log(p + m * t)
            return -pages.sum() - g * log_m + g * m / (prior.a / prior.b)

        best = minimize_scalar(negative, bounds=(-12, 2), method="bounded")
        assert np.log(prior.url_group_rate[s]) == pytest.approx(best.x, abs=0.02)


def test_url_groups_foresee_their_pages_better_than_the_corpus_does():
    rng = np.random.default_rng(3)
    changes, days, url_group, rate, _ = chain(rng, 300, 6_000, 1.0, 5.0)
    new = np.arange(6_000) % 10 == 0
    days[new] = changes[new] = 0.0
    prior = fitted(changes, days, url_group, 300)
    foreseen = prior.of_pages(url_group[new]).mean
    error = np.log(foreseen / rate[new])
    assert np.mean(error**2) < 0.5 * np.mean(np.log(prior.mean / rate[new]) ** 2)


def test_nothing_observed_leaves_the_corpus_prior():
    prior = fit_url_groups(np.zeros(5), np.zeros(5), np.arange(5), DEFAULT_PRIOR, 8)
    assert (prior.a, prior.b, prior.within_shape) == (0.5, 15.0, 0.5)
    assert prior.between_shape == START_DISPERSION
    np.testing.assert_allclose(prior.of_pages(np.arange(8)).b, 15.0, rtol=1e-7)


def test_one_url_group_is_the_corpus():
    rng = np.random.default_rng(4)
    days = rng.exponential(300.0, 2_000)
    changes = rng.poisson(rng.gamma(0.7, MEAN / 0.7, 2_000) * days)
    corpus = fit_gamma_prior(changes, days)
    prior = fit_url_groups(changes, days, np.full(2_000, 3), corpus, 4)
    assert prior.within_shape == pytest.approx(corpus.a, rel=0.06)
    assert prior.url_group_rate[3] == pytest.approx(corpus.mean, rel=0.04)
    np.testing.assert_allclose(prior.url_group_rate[:3], corpus.mean, rtol=1e-6)


def test_where_url_groups_are_alike_a_page_is_any_page():
    rng = np.random.default_rng(5)
    changes, days, url_group, _, _ = chain(rng, 200, 20_000, 1e6, 0.8)
    corpus = fit_gamma_prior(changes, days)
    prior = fit_url_groups(changes, days, url_group, corpus, 200)
    assert prior.between_shape > 10
    assert prior.within_shape == pytest.approx(corpus.a, rel=0.1)
    assert np.abs(np.log(prior.url_group_rate / corpus.mean)).max() < 0.5


@pytest.mark.parametrize(("between_shape", "within_shape"), [(1.0, 6.0), (4.0, 0.8), (1e6, 1e6)])
def test_wherever_the_search_begins_it_ends_at_the_same_chain(between_shape, within_shape):
    rng = np.random.default_rng(7)
    changes, days, url_group, _, _ = chain(rng, 200, 6_000, between_shape, within_shape)
    corpus = fit_gamma_prior(changes, days)
    cold = fit_url_groups(changes, days, url_group, corpus, 200)
    far = UrlGroupPrior(1.0, 1.0, 0.1, 50.0, rng.gamma(0.3, 1.0, 200).astype(np.float32))
    for near in (cold, far, corpus):
        prior = fit_url_groups(changes, days, url_group, corpus, 200, near)
        assert prior.within_shape == pytest.approx(cold.within_shape, rel=0.005)
        assert prior.between_shape == pytest.approx(cold.between_shape, rel=0.01)
        np.testing.assert_allclose(prior.url_group_rate, cold.url_group_rate, rtol=0.005)


def test_from_the_last_fit_on_it_is_but_a_round_or_two(monkeypatch):
    rng = np.random.default_rng(9)
    changes, days, url_group, rate, _ = chain(rng, 200, 6_000, 1.0, 2.0)
    last = fitted(changes, days, url_group, 200)
    days = days + 1.0
    changes = changes + (rng.random(6_000) < rate)
    rounds, sums = [], GroupEvidence.sums
    monkeypatch.setattr(GroupEvidence, "sums", lambda *given: rounds.append(1) or sums(*given))
    cold = fitted(changes, days, url_group, 200)
    n_cold = len(rounds)
    prior = fit_url_groups(changes, days, url_group, fit_gamma_prior(changes, days), 200, last)
    assert len(rounds) - n_cold <= 2 < n_cold
    np.testing.assert_allclose(prior.url_group_rate, cold.url_group_rate, rtol=0.005)


def test_means_follow_the_evidence_while_the_shapes_stay():
    """The first step is a long one; a few lead where the fit itself would have led."""
    rng = np.random.default_rng(9)
    changes, days, url_group, rate, _ = chain(rng, 200, 6_000, 1.0, 2.0)
    last = fitted(changes, days, url_group, 200)
    news = (url_group == 3) & (days > 0)
    changes, days = changes + np.where(news, 20.0, rng.random(6_000) < rate), days + 1.0
    anew = fitted(changes, days, url_group, 200)
    moved = update_group_means(last, changes, days, url_group)
    assert (moved.within_shape, moved.between_shape, moved.mean) == (
        last.within_shape,
        last.between_shape,
        last.mean,
    )
    assert moved.url_group_rate[3] > 1.5 * last.url_group_rate[3]
    again = moved
    for _ in range(4):
        again = update_group_means(again, changes, days, url_group)
    np.testing.assert_allclose(again.url_group_rate, anew.url_group_rate, rtol=0.05)
    assert last.url_group_rate[3] < moved.url_group_rate[3], "the fit before it is left as it was"


def test_totals_are_alike_while_none_has_moved_by_a_twentieth():
    seen = Totals.of([1.0, 2.0, 0.0, 0.0], [10.0, 20.0, 30.0, 0.0])
    assert seen == (3.0, 3.0, 60.0, 5.0)
    for name, total in seen._asdict().items():
        for factor, alike in ((0.94, False), (0.96, True), (1.04, True), (1.06, False)):
            assert seen.close_to(seen._replace(**{name: factor * total})) is alike, name
    assert Totals(0.0, 0.0, 0.0, 0.0).close_to(Totals.of([], []))
    assert not Totals(0.0, 0.0, 0.0, 0.0).close_to(seen), "the first evidence of all"


def corpus(estimator, rng, n_crawls=8):
    state, url_group = estimator.init(600), rng.integers(0, 30, 600)
    for _ in range(n_crawls):
        state = estimator.update(state, 2.0, rng.random(600) < 0.02 * url_group)
    return state, url_group


@pytest.mark.parametrize("estimator", [Gamma(), Bursty(), LogNormal()])
def test_shapes_are_fitted_again_when_there_is_more_evidence(estimator):
    rng = np.random.default_rng(8)
    state, url_group = corpus(estimator, rng)
    last = estimator.fit(state, url_group, 32)
    last_fit = last.corpus(), last.url_group_rate
    same = estimator.fit(state, url_group, 32, estimator.with_corpus(*last_fit))
    assert same.corpus() == last.corpus()
    np.testing.assert_allclose(same.url_group_rate, last.url_group_rate, rtol=0.01)
    state = estimator.update(state, 2.0, rng.random(600) < 0.02 * url_group)
    more = estimator.fit(state, url_group, 32, last)
    anew = estimator.fit(state, url_group, 32)
    assert more.corpus() == pytest.approx(anew.corpus(), rel=0.01)
    assert more.corpus() != last.corpus()


def test_shapes_are_fitted_again_for_other_url_groups_and_for_another_estimator():
    rng = np.random.default_rng(8)
    state, url_group = corpus(Gamma(), rng)
    last = Gamma().fit(state, url_group, 32)
    moved = Gamma().fit(state, url_group, 64, last)
    assert moved.url_group_rate.size == 64
    np.testing.assert_allclose(moved.url_group_rate[:32], last.url_group_rate, rtol=0.01)
    bursty = Bursty().with_corpus(last.corpus(), last.url_group_rate)
    assert bursty.prior.mean == last.prior.mean
    assert bursty.prior.totals is None, "a dispersion was never fitted"


def test_url_groups_beyond_the_buckets_share_those_below():
    rng = np.random.default_rng(8)
    state, url_group = corpus(Gamma(), rng)
    few = Gamma().fit(state, url_group, 8)
    same = Gamma().fit(state, url_group % 8, 8)
    np.testing.assert_array_equal(few.url_group_rate, same.url_group_rate)
    np.testing.assert_array_equal(
        few.prior.of_pages(url_group).b, few.prior.of_pages(url_group % 8).b
    )


def test_a_page_alone_in_its_url_group_is_not_counted_twice():
    """However long it was watched: the root of g m²/M - (g - p) m - p r, r being its rate."""
    rng = np.random.default_rng(6)
    changes, days, url_group, _, _ = chain(rng, 100, 2_000, 2.0, 2.0)
    corpus = fit_gamma_prior(changes, days)
    for rate in (1e-4, 0.01, 0.1):
        more = np.append(changes, rate * 1e9), np.append(days, 1e9), np.append(url_group, 100)
        prior = fit_url_groups(*more, corpus, 101)
        p, g, mean = prior.within_shape, prior.between_shape, corpus.mean
        limit = (g - p + np.sqrt((g - p) ** 2 + 4 * g * p * rate / mean)) * mean / (2 * g)
        assert prior.url_group_rate[100] == pytest.approx(limit, rel=0.02)


def test_a_live_page_in_an_archive_is_known_by_its_first_changes():
    """Of 2,000 pages of two directories, three change each second day, the others never."""
    url_group, days = np.repeat([0, 1], 1_000), np.full(2_000, 400.0)
    live = np.isin(np.arange(2_000), [0, 1, 1_000])
    prior = fitted(np.where(live, 200.0, 0.0), days, url_group, 2)
    assert prior.within_shape < 0.01
    page = Gamma(prior).of_url_groups(np.zeros(1, int))
    state = page.update(page.init(1), 3.0, True)
    assert page.change_rate(state)[0] > 0.1
    state = page.update(state, 3.0, False)
    assert page.change_rate(state)[0] < 0.3
    assert page.change_rate(page.init(1))[0] == pytest.approx(0.001, rel=0.2)


def test_the_fit_keeps_within_bounds_however_strange_the_corpus():
    url_group = np.repeat(np.arange(50), 2)
    for changes in (np.zeros(100), np.full(100, 1e6), np.where(url_group < 1, 1e6, 0.0)):
        prior = fitted(changes, np.full(100, 10.0), url_group, 50)
        assert MIN_WITHIN <= prior.within_shape <= MAX_SHAPE
        assert 0 < prior.between_shape < np.inf
        assert (prior.url_group_rate > 0).all()
        assert np.isfinite(prior.url_group_rate).all()


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), unit=st.floats(0.01, 100.0))
def test_the_order_of_pages_the_names_of_url_groups_and_the_unit_of_time_say_nothing(seed, unit):
    rng = np.random.default_rng(seed)
    changes, days, url_group, _, _ = chain(rng, 20, 300, 1.0, 2.0)
    corpus = fit_gamma_prior(changes, days)
    prior = fit_url_groups(changes, days, url_group, corpus, 20)
    order, names = rng.permutation(300), rng.permutation(1_000)[:20]
    other = fit_url_groups(
        changes[order],
        days[order] * unit,
        names[url_group[order]],
        Prior(corpus.a, corpus.b * unit),
        1_000,
    )
    np.testing.assert_allclose(other.url_group_rate[names] * unit, prior.url_group_rate, rtol=1e-3)
    assert other.within_shape == pytest.approx(prior.within_shape, rel=1e-3)
    assert other.between_shape == pytest.approx(prior.between_shape, rel=1e-3)


@pytest.mark.parametrize("estimator", [Gamma(), Bursty(), LogNormal()])
def test_an_estimator_of_url_groups_is_that_of_each_page_s_own_prior(estimator):
    prior = UrlGroupPrior(0.5, 15.0, 2.0, 1.0, np.array([0.5, 0.01], np.float32))
    state = estimator.init(3)
    one = type(estimator)(prior)
    own = one.of_url_groups(np.array([0, 1, 0]))
    after = own.update(state, 7.0, np.array([True, True, False]))
    rates = own.change_rate(after)
    for page, (mean, changed) in enumerate([(0.5, True), (0.01, True), (0.5, False)]):
        alone = type(estimator)(Prior(2.0, 2.0 / float(np.float32(mean))))
        expected = alone.change_rate(alone.update(alone.init(), 7.0, changed))
        assert rates[page] == pytest.approx(float(expected), rel=1e-12)


def test_without_url_groups_an_estimator_stays_what_it_is():
    assert Gamma().of_url_groups(np.arange(3)) == Gamma()
    corpus = UrlGroupPrior(0.5, 15.0, 2.0, 1.0, np.array([0.5], np.float32))
    assert Gamma(corpus).change_rate(GammaState(0.0, 0.0)) == pytest.approx(1 / 30)


@pytest.mark.parametrize(
    ("changes", "days", "url_group", "field"),
    [
        ([-1.0], [1.0], [0], "changes"),
        ([1.0], [np.nan], [0], "days"),
        ([1.0, 2.0], [1.0], [0, 0], "days"),
        ([1.0], [1.0], [0, 0], "url_group"),
        ([1.0], [1.0], [-1], "url_group"),
        ([1.0], [1.0], [4], "url_group"),
    ],
)
def test_impossible_evidence_is_refused(changes, days, url_group, field):
    with pytest.raises(InvalidInput, match=field):
        fit_url_groups(changes, days, np.array(url_group), DEFAULT_PRIOR, 4)


def test_the_estimator_of_single_pages_cannot_be_put_down_as_the_corpus():
    prior = UrlGroupPrior(0.5, 15.0, 2.0, 1.0, np.array([0.5], np.float32))
    with pytest.raises(InvalidInput, match="single pages"):
        Gamma(prior).of_url_groups(np.zeros(1, np.int64)).corpus()


@pytest.mark.parametrize("estimator", [Gamma(half_life_days=9.0), Bursty(), LogNormal()])
def test_what_is_fitted_by_url_groups_is_put_down_and_taken_up_again(estimator):
    rng = np.random.default_rng(8)
    state, url_group = estimator.init(300), rng.integers(0, 30, 300)
    for _ in range(5):
        state = estimator.update(state, 2.0, rng.random(300) < 0.02 * url_group)
    fitted = estimator.fit(state, url_group, 32)
    again = estimator.with_corpus(fitted.corpus(), fitted.url_group_rate)
    assert again == fitted
    shown = again.of_url_groups(url_group).change_rate(state)
    np.testing.assert_array_equal(shown, fitted.of_url_groups(url_group).change_rate(state))
    assert np.corrcoef(url_group, fitted.of_url_groups(url_group).prior.mean)[0, 1] > 0.5
