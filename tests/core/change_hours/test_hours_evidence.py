"""Evidence of change hours: the score of the likelihood, tempering, fading, dates, storage."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import approx_fprime
from support.hours_cases import random_evidence

import service.core.change_hours.evidence as module
from service.core.change_hours.evidence import (
    BINS,
    BULK,
    COLUMNS,
    HALF_LIFE_DAYS,
    PAIRS,
    ROWS,
    SURE,
    WIDTH,
    HourEvidence,
    Intervals,
    days_in_bins,
    faded,
    learn,
    learn_dates,
    packed,
    shows_hours,
    unpacked,
)
from service.core.change_hours.profile import TERMS, Profiles, integrals
from service.core.checks import InvalidInput


def matrix(evidence, host=0):
    square = np.zeros((TERMS, TERMS))
    square[ROWS, COLUMNS] = square[COLUMNS, ROWS] = evidence.information[host]
    return square


def some_intervals(rng, n=7, hosts=1):
    host = np.sort(rng.integers(0, hosts, n))
    start = 20_000.0 + 30.0 * rng.random(n)
    end = start + rng.uniform(0.1, 3.0, n)
    return Intervals(host, start, end, rng.uniform(0.4, 5.0, n), rng.uniform(0.5, 20.0, n))


def some_profiles(rng, hosts=1):
    coefficients = rng.normal(0.0, 0.1, (hosts, TERMS))
    coefficients[:, 0] += 1.0
    return Profiles(coefficients, np.ones(hosts))


def log_likelihood(theta, intervals, changed):
    """Of the results of crawls, with the change rate integrated out."""
    operational = integrals(intervals.start, intervals.end) @ theta
    unchanged = (intervals.b / (intervals.b + operational)) ** intervals.a
    return np.log(np.where(changed, 1.0 - unchanged, unchanged)).sum()


def test_the_evidence_is_the_score_of_the_likelihood():
    rng = np.random.default_rng(1)
    intervals, profiles = some_intervals(rng), some_profiles(rng)
    changed = np.array([True, False, False, True, True, False, True])
    evidence = learn(HourEvidence.none(1), profiles, intervals, changed)
    theta = profiles.coefficients[0]
    gradient = approx_fprime(theta, log_likelihood, 1e-7, intervals, changed)
    score = evidence.score[0] - matrix(evidence) @ theta
    np.testing.assert_allclose(score, gradient, atol=1e-5)
    assert np.abs(gradient).max() > 0.1


def test_the_information_is_the_expected_square_of_the_score():
    rng = np.random.default_rng(2)
    profiles = some_profiles(rng)
    theta = profiles.coefficients[0]
    for _ in range(5):
        one = some_intervals(rng, 1)
        total = np.zeros((TERMS, TERMS))
        for changed in (True, False):
            probability = np.exp(log_likelihood(theta, one, changed))
            evidence = learn(HourEvidence.none(1), profiles, one, [changed])
            score = evidence.score[0] - matrix(evidence) @ theta
            total += probability * np.outer(score, score)
        np.testing.assert_allclose(matrix(evidence), total, rtol=1e-9, atol=1e-14)


def test_a_crawl_shows_most_where_it_expects_1_6_changes():
    """x²/(e^x - 1) is at most 0.6476, at x = 1.5936."""
    x = np.linspace(0.1, 8.0, 7901)
    n = len(x)
    intervals = Intervals(np.arange(n), np.zeros(n), np.ones(n), np.full(n, 1e9), 1e9 / x)
    evidence = learn(HourEvidence.none(n), Profiles.flat(n), intervals, np.zeros(n, bool))
    worth = evidence.information[:, 0]
    assert x[worth.argmax()] == pytest.approx(1.5936, abs=1e-3)
    assert worth.max() == pytest.approx(0.6476, abs=1e-4)
    at = np.searchsorted(x, [4.0, 8.0 - 1e-9])
    np.testing.assert_allclose(worth[at], [0.30, 0.02], atol=0.005)


@given(st.integers(1, 14), st.integers(0, 2**32 - 1))
@settings(max_examples=30)
def test_whole_days_show_nothing_about_the_hour(days, seed):
    rng = np.random.default_rng(seed)
    intervals = some_intervals(rng)
    intervals = intervals._replace(end=intervals.start + days)
    evidence = learn(HourEvidence.none(1), Profiles.flat(1), intervals, rng.random(7) < 0.5)
    np.testing.assert_allclose(evidence.score[:, 1:], 0.0, atol=1e-8)
    np.testing.assert_allclose(matrix(evidence)[1:], 0.0, atol=1e-8)
    assert matrix(evidence)[0, 0] > 0


@pytest.mark.parametrize("block", [1, 3, 64])
def test_hosts_are_learnt_at_once_as_one_by_one(monkeypatch, block):
    rng = np.random.default_rng(3)
    intervals, profiles = some_intervals(rng, 100, hosts=9), some_profiles(rng, 9)
    changed = rng.random(100) < 0.4
    dates = np.where(changed, intervals.start, np.nan)
    before = random_evidence(rng, 9, np.ones(9))
    monkeypatch.setattr(module, "BLOCK", block)
    crawls = learn(before, profiles, intervals, changed)
    dated = learn_dates(before, profiles, intervals, dates)
    monkeypatch.undo()
    for host in range(9):
        own = np.flatnonzero(intervals.host == host)
        part = Intervals(*(column[own] for column in intervals))._replace(host=np.zeros(len(own)))
        part = part._replace(host=np.zeros(len(own), int))
        row = np.array([host])
        alone = learn(before.take(row), profiles.take(row), part, changed[own])
        alone_dated = learn_dates(before.take(row), profiles.take(row), part, dates[own])
        for one, all_ in ((alone, crawls), (alone_dated, dated)):
            for name in one._fields:
                expected = getattr(one, name)[0]
                np.testing.assert_allclose(getattr(all_, name)[host], expected, rtol=1e-12)


@pytest.mark.parametrize("block", [3, 64, 1 << 13])
def test_sums_over_hosts_are_those_of_crawl_by_crawl(monkeypatch, block):
    """f D² v v' and D v (f D L + y) of each crawl, for hosts with one crawl to forty."""
    rng = np.random.default_rng(8)
    host = np.repeat(np.arange(12), [1, 1, 0, 7, 7, 40, 2, 7, 1, 3, 40, 5])
    intervals = some_intervals(rng, len(host))._replace(host=host)
    profiles, changed = some_profiles(rng, 12), rng.random(len(host)) < 0.4
    before = HourEvidence.none(12)
    score, information = np.zeros((12, TERMS)), np.zeros((12, TERMS, TERMS))
    _, share = module._tempered(
        before,
        host,
        changed * (intervals.b / (intervals.b + intervals.end - intervals.start)) ** intervals.a,
    )
    for h, start, end, a, b, y in zip(*intervals, changed, strict=True):
        v = integrals(np.array([start]), np.array([end]))[0]
        length = v @ profiles.coefficients[h]
        rate, odds = a / (b + length), 1.0 / ((1.0 + length / b) ** a - 1.0)
        information[h] += share[h] * odds * rate**2 * np.outer(v, v)
        score[h] += share[h] * rate * (odds * rate * length + (odds if y else -1.0)) * v
    monkeypatch.setattr(module, "BLOCK", block)
    learnt = learn(before, profiles, intervals, changed)
    np.testing.assert_allclose(learnt.score, score, rtol=1e-12, atol=1e-12)
    wanted = information[:, ROWS, COLUMNS]
    np.testing.assert_allclose(learnt.information, wanted, rtol=1e-12, atol=1e-12)


