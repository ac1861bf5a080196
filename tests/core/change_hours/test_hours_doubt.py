"""Doubt of change hours: those that ended or shifted are forgotten, those that hold are kept."""

import numpy as np
import pytest
from support.hours_cases import HOURS, Day, cosine, crawled, few

from service.core.change_hours.evidence import DOUBT, HourEvidence, faded, forgotten, learn
from service.core.change_hours.fit import fit
from service.core.change_hours.profile import Profiles, integrals

FLAT = Day(np.ones_like(HOURS))


def taught(day, rng, *, hosts, lessons, evidence, profiles):
    """Return (H,) the lesson, of 40 crawls, that forgot each host; `lessons`: none did."""
    lost = np.full(hosts, lessons)
    for lesson in range(lessons):
        intervals, changed = crawled(day, 40, rng, hosts=hosts)
        evidence = few(faded(evidence, 1.0))
        evidence = learn(evidence, profiles, intervals, changed)
        gone = evidence.doubt > DOUBT
        lost[gone] = np.minimum(lost[gone], lesson)
        evidence = forgotten(evidence)
        profiles = fit(evidence, profiles)
    return lost


def settled(day, rng, hosts):
    """Return evidence and profiles of hosts that have kept to change hours for 200 days."""
    evidence, profiles = HourEvidence.none(hosts), Profiles.flat(hosts)
    for _ in range(200):
        intervals, changed = crawled(day, 40, rng, hosts=hosts)
        evidence = learn(few(faded(evidence, 1.0)), profiles, intervals, changed)
        profiles = fit(evidence, profiles)
    return evidence._replace(doubt=np.zeros(hosts)), profiles


@pytest.fixture(scope="module")
def running():
    """Return hosts whose change hours are certain."""
    evidence, profiles = settled(cosine(), np.random.default_rng(1), 30)
    assert (profiles.weight > 0.9).all()
    return evidence, profiles


@pytest.mark.dear
def test_change_hours_that_hold_are_hardly_ever_forgotten(running):
    evidence, profiles = running
    rng = np.random.default_rng(2)
    lost = taught(cosine(), rng, hosts=30, lessons=60, evidence=evidence, profiles=profiles)
    assert np.count_nonzero(lost < 60) <= 6  # of 1,800 lessons


@pytest.mark.dear
@pytest.mark.sampled(1)
@pytest.mark.parametrize("after", [FLAT, cosine(peak=0.8)], ids=["stops", "moves half a day"])
def test_change_hours_that_end_or_change_are_forgotten_within_weeks(running, after):
    evidence, profiles = running
    rng = np.random.default_rng(3)
    lost = taught(after, rng, hosts=30, lessons=40, evidence=evidence, profiles=profiles)
    assert np.median(lost) < 15
    assert lost.max() < 40


def test_the_doubt_is_the_log_likelihood_without_change_hours_over_that_with_it(running):
    rng, one = np.random.default_rng(4), Profiles(*(column[:1] for column in running[1]))
    intervals, changed = crawled(cosine(peak=0.8), 60, rng)
    evidence = learn(few(HourEvidence.none(1)), one, intervals, changed)
    without, with_hours = (
        log_likelihood(intervals, changed, profiles.coefficients[0])
        for profiles in (Profiles.flat(1), one)
    )
    assert without > with_hours
    assert evidence.doubt[0] == pytest.approx(without - with_hours, abs=1e-6)


def log_likelihood(intervals, changed, theta):
    """Return the log-likelihood of crawls under a profile."""
    length = intervals.end - intervals.start
    operational = np.maximum(integrals(intervals.start, intervals.end) @ theta, 0.1 * length)
    expected = intervals.a * np.log1p(operational / intervals.b)
    return np.where(changed, np.log(-np.expm1(-expected)), -expected).sum()


def test_forgetting_a_host_leaves_the_others():
    rng = np.random.default_rng(5)
    evidence = HourEvidence(*(rng.random(column.shape) for column in HourEvidence.none(3)))
    doubt = np.array([0.0, DOUBT + 1e-9, DOUBT])
    after = forgotten(evidence._replace(doubt=doubt))
    for before, column in zip(evidence[:5], after[:5], strict=True):
        np.testing.assert_array_equal(column[[0, 2]], before[[0, 2]])
        assert not column[1].any()
    assert after.doubt.tolist() == [0.0, 0.0, DOUBT]
