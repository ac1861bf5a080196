"""Allocations under doubt: fewer crawls of dead pages, the same bandwidth, the same for plans."""

from dataclasses import fields

import numpy as np
import pytest

from service.core.common_values import alone
from service.core.doubt import counted_rate
from service.core.estimators.gamma import Gamma
from service.core.prior import Prior
from service.epochs.optimum import AllocationInput, optimum
from service.estimation.estimates import RateEstimates, RatePosterior, doubted
from service.model.arrays import nothing
from service.model.columns import CapColumns, EpochColumns
from service.model.domain import Observability

N_DEAD, N_LIVE, DAYS = 950, 50, 40.0
N = N_DEAD + N_LIVE
NOW = np.datetime64("2026-05-01", "us")


def archive():
    """Return pages of which the last ones change daily, and the posteriors of their rates."""
    state = np.zeros((N, 2))
    state[:, 1], state[N_DEAD:, 0] = DAYS, DAYS
    values = {f.name: nothing(f.type, N) for f in fields(EpochColumns)}
    values |= {"page_id": np.arange(1, N + 1), "importance": np.ones(N), "estimate": state}
    values |= dict.fromkeys(("min_crawl_rate", "max_crawl_rate"), np.full(N, np.nan))
    values |= {"observability": np.full(N, Observability.auto, np.int16)}
    posterior = RatePosterior(0.005 + state[:, 0], 0.5 + state[:, 1])
    rates = posterior.a / posterior.b, np.zeros(N), np.ones(N), np.zeros(N)
    return EpochColumns(**values), RateEstimates(*rates), posterior


def solved(posterior, objective="harmonic", bandwidth=60.0):
    pages, estimates, _ = archive()
    given = AllocationInput(pages, estimates, objective, bandwidth, CapColumns.empty())
    allocation, _ = alone(optimum(given._replace(posterior=posterior), None))
    return allocation


def test_dead_pages_have_fewer_crawls_and_live_ones_what_is_spared():
    _, estimates, posterior = archive()
    plain, under = solved(None), solved(posterior)
    assert under.crawl_rate.sum() == pytest.approx(plain.crawl_rate.sum(), rel=1e-9)
    assert under.crawl_rate[:N_DEAD].sum() < 0.7 * plain.crawl_rate[:N_DEAD].sum()
    assert (under.crawl_rate[N_DEAD:] > 1.05 * plain.crawl_rate[N_DEAD:]).all()
    # the rates belong, nearly, to the multiplier that they were counted at
    gain = np.full(N, 1 / under.multiplier)
    counted = counted_rate(estimates.change_rate, *posterior, gain)
    wanted = 2 * gain / (1 + np.sqrt(1 + 4 * gain / counted))
    np.testing.assert_allclose(under.crawl_rate, wanted, rtol=0.03)


def test_other_objectives_count_means():
    _, _, posterior = archive()
    rates = [solved(each, "change_rate").crawl_rate for each in (None, posterior)]
    np.testing.assert_array_equal(*rates)


def test_only_corpora_of_few_live_pages_are_in_doubt():
    pages, estimates, _ = archive()
    few, many = (
        Gamma().with_corpus(
            {"a": 0.05, "b": 1.0, "within_shape": shape, "between_shape": 1.0},
            np.full(1, 0.05, np.float32),
        )
        for shape in (0.005, 0.3)
    )
    assert doubted(pages, many, estimates, NOW) is None
    assert doubted(pages, Gamma(Prior(0.01, 1.0)), estimates, NOW) is None
    a, b = doubted(pages, few, estimates, NOW)
    np.testing.assert_allclose(a, 0.005 + pages.estimate[:, 0])
    np.testing.assert_allclose(b, 0.1 + DAYS)
    pinged = estimates._replace(ping_rate=np.where(np.arange(N) < 3, 1.0, 0.0))
    assert np.isinf(doubted(pages, few, pinged, NOW).a).tolist() == [True] * 3 + [False] * (N - 3)