def test_evidence_before_is_left_as_it_was():
    rng = np.random.default_rng(4)
    intervals, profiles = some_intervals(rng), some_profiles(rng)
    before = random_evidence(rng, 1, np.ones(1))
    for column in (*before, *intervals, *profiles):
        column.flags.writeable = False
    copy = HourEvidence(*(column.copy() for column in before))
    learn(before, profiles, intervals, np.ones(7, bool))
    learn_dates(before, profiles, intervals, intervals.end)
    faded(before, 3.0)
    for left, right in zip(before, copy, strict=True):
        np.testing.assert_array_equal(left, right)


def test_columns_need_not_be_contiguous():
    rng = np.random.default_rng(4)
    intervals, profiles = some_intervals(rng, 20, hosts=2), some_profiles(rng, 2)
    changed = rng.random(20) < 0.5
    strided = Intervals(*(np.repeat(column, 2)[::2] for column in intervals))
    one = learn(HourEvidence.none(2), profiles, intervals, changed)
    other = learn(HourEvidence.none(2), profiles, strided, np.repeat(changed, 2)[::2])
    np.testing.assert_array_equal(one.information, other.information)


def test_no_crawls_are_no_evidence():
    none = Intervals(np.zeros(0, int), *np.zeros((4, 0)))
    for evidence in (
        learn(HourEvidence.none(2), Profiles.flat(2), none, np.zeros(0, bool)),
        learn_dates(HourEvidence.none(2), Profiles.flat(2), none, np.zeros(0)),
    ):
        assert not any(column.any() for column in evidence)


