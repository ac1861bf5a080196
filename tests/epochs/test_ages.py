"""Ages in an epoch: what it learns, what it does with them; a shut gate costs nothing."""

from dataclasses import replace

import numpy as np
import pytest
from support.hourly_cases import at_day, epoch_at, pages_of
from support.spread_cases import NOW, assert_same_bits, corpus, epoch_before, ran, task

from service.core.age_evidence import N_NUMBERS, AgeEvidence
from service.core.ages import N_BINS, OLD, STARTS, AgeProfile
from service.core.common_values import alone
from service.core.estimators.gamma import Gamma
from service.core.estimators.lognormal import LogNormal
from service.core.prior import Prior
from service.epochs.ages import exposures, hot_apart, learn_ages
from service.epochs.inputs import divided
from service.epochs.plan import Plan
from service.estimation.estimates import estimate_rates
from service.model.arrays import NO_TIME
from service.model.urls import URL_GROUPS

SOME = np.full(N_BINS, 90.0)
PROVEN = AgeEvidence(np.where(STARTS < 64, 990.0, 90.0), SOME, 30.0, 0.0, 0.0, 90.0, 90.0)
"""Evidence that pages change ten times as often before their 64th day."""
NEWS = AgeProfile(np.where(STARTS < 8, 100.0, 1.0))


def test_without_proof_births_change_no_bit():
    for last in (None, epoch_before()):
        inputs = divided(corpus(5, {0: 120, 1: 80}))
        unborn = {
            shard: part._replace(
                pages=replace(part.pages, born_at=np.full(len(part.pages), NO_TIME))
            )
            for shard, part in inputs.items()
        }
        with_births, without = (
            ran(each, dict.fromkeys(each, 0), task(last)) for each in (inputs, unborn)
        )
        ages = {"age_evidence": with_births.certificate.age_evidence}
        without.certificate = replace(without.certificate, **ages)
        assert_same_bits(with_births, without)


def test_young_pages_are_crawled_more_often_once_ages_are_proven():
    inputs = divided(corpus(6, {0: 150, 3: 100}, caps=False, bounds=False, pings=False))
    results = [
        ran(inputs, {0: 0, 3: place}, task(epoch_before(age_evidence=tuple(numbers))))
        for numbers, place in ((PROVEN.packed(), 0), (PROVEN.packed(), 1), ((), 0))
    ]
    assert_same_bits(*results[:2])  # by any division over databases
    young = np.concatenate([~np.isnat(part.pages.born_at) for part in inputs.values()])
    share, flat = (
        each.schedule.crawl_rate[young].sum() / each.schedule.crawl_rate.sum()
        for each in results[1:]
    )
    assert share > 1.1 * flat  # their own evidence is of hot days, only the prior is not
    assert results[0].certificate.prior["age_0"] == pytest.approx(10.0, rel=0.1)
    assert len(results[2].certificate.age_evidence) == N_NUMBERS


def test_an_epoch_learns_the_last_crawls_since_the_epoch_in_force():
    # changed at the age of 1 to 3 days; of unknown age; crawled long ago; pinged; never compared
    pages = pages_of(
        np.ones(5),
        [10.0, 10.0, 5.0, 10.0, 10.0],
        [2.0, -2.0, 2.0, 2.0, 0.0],
        born_at=at_day([7.0, np.nan, 1.0, 7.0, 7.0]),
        n_pings=[0, 0, 0, 1, 0],
        estimate=np.tile([1.0, 9.0], (5, 1)),
    )
    estimator = Gamma(Prior(1.0, 10.0))
    learnt = alone(learn_ages(pages, estimator, epoch_at(9.5), at_day(10.5)[()]))
    # before their crawls: no change in 8 days, and one in 7
    born, old = 1.0 / 18.0, 2.0 / 17.0
    days = np.zeros(N_BINS)
    days[5:7] = born  # the second day of its life, and the third
    days[-1] = 2 * old
    np.testing.assert_allclose(learnt.evidence.expected, days)
    assert learnt.evidence.changes[5] == pytest.approx(born / -np.expm1(-2 * born))
    assert learnt.profile is None
    assert alone(learn_ages(pages, LogNormal(), None, NOW)).profile is None


def test_rates_are_those_of_the_present_age():
    born_at = at_day([9.0, 0.0, np.nan])
    pages = pages_of(
        np.ones(3), [9.0, 9.0, 9.0], [0.0] * 3, born_at=born_at, estimate=np.zeros((3, 2))
    )
    estimator = Gamma(Prior(1.0, 50.0)).with_profile(NEWS)
    rate = estimate_rates(pages, estimator, at_day(10.0)[()]).change_rate
    np.testing.assert_allclose(rate, [2.0, 0.02, 0.02])


def test_an_interval_counts_by_the_ages_in_it_and_hot_pages_have_no_old_siblings():
    born_at = at_day([4.0, 0.0, np.nan])
    pages = pages_of(np.ones(3), [10.0, 10.0, 10.0], [2.0, 4.0, -3.0], born_at=born_at, url_group=7)
    now = at_day(11.0)[()]
    # at 100 times the rate; half of its interval before it cooled down; unknown
    assert exposures(pages, NEWS, now, None) == pytest.approx([2.0, 2 * 100 + 2, 3.0])
    assert exposures(pages, NEWS, now, np.ones(3)) == pytest.approx([1.0, 50.5, 1.0])
    apart = hot_apart(pages, NEWS, now).url_group
    assert apart.tolist() == [7 + URL_GROUPS, 7, 7]
    assert hot_apart(pages, AgeProfile(np.ones(N_BINS)), now) is pages
    assert STARTS[-1] < OLD


def test_the_plan_of_an_estimator_without_ages_has_no_evidence():
    inputs = {0: corpus(7, {0: 50}, change_hours=False)._replace(fitted=LogNormal())}
    work = task(plan=Plan(LogNormal(), change_hours=False))
    pages = inputs[0].pages
    inputs[0] = inputs[0]._replace(pages=replace(pages, estimate=pages.estimate[:, :2]))
    assert not any(ran(inputs, {0: 0}, work).certificate.age_evidence)
