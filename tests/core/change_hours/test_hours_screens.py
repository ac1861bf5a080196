"""Screens of URL groups: derivatives of the likelihood, false alarms, and what is conserved."""

import numpy as np
import pytest
from support.hours_cases import burst, cosine, crawled

from service.core.change_hours.evidence import Intervals
from service.core.change_hours.profile import TERMS, Profiles, integrals
from service.core.change_hours.screens import (
    NUMBERS,
    SCREENED,
    Screens,
    believed,
    deviation,
    screened,
)
from service.core.estimators.gamma import gamma_unchanged


def none(n):
    return Screens.of(np.zeros((n, NUMBERS)))


def plain(profiles, intervals, changed, screens=None):
    """Return the screens after crawls without dates."""
    n = len(changed)
    start = none(len(profiles.weight)) if screens is None else screens
    never = np.full(n, np.nan)
    return screened(start, profiles, intervals, changed, np.zeros(n, np.bool_), never)


def log_likelihood(theta, intervals, changed):
    """Return the logarithm of the probability of crawls by a profile."""
    operational = integrals(intervals.start, intervals.end) @ theta
    unchanged = gamma_unchanged(intervals.a, intervals.b, operational)
    return np.log(np.where(changed, 1.0 - unchanged, unchanged)).sum()


def few_crawls(day, n=9, seed=1):
    """Return so few crawls that all count in full, at change rates that are nearly unknown."""
    intervals, changed = crawled(day, n, np.random.default_rng(seed))
    return intervals._replace(a=np.full(n, 2.0), b=np.full(n, 2.0)), changed


@pytest.mark.parametrize("weight", [0.0, 0.6])
def test_a_score_is_the_derivative_of_the_likelihood_at_the_hours_in_force(weight):
    intervals, changed = few_crawls(cosine())
    profiles = believed(cosine(0.5, 0.7).profiles(weight=weight))
    score = plain(profiles, intervals, changed).score[0]
    theta, step = profiles.coefficients[0], 1e-6
    for k, term in enumerate(SCREENED):
        off = step * np.eye(TERMS)[term]
        ends = (log_likelihood(theta + sign * off, intervals, changed) for sign in (1, -1))
        assert score[k] == pytest.approx(np.subtract(*ends) / (2 * step), rel=1e-4, abs=1e-7)


def test_information_is_the_mean_square_of_the_score():
    rng = np.random.default_rng(2)
    intervals, _ = few_crawls(cosine(), 5)
    profiles = believed(cosine(0.5, 0.7).profiles())
    expected = integrals(intervals.start, intervals.end) @ profiles.coefficients[0]
    likely = 1.0 - gamma_unchanged(intervals.a, intervals.b, expected)
    scores = [plain(profiles, intervals, rng.random(5) < likely).score[0] for _ in range(4_000)]
    information = plain(profiles, intervals, np.zeros(5, np.bool_)).information[0]
    np.testing.assert_allclose(np.square(scores).mean(axis=0), information, rtol=0.12)
    assert (np.abs(np.mean(scores, axis=0)) < 4 * np.sqrt(information / 4_000)).all()


def test_screens_add_up_whatever_the_order_of_groups():
    rng = np.random.default_rng(3)
    intervals, changed = crawled(cosine(), 6, rng, hosts=4)
    profiles = Profiles.flat(4)
    whole = plain(profiles, intervals, changed)
    for group in range(4):
        rows = intervals.host == group
        own = Intervals(*(column[rows] for column in intervals))._replace(
            host=np.zeros(6, np.int64)
        )
        alone = plain(profiles.take(slice(1)), own, changed[rows])
        np.testing.assert_allclose(alone.packed()[0], whole.packed()[group])
    again = plain(profiles, intervals, changed, whole)
    np.testing.assert_allclose(again.packed(), 2.0 * whole.packed())


def played(day, profiles, lessons, n=5, seed=4):
    """Return the highest deviation of 300 groups over lessons of n crawls."""
    rng, screens, highest = np.random.default_rng(seed), none(300), np.full(300, -np.inf)
    for _ in range(lessons):
        intervals, changed = crawled(day, n, rng, hosts=300)
        screens = plain(profiles, intervals, changed, screens)
        highest = np.maximum(highest, deviation(screens))
    return highest


def test_groups_on_the_hours_in_force_hardly_ever_deviate_and_others_soon_do():
    day = cosine(0.9, 0.3)
    own = believed(Profiles(np.tile(day.coefficients(), (300, 1)), np.ones(300)))
    assert np.mean(played(day, own, 60) > 0) < 0.06
    assert np.mean(played(cosine(0.0), Profiles.flat(300), 60) > 0) < 0.06
    assert np.mean(played(cosine(0.9, 0.8), own, 60) > 0) > 0.6
    assert np.mean(played(cosine(0.9, 0.8), own, 150) > 0) > 0.95


def test_dates_show_the_hour_too():
    rng = np.random.default_rng(5)
    n = 40
    end = np.floor(100 * rng.random(n)) + 1.0
    group = np.zeros(n, np.int64)
    for hour, deviates in ((np.full(n, 7.5 / 24), True), (rng.random(n), False)):
        shape = np.full(n, 1e6)
        intervals = Intervals(group, end - 1.0, end, shape, shape)
        at = end - 1.0 + hour
        screens = none(1)
        for k in range(0, n, 5):  # few a lesson
            some = slice(k, k + 5)
            part = intervals.take(some), np.ones(5, np.bool_), np.ones(5, np.bool_), at[some]
            screens = screened(screens, Profiles.flat(1), *part)
        assert (deviation(screens)[0] > 0) == deviates
        off = at % 1.0
        waves = [np.cos(2 * np.pi * off).sum(), np.cos(4 * np.pi * off).sum()]
        np.testing.assert_allclose(screens.score[0, :2], waves, rtol=0.1, atol=1.5)


def test_one_revision_of_many_pages_is_no_deviation():
    n = 200
    start, end = np.full(n, 10.2), np.full(n, 10.9)
    intervals = Intervals(np.zeros(n, np.int64), start, end, np.full(n, 9.0), np.full(n, 90.0))
    screens = plain(Profiles.flat(1), intervals, np.ones(n, np.bool_))
    assert np.abs(screens.score).max() < 10.0


def test_hours_are_believed_as_far_as_their_weight():
    half = believed(burst(0.25, 0.5))
    np.testing.assert_allclose(half.harmonics, 0.5 * burst(0.25).harmonics)
    np.testing.assert_array_equal(
        believed(Profiles(burst().coefficients, np.zeros(1))).coefficients, np.eye(TERMS)[:1]
    )


def test_a_screen_takes_32_bytes():
    assert none(3).packed().astype(np.float32).nbytes == 3 * 32