def test_of_forty_pages_that_change_at_once_as_many_count_as_hold_ten_unexpected_changes():
    one = Intervals(np.zeros(1, int), *np.array([[0.3], [0.9], [2.0], [4.0]]))
    forty = Intervals(*(np.repeat(column, 40) for column in one))
    single = learn(HourEvidence.none(1), Profiles.flat(1), one, [True])
    bulk = learn(HourEvidence.none(1), Profiles.flat(1), forty, np.ones(40, bool))
    unexpected = (4.0 / 4.6) ** 2
    # the sums of some harmonics are 0
    np.testing.assert_allclose(bulk.score, BULK / unexpected * single.score, rtol=1e-7, atol=1e-12)
    wanted = BULK / unexpected * single.information
    np.testing.assert_allclose(bulk.information, wanted, rtol=1e-7, atol=1e-12)
    np.testing.assert_allclose(bulk.changes, [40.0 * unexpected])
    dated = learn_dates(HourEvidence.none(1), Profiles.flat(1), forty, forty.end)
    np.testing.assert_allclose(dated.dated.sum(), BULK)
    unchanged = learn(HourEvidence.none(1), Profiles.flat(1), forty, np.zeros(40, bool))
    assert unchanged.changes.tolist() == [0.0]
    wanted = 40 * single.information
    np.testing.assert_allclose(unchanged.information, wanted, rtol=1e-7, atol=1e-12)


def test_pages_that_always_change_do_not_hide_the_others():
    rng = np.random.default_rng(9)
    n = 200
    certain = Intervals(np.zeros(n, int), rng.random(n), np.full(n, 3.0), *np.full((2, n), 1e6))
    certain = certain._replace(b=np.full(n, 1e5))
    one = Intervals(np.zeros(1, int), *np.array([[0.3], [0.9], [2.0], [4.0]]))
    both = Intervals(*map(np.append, one, certain))
    alone = learn(HourEvidence.none(1), Profiles.flat(1), one, [False])
    among = learn(HourEvidence.none(1), Profiles.flat(1), both, [False] + n * [True])
    np.testing.assert_allclose(among.information, alone.information, atol=1e-4)
    assert among.changes[0] < 1e-6


def test_where_an_interval_shows_no_hours_a_change_is_likely_at_any_hour():
    rng = np.random.default_rng(4)
    intervals = some_intervals(rng, n=2_000)
    intervals = intervals._replace(a=intervals.a * 20.0, b=intervals.b * 4.0)
    hours = np.linspace(0.0, 1.0, 500)[:, None]
    bursts = np.floor(intervals.end - hours) - np.floor(intervals.start - hours)
    unchanged = ((intervals.b / (intervals.b + bursts)) ** intervals.a).max(axis=0)
    shows = shows_hours(intervals)
    assert unchanged[~shows].max() < np.sqrt(SURE)
    assert 0.2 < shows.mean() < 0.8
    assert shows[unchanged == 1.0].all(), "an interval within a day"


@pytest.mark.parametrize("calls", [1, 2, 8])
def test_changes_of_a_day_are_counted_alike_however_often_they_come(calls):
    evidence = HourEvidence.none(1)
    n = 48 // calls
    intervals = Intervals(np.zeros(n, int), *np.tile([[0.3], [0.9], [2.0], [4.0]], n))
    for _ in range(20 * calls):
        evidence = faded(evidence, 1.0 / calls)
        evidence = learn(evidence, Profiles.flat(1), intervals, np.ones(n, bool))
    assert evidence.changes[0] == pytest.approx(48.0 * (4.0 / 4.6) ** 2, rel=1e-6)


@given(st.floats(0, 400), st.floats(0, 400))
def test_evidence_fades_by_half_in_its_half_life(days, more):
    before = random_evidence(np.random.default_rng(5), 2, np.ones(2))
    before = before._replace(dated=np.ones((2, BINS)), exposure=np.ones((2, BINS)))
    at_once, in_steps = faded(before, days + more), faded(faded(before, days), [more, more])
    for name in ("score", "information", "dated", "exposure"):
        column = getattr(at_once, name)
        np.testing.assert_allclose(column, getattr(in_steps, name), atol=1e-12)
        expected = getattr(before, name) * 0.5 ** ((days + more) / HALF_LIFE_DAYS)
        np.testing.assert_allclose(column, expected, atol=1e-12)


@given(st.floats(0, 20_000), st.floats(0, 20))
def test_the_hours_of_an_interval_add_up_to_its_length(start, length):
    start, end = np.array([start]), np.array([start + length])
    days = days_in_bins(start, end)[0]
    assert days.sum() == pytest.approx(float(end[0] - start[0]), abs=1e-10)
    hours = np.floor(start) + np.arange(22 * BINS) / BINS
    overlap = np.minimum(hours + 1 / BINS, end) - np.maximum(hours, start)
    hourly = np.maximum(overlap, 0.0).reshape(22, BINS).sum(axis=0)
    np.testing.assert_allclose(days, hourly, atol=1e-10)


