"""What siblings have shown: an example by hand, a loop over pages, and what must not matter."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.core.checks import InvalidInput
from service.core.siblings import AGES, FINEST, OWN_WEIGHT, corpus_ratios, siblings

SHARED = 0.4


def observed_ratio(*columns):
    return siblings(*columns).observed_ratio(SHARED)


def bin_of(age):
    return min(int(2 * np.log2(max(age, FINEST) / FINEST)), AGES - 1)


def by_hand(url_group, age, interval, change_rate):
    """The same, page by page and sibling by sibling."""
    factors = []
    for j in range(len(url_group)):
        if np.isnan(age[j]) or age[j] * change_rate[j] == 0:
            factors.append(1.0)
            continue
        found = expected = OWN_WEIGHT * change_rate[j] * age[j]
        for i in range(len(url_group)):
            if i == j or url_group[i] != url_group[j] or np.isnan(age[i]) or interval[i] == 0:
                continue
            middle, asked = bin_of(age[i] + abs(interval[i]) / 2), bin_of(age[j])
            counts = 1.0 if middle < asked else 0.5 if middle == asked else 0.0
            found += counts * (interval[i] > 0)
            expected += counts * (1 - np.exp(-change_rate[i] * abs(interval[i])))
        factors.append(1 - SHARED + SHARED * found / expected)
    return factors


@st.composite
def corpora(draw):
    n = draw(st.integers(1, 12))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    age = rng.exponential(10.0, n)
    age[rng.random(n) < 0.2] = np.nan
    interval = rng.exponential(10.0, n) * rng.choice([-1, 0, 1], n)
    rate = rng.gamma(0.5, 0.1, n) * (rng.random(n) < 0.9)
    return rng.choice([3, 7, 1_000_000], n), age, interval, rate


@given(corpora())
def test_all_pages_at_once_are_as_one_by_one(corpus):
    np.testing.assert_allclose(observed_ratio(*corpus), by_hand(*corpus), rtol=1e-9)


@given(corpora())
def test_the_changes_of_all_pages_by_age_are_as_one_by_one(corpus):
    _, ages, interval, rate = corpus
    found, expected = np.zeros(AGES), np.zeros(AGES)
    for age, length, each in zip(ages, interval, rate, strict=True):
        if not np.isnan(age) and length != 0:
            middle = bin_of(age + abs(length) / 2)
            counts = 1.0 * (np.arange(AGES) > middle) + 0.5 * (np.arange(AGES) == middle)
            found += counts * (length > 0)
            expected += counts * (1 - np.exp(-each * abs(length)))
    by_age = siblings(*corpus).by_age()
    np.testing.assert_allclose(by_age, [found, expected], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(corpus_ratios(*by_age), (found + 1) / (expected + 1), rtol=1e-9)


@given(corpora(), st.integers(0, 2**32 - 1))
def test_the_order_of_pages_and_the_numbers_of_url_groups_do_not_matter(corpus, seed):
    url_group, age, interval, rate = corpus
    order = np.random.default_rng(seed).permutation(len(url_group))
    renamed = np.select([url_group == 3, url_group == 7], [12, 0], 5)
    shuffled = observed_ratio(renamed[order], age[order], interval[order], rate[order])
    np.testing.assert_allclose(shuffled, observed_ratio(*corpus)[order], rtol=1e-12)


@given(corpora())
def test_who_has_no_siblings_goes_by_its_rate(corpus):
    _, age, interval, rate = corpus
    alone = observed_ratio(np.arange(len(age)), age, interval, rate)
    np.testing.assert_allclose(alone, 1.0, rtol=1e-12)


@given(corpora())
def test_no_page_waits_for_ever(corpus):
    assert (observed_ratio(*corpus) >= 1 - SHARED - 1e-12).all()


@settings(max_examples=20)
@given(st.integers(0, 2**32 - 1))
def test_a_change_found_brings_siblings_forward_and_its_absence_lets_them_wait(seed):
    rng = np.random.default_rng(seed)
    age, interval = np.append(rng.uniform(8, 20, 9), 1.0), np.full(10, -4.0)
    quiet = observed_ratio(np.zeros(10, int), age, interval, 0.02)
    interval[-1] = 4.0
    found = observed_ratio(np.zeros(10, int), age, interval, 0.02)
    assert (quiet[:-1] < 1).all()
    assert (found[:-1] > 1).all()
    assert found[-1] == pytest.approx(1.0)  # crawled after its own change


def test_where_siblings_change_as_their_rates_say_nothing_is_moved_on_average():
    rng = np.random.default_rng(4)
    n, rate = 400_000, 0.02
    url_group = rng.integers(0, n // 20, n)
    age, length = rng.exponential(10.0, n), rng.exponential(10.0, n)
    changed = rng.random(n) < -np.expm1(-rate * length)
    factor = observed_ratio(url_group, age, np.where(changed, length, -length), rate)
    due = np.average(factor, weights=age)  # the changes expected, as a share of those by the rate
    assert due == pytest.approx(1.0, abs=0.01)
    assert factor.std() > 0.05


def test_changes_that_come_together_are_expected_where_they_happen():
    """In a world made of bursts, the factor tells where pages have changed and where not."""
    rng = np.random.default_rng(9)
    n_url_groups, size, rate, share = 20_000, 20, 0.01, 0.5
    url_group = np.repeat(np.arange(n_url_groups), size)
    n = len(url_group)
    age, length = rng.uniform(1, 20, n), rng.uniform(5, 20, n)
    # per URL group one burst of the last 40 days that each page takes part in with this chance
    burst = rng.uniform(0, 40, n_url_groups)[url_group]
    part = (rng.random(n) < share) & (rng.random(n_url_groups) < 40 * rate / share)[url_group]
    changed = part & (burst > age) & (burst < age + length)
    factor = observed_ratio(url_group, age, np.where(changed, length, -length), rate)
    stale = part & (burst < age)
    strong, weak = factor > 2, factor < 0.9
    assert stale[strong].mean() > 4 * stale[weak].mean()
    expected = -np.expm1(-rate * age * factor)
    plain = -np.expm1(-rate * age)
    assert np.mean((expected - stale) ** 2) < 0.97 * np.mean((plain - stale) ** 2)


def test_nobody_at_all():
    nothing = np.zeros(0)
    assert observed_ratio(np.zeros(0, np.int32), nothing, nothing, nothing).shape == (0,)


@pytest.mark.parametrize(
    ("name", "age", "interval", "rate"),
    [
        ("age", [np.inf, 1.0], [1.0, 1.0], [0.1, 0.1]),
        ("age", [1.0], [1.0, 1.0], [0.1, 0.1]),
        ("interval", [1.0, 1.0], [1.0, -np.inf], [0.1, 0.1]),
        ("change_rate", [1.0, 1.0], [1.0, 1.0], [0.1, -0.1]),
    ],
)
def test_what_lies_outside_of_the_domain_is_refused_by_name(name, age, interval, rate):
    with pytest.raises(InvalidInput) as refused:
        observed_ratio(np.zeros(2, int), age, interval, rate)
    assert refused.value.name == name


@given(corpora())
def test_without_a_share_nothing_is_moved(corpus):
    np.testing.assert_array_equal(siblings(*corpus).observed_ratio(0.0), 1.0)


@given(corpora(), st.floats(0.2, 5.0))
def test_a_calibration_scales_what_is_expected_of_siblings(corpus, calibration):
    plain, scaled = siblings(*corpus), siblings(*corpus, calibration)
    np.testing.assert_allclose(scaled.expected, calibration * plain.expected)
    np.testing.assert_allclose(scaled.n_expected, calibration * plain.n_expected)
    np.testing.assert_array_equal(scaled.n_changed, plain.n_changed)


@given(corpora())
def test_what_siblings_showed_within_an_interval_is_as_one_by_one(corpus):
    url_group, age, interval, rate = corpus
    last = siblings(*corpus).within_last_intervals(np.ones(len(age), bool))
    known = np.flatnonzero((interval != 0) & ~np.isnan(age))
    assert last.row.tolist() == known.tolist()
    for j, ratio in zip(known, last.ratio, strict=True):
        length = abs(interval[j])
        own = OWN_WEIGHT * rate[j] * length
        found = expected = 0.0
        for i in known:
            if i == j or url_group[i] != url_group[j]:
                continue
            middle = bin_of(age[i] + abs(interval[i]) / 2)
            start, end = bin_of(age[j] + length), bin_of(age[j])
            counts = (middle < start) + (middle == start) / 2 - (middle < end) - (middle == end) / 2
            found += counts * (interval[i] > 0)
            expected += counts * (1 - np.exp(-rate[i] * abs(interval[i])))
        if found + expected > 1e-9:
            wanted = (own + found) / (own + expected) if own else 1.0
            assert ratio == pytest.approx(wanted, rel=1e-6)
