"""Worlds on a clock: the hours of each kind, their numbers of changes, and known costs."""

from typing import get_args

import numpy as np
import pytest
import scipy

from recrawl_lab.cli.replay import HoursKind
from recrawl_lab.replay.staleness import Crawls, staleness
from recrawl_lab.worlds.hourly import (
    BULK_EVERY_DAYS,
    BULK_SHARE,
    KINDS,
    SHIFT,
    SPREAD,
    Kind,
    hourly_world,
)

DAYS = 200.0


def world(kind, n_pages=400, days=DAYS, seed=1, **options):
    return hourly_world(kind, n_pages, days, rng=np.random.default_rng(seed), **options)


def hosts(made):
    return np.array([int(url.split(".")[0].removeprefix("https://host-")) for url in made.url])


def offsets_from_the_hour(made, at, page):
    """Time of each change from its host's mean hour, days, in [-1/2, 1/2)."""
    waves = np.exp(2j * np.pi * at)
    host = hosts(made)[page]
    sums = np.array([waves[host == h].sum() for h in range(host.max() + 1)])
    hour = np.angle(sums) / (2 * np.pi)
    return (at - hour[host] + 0.5) % 1.0 - 0.5


@pytest.mark.parametrize("kind", ["daily", "cron"])
def test_changes_come_about_the_hour_of_their_host(kind):
    made = world(kind)
    off = offsets_from_the_hour(made, made.changed_at, made.changed_page)
    assert off.std() == pytest.approx(SPREAD, rel=0.05)
    assert np.abs(off).max() < 6 * SPREAD


@pytest.mark.parametrize("kind", ["flat", "bulk"])
def test_changes_of_kinds_without_change_hours_come_at_any_hour(kind):
    made = world(kind)
    off = offsets_from_the_hour(made, made.changed_at, made.changed_page)
    assert off.std() == pytest.approx(np.sqrt(1 / 12), rel=0.03)
    assert scipy.stats.kstest(world("flat").changed_at / DAYS, "uniform").pvalue > 1e-3


def test_a_cron_changes_every_page_once_a_day():
    made = world("cron", 60, 30.0)
    counts = np.diff(made.first)
    assert ((counts >= 29) & (counts <= 30)).all()
    gaps = np.diff(made.changes_of(7))
    assert gaps.mean() == pytest.approx(1.0, abs=0.01)
    assert made.change_rate.tolist() == [1.0] * 60


@pytest.mark.parametrize("kind", ["daily", "flat", "stops", "shifts", "bulk"])
def test_pages_change_as_often_as_their_rate(kind):
    made = world(kind, 2_000, 60.0)
    expected = made.change_rate * 60
    counts = np.diff(made.first)
    assert counts.sum() == pytest.approx(expected.sum(), rel=0.04)
    if kind != "bulk":
        assert ((counts - expected) ** 2 / expected).mean() == pytest.approx(1.0, abs=0.12)


def test_change_hours_end_in_the_middle():
    made = world("stops")
    first = made.changed_at < DAYS / 2 - 1
    page, at = made.changed_page, made.changed_at
    hour_of_all = offsets_from_the_hour(made, at, page)
    assert np.abs(hour_of_all[first]).max() < 0.06
    later = hour_of_all[at > DAYS / 2 + 1]
    assert later.std() == pytest.approx(np.sqrt(1 / 12), rel=0.05)


def test_change_hours_shift_by_an_hour_in_the_middle():
    made = world("shifts")
    page, at = made.changed_page, made.changed_at
    off = offsets_from_the_hour(made, at, page)
    early, late = off[at < DAYS / 2 - 1], off[at > DAYS / 2 + 1]
    assert late.mean() - early.mean() == pytest.approx(SHIFT, rel=0.02)
    assert early.std() == pytest.approx(SPREAD, rel=0.1)
    assert late.std() == pytest.approx(SPREAD, rel=0.1)


def test_bulk_revisions_change_half_of_a_host_at_one_instant():
    made = world("bulk")
    instants, counts = np.unique(made.changed_at, return_counts=True)
    at_once = counts[counts > 5]
    assert len(at_once) == pytest.approx(8 * DAYS / BULK_EVERY_DAYS, rel=0.35)
    assert at_once.mean() == pytest.approx(50 * BULK_SHARE, rel=0.1)
    shared = np.isin(made.changed_at, instants[counts > 5])
    for at in np.unique(made.changed_at[shared]):
        assert len(set(hosts(made)[made.changed_page[made.changed_at == at]])) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_a_world(kind):
    made = world(kind, 103, 20.0, pages_per_host=25)
    assert (len(made), made.name, made.days) == (103, f"hours-{kind}", 20.0)
    assert np.bincount(hosts(made)).tolist() == [25, 25, 25, 25, 3]
    assert ((made.changed_at > 0) & (made.changed_at <= 20.0)).all()
    assert made.first[-1] == len(made.changed_at)
    within_pages = np.diff(made.changed_page) == 0
    assert (np.diff(made.changed_at)[within_pages] >= 0).all()
    same, other = (world(kind, 103, 20.0, seed, pages_per_host=25) for seed in (1, 2))
    np.testing.assert_array_equal(made.changed_at, same.changed_at)
    assert (
        len(made.changed_at) != len(other.changed_at) or (made.changed_at != other.changed_at).any()
    )
    assert set(made.importance) == {1.0}
    assert len(set(world(kind, 103, 20.0, importance="lognormal").importance)) == 103


def harmonic(k):
    return sum(1 / i for i in range(1, k + 1))


@pytest.mark.dear
@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("k", "after", "blind"),
    [(1, 0.0220, 0.5), (2, 0.5165, 0.875), (5, 1.2934, 1.5117), (10, 1.9354, 2.0754)],
)
def test_crawls_after_a_cron_cost_what_they_should(k, after, blind):
    """Crawls every k days, 28.5 minutes after the hour, or at any hour; known answers.

    J = H_k - 1 + (H_k/k)(m + Phi(-m/sd)), without change hours H_k - 1 + H_k/(2k).
    """
    made = world("cron", 300, 1_000.0, pages_per_host=300)
    page, lag = np.arange(len(made)), 28.5 / 1440
    hour = np.angle(np.exp(2j * np.pi * made.changed_at).sum()) / (2 * np.pi) % 1.0
    n = int(made.days / k)
    exact = harmonic(k) - 1 + harmonic(k) / k * (lag + scipy.stats.norm.cdf(-lag / SPREAD))
    assert exact == pytest.approx(after, abs=2e-4)
    day = k * np.arange(n)
    timed = np.tile(hour + lag + day, len(made))
    shift = k * (page + 0.5) / 300
    at_random = (shift[:, None] + day).ravel()
    owners = np.repeat(page, n)
    cost = staleness(made, Crawls(owners, timed)).harmonic
    assert cost == pytest.approx(after, abs=0.002)
    cost = staleness(made, Crawls(owners, at_random)).harmonic
    assert cost == pytest.approx(blind, abs=0.006)


def test_the_command_offers_every_kind():
    assert get_args(HoursKind) == get_args(Kind) == tuple(KINDS)