def test_dates_are_the_score_of_their_likelihood():
    """Of changes and quiet times, with the change rate integrated out, in hourly bins."""
    rng = np.random.default_rng(6)
    intervals = some_intervals(rng)
    intervals = intervals._replace(
        start=np.floor(intervals.start * 24) / 24, end=np.floor(intervals.end * 24 + 1) / 24
    )
    at = np.where(rng.random(7) < 0.6, intervals.start + 1e-6, np.nan)
    dated = ~np.isnan(at)
    hour = (at % 1 * 24)[dated].astype(int)

    def log_probability(bins):
        operational = days_in_bins(intervals.start, intervals.end) @ bins
        rate = -(intervals.a + dated) * np.log(intervals.b + operational)
        return rate.sum() + np.log(bins[hour]).sum()

    evidence = learn_dates(HourEvidence.none(1), Profiles.flat(1), intervals, at)
    gradient = approx_fprime(np.ones(BINS), log_probability, 1e-7)
    np.testing.assert_allclose(evidence.dated[0] - evidence.exposure[0], gradient, atol=1e-5)
    assert evidence.changes.tolist() == [dated.sum()]
    np.testing.assert_array_equal(evidence.dated[0], np.bincount(hour, minlength=BINS))


def test_evidence_of_a_host_takes_223_numbers_and_comes_back():
    assert WIDTH == 223
    rng = np.random.default_rng(7)
    evidence = random_evidence(rng, 4, [0.0, 0.1, 3.0, 100.0])
    evidence = evidence._replace(
        dated=rng.random((4, BINS)), exposure=rng.random((4, BINS)), changes=rng.random(4)
    )
    rows = packed(evidence)
    assert (rows.shape, rows.dtype) == ((4, 223), np.float32)
    again = unpacked(rows)
    for name in evidence._fields:
        column = getattr(evidence, name)
        assert getattr(again, name).shape == column.shape
        np.testing.assert_allclose(getattr(again, name), column, rtol=1e-7)
    np.testing.assert_array_equal(packed(again), rows)
    assert packed(HourEvidence.none(0)).shape == (0, 223)
    assert unpacked(np.zeros((0, 223))).information.shape == (0, PAIRS)


@pytest.mark.parametrize(
    "rows", [np.zeros(223), np.zeros((2, 222)), np.full((1, 223), np.nan), np.float64(1.0)]
)
def test_rows_of_another_width_or_without_a_number_are_refused(rows):
    with pytest.raises(InvalidInput, match="rows"):
        unpacked(rows)


GOOD = {"host": [0, 1], "start": [0.0, 1.0], "end": [2.0, 2.0], "a": [1.0, 1.0], "b": [3.0, 3.0]}


@pytest.mark.parametrize(
    ("name", "values", "problem"),
    [
        ("host", [1, 0], "must ascend"),
        ("host", [0, 2], r"must lie in \[0, 2\) \(entries 1\)"),
        ("host", [-1, 0], "must lie in"),
        ("start", [0.0, np.nan], "finite"),
        ("end", [2.0, 1.0], "after the start"),
        ("end", [2.0], "shape"),
        ("a", [0.0, 1.0], "positive"),
        ("b", [1.0, -1.0], "positive"),
        ("b", [1.0, np.inf], "finite"),
    ],
)
def test_intervals_out_of_their_domain_are_refused_by_name(name, values, problem):
    intervals = Intervals(*(np.array(column) for column in (GOOD | {name: values}).values()))
    with pytest.raises(InvalidInput, match=f"{name} .*{problem}"):
        learn(HourEvidence.none(2), Profiles.flat(2), intervals, [True, False])


def test_results_and_dates_that_do_not_fit_are_refused():
    intervals = Intervals(*(np.array(column) for column in GOOD.values()))
    none, flat = HourEvidence.none(2), Profiles.flat(2)
    with pytest.raises(InvalidInput, match="changed has shape"):
        learn(none, flat, intervals, [True])
    with pytest.raises(InvalidInput, match="changed_at has shape"):
        learn_dates(none, flat, intervals, [1.0])
    with pytest.raises(InvalidInput, match=r"changed_at must lie .* \(entries 1\)"):
        learn_dates(none, flat, intervals, [0.5, 2.5])
    with pytest.raises(InvalidInput, match="days"):
        faded(none, -1.0)


def test_changes_nearly_certain_or_nearly_impossible_are_learnt_without_overflow():
    n = 4
    intervals = Intervals(
        np.arange(n),
        np.zeros(n),
        np.array([13.9, 1e-9, 5.0, 5.0]),
        np.array([1e6, 1e-3, 1e12, 1.0]),
        np.array([1e-3, 1e12, 1.0, 1e-12]),
    )
    for changed in (True, False):
        evidence = learn(HourEvidence.none(n), Profiles.flat(n), intervals, [changed] * n)
        assert all(np.isfinite(column).all() for column in evidence)
