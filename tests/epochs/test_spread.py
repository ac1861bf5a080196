"""Epochs over shards: a division over databases changes no bit; many parts are as one."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import examples
from support.spread_cases import PLAN, assert_same_bits, corpus, epoch_before, followed, ran, task

from service.core.allocation import ALLOCATORS
from service.core.checks import BandwidthInfeasible
from service.core.estimators.base import TOTALS
from service.epochs.inputs import divided
from service.model.domain import Timing

sizes = st.dictionaries(st.integers(0, 6), st.integers(0, 150), max_size=5)


@pytest.mark.dear
@settings(max_examples=examples(4, 25))
@given(st.integers(0, 1 << 20), sizes, st.data())
def test_no_division_over_databases_changes_a_bit(seed, n_pages, data):
    parts = {
        name: data.draw(st.booleans(), name) for name in ("caps", "bounds", "pings", "change_hours")
    }
    inputs = divided(corpus(seed, n_pages, **parts))
    work = task(data.draw(st.sampled_from([None, epoch_before()])))
    if not parts["change_hours"]:
        work = replace(work, plan=replace(PLAN, change_hours=False))
    databases = {shard: data.draw(st.integers(0, 3)) for shard in inputs}
    together = ran(inputs, dict.fromkeys(inputs, 0), work)
    assert_same_bits(together, ran(inputs, databases, work))
    again = followed(inputs, together, seed) if sum(n_pages.values()) > 1 else inputs
    if all(tables.share_evidence for tables in together.tables.values()):
        warm = replace(work, last=epoch_before(prior=together.certificate.prior))
        assert_same_bits(ran(again, dict.fromkeys(inputs, 0), warm), ran(again, databases, warm))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(8))
def test_many_logical_shards_compute_what_one_computes(seed):
    """The URL groups of parts have other buckets, also where the pages are taken as one part."""
    n_parts, n_pages = 4 + seed % 3, 128
    whole = corpus(seed, dict.fromkeys(range(n_parts), n_pages))
    n_groups = 16 * n_pages
    group = whole.pages.url_group % n_groups + np.repeat(np.arange(n_parts), n_pages) * n_groups
    whole = whole._replace(pages=replace(whole.pages, url_group=group.astype("i4")))
    work = task(epoch_before())
    one = ran({0: whole}, {0: 0}, work)
    inputs = divided(whole)
    assert len(inputs) == n_parts
    many = ran(inputs, {shard: shard % 3 for shard in inputs}, work)
    sums = {name for name in one.certificate.prior if name.startswith(TOTALS)}
    for name, number in one.certificate.prior.items():
        rel = 1e-14 if name in sums else 0.0  # sums of the evidence round by shard
        assert many.certificate.prior[name] == pytest.approx(number, rel=rel, abs=0.0), name
    # the crawls planned are a sum of crawl rates, which round by shard too
    assert many.certificate.budget_factor == pytest.approx(one.certificate.budget_factor, rel=1e-14)
    ratios = one.certificate.observed_ratios
    assert len({*ratios}) > 5
    np.testing.assert_allclose(many.certificate.observed_ratios, ratios, rtol=1e-9)
    for name, column in one.schedule.arrays().items():
        # an operational length is a difference of days since 1970, which round at 4e-12; both
        # columns divide by it, and some processors round it by the number of shards
        rtol = 1e-9 if name in {"urgency", "observed_ratio"} else 1e-11
        theirs = getattr(many.schedule, name)
        np.testing.assert_allclose(theirs, column, rtol=rtol, atol=0, err_msg=name)
    assert many.certificate.kkt_residual < 1e-9


@pytest.mark.parametrize("objective", [name for name in ALLOCATORS if name != "harmonic"])
def test_other_objectives_are_solved_over_all_shards_too(objective):
    inputs = divided(corpus(5, {0: 60, 3: 90, 4: 40}, caps=False, bounds=False, pings=False))
    work = task(None, replace(PLAN, objective=objective, timing=Timing.poisson))
    one, many = (
        ran(inputs, place, work) for place in (dict.fromkeys(inputs, 0), {0: 1, 3: 0, 4: 2})
    )
    assert_same_bits(one, many)


def test_minima_beyond_the_bandwidth_name_the_pages_with_the_highest_of_all_shards():
    whole = corpus(2, {1: 40, 2: 40})
    low = np.where(np.isin(np.arange(80), [3, 50, 70]), [5.0 + i for i in range(80)], np.nan)
    whole = whole._replace(pages=replace(whole.pages, min_crawl_rate=low, max_crawl_rate=low))
    work = task(None, replace(PLAN, bandwidth=10.0))
    names = ", ".join(f"page {whole.pages.page_id[i]} ({5 + i:g})" for i in (70, 50, 3))
    with pytest.raises(BandwidthInfeasible) as error:
        ran(divided(whole), {1: 0, 2: 1}, work)
    assert names in str(error.value)


def test_the_seconds_of_an_epoch_count_its_stages():
    inputs = divided(corpus(3, {2: 50}))
    certificate = ran(inputs, {2: 0}, task()).certificate
    assert math.isclose(certificate.bandwidth_used, certificate.bandwidth, rel_tol=1e-9)
    assert certificate.n_pages == 50
