"""Revisions of many pages at once are single events, and no change hours."""

import numpy as np
import pytest

import service.core.change_hours.evidence as module
from service.core.change_hours.evidence import (
    BULK,
    HALF_LIFE_DAYS,
    PAIRS,
    HourEvidence,
    Intervals,
    cluster,
    faded,
    learn,
    learn_dates,
)
from service.core.change_hours.fit import fit
from service.core.change_hours.profile import Profiles

FLAT = Profiles.flat(1)


def counted(days):
    """Return the evidence of a host with some numbers of unexpected changes, one a day."""
    evidence = watching()
    for n in days:
        evidence = faded(evidence, 1.0)._replace(changes=np.array([float(n)]))
    return evidence


def watching():
    """Return the evidence of a host of which hardly anything is known."""
    return HourEvidence.none(1)._replace(information=np.full((1, PAIRS), 1e-9))


def weights(hours, share, rate_days, n_days):
    """Return the weights of the change hours of a host, as it learns day by day.

    A hundred of its pages are crawled each day, after 1.4 days on average. A share of its pages,
    drawn anew each time, changes at the instants.
    """
    rng, profiles, evidence, seen = np.random.default_rng(1), FLAT, HourEvidence.none(1), []
    for day in range(n_days):
        end = day + np.sort(rng.random(100))
        start = end - rng.uniform(1.05, 1.75, 100)
        within = [(start < at) & (at <= end) for at in hours if day - 2 < at < day + 1]
        touched = [each & (rng.random(100) < share) for each in within]
        changed = np.any([np.zeros(100, bool), *touched], axis=0)
        posterior = np.full(100, 0.5), np.full(100, rate_days)
        intervals = Intervals(np.zeros(100, int), start, end, *posterior)
        evidence = learn(faded(evidence, 1.0), profiles, intervals, changed)
        profiles = fit(evidence, profiles)
        seen.append(profiles.weight[0])
    return np.array(seen)


def test_the_cluster_is_the_variance_of_the_days_over_their_mean():
    rng = np.random.default_rng(2)
    days = np.minimum(rng.poisson(rng.choice([0.0, 4.0], 60, p=[0.8, 0.2])), BULK)
    kept = 0.5 ** (np.arange(60)[::-1] / HALF_LIFE_DAYS)
    mean = (kept * days).sum() / (kept.sum() + kept[0] / 2)
    variance = (kept * days**2).sum() / (kept.sum() + kept[0] / 2) - mean**2
    assert cluster(counted(days))[0] == pytest.approx(variance / mean, rel=0.02)


@pytest.mark.parametrize(
    ("days", "least", "most"),
    [
        ([0] * 200, 1.0, 1.0),
        ([7] * 200, 1.0, 1.05),
        (np.random.default_rng(3).poisson(3.0, 2_000), 1.0, 1.15),
        ([0] * 59 + [8], 7.7, 8.0),
        (([0] * 29 + [500]) * 6, 9.0, 10.0),
    ],
    ids=["nothing", "change hours", "independent", "one revision", "bulk revisions"],
)
def test_changes_that_come_together_count_once(days, least, most):
    assert least <= cluster(counted(days))[0] <= most


def test_the_days_before_any_evidence_do_not_count():
    one = Intervals(np.zeros(1, int), *np.array([[0.3], [0.9], [2.0], [4.0]]))
    waited = faded(HourEvidence.none(1), 50.0)
    assert waited.watched.tolist() == [0.0]
    assert faded(learn(waited, FLAT, one, [True]), 1.0).watched.tolist() == [1.0]
    dated = learn_dates(waited, FLAT, one, one.end)
    assert faded(dated, 1.0).watched.tolist() == [1.0]


def test_crawls_weigh_less_by_the_cluster():
    one = Intervals(np.zeros(1, int), *np.array([[0.3], [0.9], [2.0], [4.0]]))
    before = faded(counted([0] * 59 + [8]), 1.0)
    alone = learn(HourEvidence.none(1), FLAT, one, [True])
    among = learn(before, FLAT, one, [True])
    size = cluster(before._replace(changes=among.changes))
    assert size[0] > 6.5
    np.testing.assert_allclose(among.score, alone.score / size)
    gained = among.information - before.information
    np.testing.assert_allclose(gained, alone.information / size, rtol=1e-6, atol=1e-12)


def test_the_sums_are_those_of_days_however_often_a_host_learns():
    hourly = watching()
    for _ in range(24 * 40):
        hourly = faded(hourly, 1 / 24)._replace(changes=np.array([4.0]))
    daily = counted([4] * 40)
    np.testing.assert_allclose(hourly.watched, daily.watched, rtol=0.01)
    assert hourly.counted[0] == pytest.approx(daily.counted[0], rel=0.04)


def test_rare_revisions_of_a_whole_host_are_no_change_hours(monkeypatch):
    revisions = [40.4, 80.4, 120.4, 160.4, 200.4, 230.4]
    assert weights(revisions, 1.0, 150.0, 240).max() == 0.0
    monkeypatch.setattr(module, "cluster", lambda evidence: np.ones(1))
    assert weights(revisions, 1.0, 150.0, 240).max() > 0.1


def test_changes_of_each_day_at_one_hour_are_change_hours():
    assert weights(np.arange(60) + 0.4, 0.3, 1.5, 60)[-1] > 0.9
