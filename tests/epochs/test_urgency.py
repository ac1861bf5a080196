"""Urgency: by siblings, within bounds and caps, and so that the bandwidth is met."""

from dataclasses import replace

import numpy as np
import pytest
from support.store_cases import T0, columns

from service.core.common_values import alone
from service.core.shared_changes import PRIOR, SHARES, ShareEvidence
from service.core.siblings import age_bin, siblings
from service.epochs import urgency as module
from service.epochs.urgency import FASTEST, NO_EPOCH, LastEpoch, n_recrawls
from service.estimation.estimates import RateEstimates
from service.model.arrays import INSTANT, NO_TIME
from service.model.columns import CapColumns, EpochColumns
from service.model.domain import Epoch, EpochStatus, Observability

NOW = np.datetime64("2026-05-01T12:00", "us")
DAY, HOUR = np.timedelta64(1, "D"), np.timedelta64(1, "h")
NO_CAPS = CapColumns.empty()


def urgency(*arguments):
    """Return the result for one part alone."""
    return alone(module.urgency(*arguments))


def corpus(n=1_000, seed=1, **given):
    rng = np.random.default_rng(seed)
    age = rng.uniform(0, 20, n)
    values = {
        "page_id": np.arange(1, n + 1),
        "importance": 1.0,
        "observability": Observability.auto,
        "min_crawl_rate": np.nan,
        "max_crawl_rate": np.nan,
        "host_id": 1 + np.arange(n) % 7,
        "n_pings": 0,
        "real_pings": 0.0,
        "false_pings": 0.0,
        "trust": 0.0,
        "n_observations": 9,
        "url_group": rng.integers(0, n // 20, n),
        "interval_factor": rng.uniform(0.9, 1.1, n),
        "last_age": np.nan,
        "cost": 0.0,
        "last_interval": rng.exponential(10, n) * rng.choice([-1, -1, -1, 1], n),
    }
    for name in ("pings_since", "last_ping_at", "last_observed_at", "last_failure_at"):
        values[name] = np.datetime64("NaT", "us")
    values["estimate"] = 0.0
    pages = columns(EpochColumns, n, **(values | given))
    crawled = (NOW - age * 86_400e6 * np.timedelta64(1, "us")).astype(INSTANT)
    return replace(pages, last_observed_at=crawled), age


def known(n, change_rate=0.02, ping_rate=0.0):
    every = (np.full(n, value) for value in (change_rate, 0.0, 1.0, ping_rate))
    return RateEstimates(*every)


def test_clocks_run_by_what_siblings_show_sped_up_alike():
    pages, age = corpus()
    rates = np.full(1_000, 0.1)
    urgent = urgency(pages, known(1_000), rates, NO_CAPS, NOW)
    shown = siblings(pages.url_group, age, pages.last_interval, np.full(1_000, 0.02))
    factor = shown.observed_ratio(PRIOR @ SHARES)  # before any crawl is scored
    assert factor.std() > 0.05
    np.testing.assert_allclose(urgent.of_pages, factor * urgent.budget_factor, rtol=1e-9)


def test_ratios_by_age_count_the_changes_of_all_pages():
    pages, age = corpus()
    urgent = urgency(pages, known(1_000), np.full(1_000, 0.1), NO_CAPS, NOW)
    middle, length = age + np.abs(pages.last_interval) / 2, np.abs(pages.last_interval)
    for i in (12, 20, 31):  # up to 0.6 and 10 days, and all
        younger = 1.0 * (age_bin(middle) < i) + 0.5 * (age_bin(middle) == i)
        found = younger @ (pages.last_interval > 0)
        expected = younger @ -np.expm1(-0.02 * length)
        assert urgent.observed_ratios[i] == pytest.approx((found + 1) / (expected + 1))


def test_siblings_count_as_far_as_the_last_epoch_has_seen_them_to():
    pages, age = corpus()
    shown = siblings(pages.url_group, age, pages.last_interval, np.full(1_000, 0.02))
    for best in (0, 6):
        score = np.zeros((1 << 11, 7))
        score[:, best] = 50.0
        evidence = ShareEvidence(
            1 << 11, np.arange(1 << 11), score - score[:, :1], np.zeros(7), 0.0
        )
        last = LastEpoch(NOW, 1.0, 100.0, evidence)
        urgent = urgency(pages, known(1_000), np.full(1_000, 0.1), NO_CAPS, NOW, last, 100.0)
        np.testing.assert_allclose(urgent.of_pages, shown.observed_ratio(SHARES[best]), rtol=1e-6)


def test_an_epoch_without_crawl_rates_keeps_what_the_last_one_learnt():
    pages, _ = corpus()
    last = LastEpoch(NOW - DAY, 1.2, 100.0, ShareEvidence.none(4))
    urgent = urgency(pages, known(1_000), np.zeros(1_000), NO_CAPS, NOW, last, 100.0)
    assert urgent.evidence is last.evidence
    assert urgent.budget_factor == 1.2
    assert (urgent.of_pages == 1.0).all()


def test_an_epoch_adds_the_crawls_since_the_last_to_the_evidence():
    pages, _ = corpus()
    first = urgency(pages, known(1_000), np.full(1_000, 0.1), NO_CAPS, NOW)
    assert not first.evidence.score.any()
    last = LastEpoch(NOW - 2 * DAY, 1.0, 100.0, first.evidence)
    second = urgency(pages, known(1_000), np.full(1_000, 0.1), NO_CAPS, NOW, last, 100.0)
    recent = pages.last_observed_at >= NOW - 2 * DAY
    assert second.evidence.n_changed == np.count_nonzero(recent & (pages.last_interval > 0))
    assert second.evidence.score.any()


def test_the_first_epoch_and_one_without_a_certificate_leave_the_rates_as_they_are():
    pages, _ = corpus()
    assert urgency(pages, known(1_000), np.full(1_000, 0.1), NO_CAPS, NOW).budget_factor == 1.0
    assert LastEpoch.of(None) == NO_EPOCH
    assert LastEpoch.of(Epoch(1, EpochStatus.failed, T0, T0)) == NO_EPOCH


def test_the_factor_goes_on_from_the_last_epoch_by_the_crawls_since():
    pages, age = corpus()
    rate, last = np.full(1_000, 0.1), LastEpoch(NOW - 2 * DAY, 1.1, 100.0)
    urgent = urgency(pages, known(1_000), rate, NO_CAPS, NOW, last, 100.0)
    late = 10 / 1440
    before = age + np.abs(pages.last_interval)
    n_crawled = sum(np.count_nonzero((at >= late) & (at < 2 + late)) for at in (age, before))
    missing = 1 - n_crawled / 200
    assert urgent.budget_factor == pytest.approx(1.1 * np.exp(0.1 * missing), abs=0.002)


def test_a_bandwidth_that_was_changed_counts_from_its_epoch_on():
    pages, _ = corpus()
    spent_so = LastEpoch(NOW - DAY, 1.0, 50.0)
    urgent = [
        urgency(pages, known(1_000), np.full(1_000, rate), NO_CAPS, NOW, spent_so, 1_000 * rate)
        for rate in (0.05, 0.2)
    ]
    once, fourfold = (np.log(each.budget_factor) for each in urgent)
    assert once == pytest.approx(fourfold, abs=0.2 * abs(once))


def test_a_crawl_that_is_reported_late_counts_in_the_next_epoch():
    pages, _ = corpus(last_interval=np.full(1_000, -30.0), url_group=np.arange(1_000))
    crawled = np.full(1_000, NOW - 20 * DAY)
    crawled[:30] = NOW - np.timedelta64(5, "m")
    pages, rate = replace(pages, last_observed_at=crawled), np.full(1_000, 0.1)

    def factor(now, last):
        urgent = urgency(pages, known(1_000), rate, NO_CAPS, now, last, 100.0)
        return urgent.budget_factor

    first = factor(NOW, LastEpoch(NOW - DAY, 1.0, 100.0))
    second = factor(NOW + HOUR, LastEpoch(NOW, first, 100.0))
    assert np.log(first) == pytest.approx(1 / 20)  # nothing in a day; tau = 20 days
    assert np.log(second / first) == pytest.approx((1 / 24 - 0.3) / 20)


def quiet(**given):
    """Return pages without siblings whose last content was twenty days ago."""
    pages, _ = corpus(last_interval=np.full(1_000, -30.0), url_group=np.arange(1_000), **given)
    return replace(pages, last_observed_at=np.full(1_000, NOW - 20 * DAY))


def failing(pages, where, ago):
    at = pages.last_failure_at.copy()
    at[where] = NOW - ago
    return replace(pages, last_failure_at=at)


def left_over(pages, rates=None, now=NOW, last=NOW - DAY, caps=NO_CAPS):
    """Return the logarithm of the budget factor after a time with the factor 1."""
    rates = np.full(1_000, 0.1) if rates is None else rates
    urgent = urgency(pages, known(1_000), rates, caps, now, LastEpoch(last, 1.0, 100.0), 100.0)
    return np.log(urgent.budget_factor)


def test_crawls_without_content_are_spent():
    pages = quiet()
    assert left_over(pages) == pytest.approx(1 / 20)  # nothing in a day; tau = 20 days
    assert left_over(failing(pages, slice(30), 5 * HOUR)) == pytest.approx((1 - 0.3) / 20)
    assert left_over(failing(pages, slice(130), 5 * HOUR)) == pytest.approx((1 - 1.3) / 20)


def test_a_crawl_without_content_is_spent_once():
    """Epochs every quarter of a day; the page is tried again after two days."""
    pages, step = failing(quiet(), slice(30), 5 * HOUR), 6 * HOUR
    epochs = [NOW + i * step for i in range(-3, 5)]
    spared = [0.25 / 20 - left_over(pages, now=now, last=now - step) for now in epochs]
    assert sum(spared) == pytest.approx(0.3 / 20)
    assert np.count_nonzero(np.abs(spared) > 1e-12) == 1


def test_a_crawl_without_content_that_is_reported_late_is_spent_in_the_next_epoch():
    pages = failing(quiet(), slice(30), np.timedelta64(5, "m"))
    assert left_over(pages) == pytest.approx(1 / 20)
    later = left_over(pages, now=NOW + HOUR, last=NOW)
    assert later == pytest.approx((1 / 24 - 0.3) / 20)


def test_crawls_that_no_rate_asks_for_are_not_spent():
    """Pages without a share, announced or capped ones, and such as have never had content."""
    no_share, complete, capped, new = (np.arange(1_000) % 10 == i for i in range(4))
    observability = np.where(complete, Observability.complete, Observability.auto)
    pages = quiet(
        observability=observability.astype(np.int16), host_id=np.where(capped, 3, 1).astype(int)
    )
    crawled = np.where(new, NO_TIME, pages.last_observed_at)
    pages = replace(pages, last_observed_at=crawled)
    caps = columns(
        CapColumns,
        1,
        host_id=3,
        host="h",
        max_crawl_rate=1.0,
        group_id=0,
        group="",
        group_max_crawl_rate=np.nan,
    )
    rates = np.where(no_share, 0.0, 0.1)
    plain = left_over(pages, rates, caps=caps)
    others = no_share | complete | capped | new
    assert left_over(failing(pages, others, 5 * HOUR), rates, caps=caps) == plain
    assert left_over(failing(pages, ~others, 5 * HOUR), rates, caps=caps) < plain


def test_a_clock_set_back_spends_no_failure_of_the_future():
    pages = failing(quiet(), slice(30), -DAY)
    assert left_over(pages) == pytest.approx(1 / 20)


def test_first_crawls_and_results_that_nobody_reports_differ():
    pages, _ = corpus(40)
    pages = pages.take(slice(4))
    factor, observed = np.array([0.3, 0.96, 1.04, 0.9]), np.array([0, 0, 0, 7])
    pages = replace(pages, interval_factor=factor, n_observations=observed)
    assert n_recrawls(pages).tolist() == [0, 3, 3, 7]


def test_what_siblings_cannot_tell_goes_by_its_rate():
    pages, _ = corpus()
    ping_rate = np.where(np.arange(1_000) == 1, 2.0, 0.0)
    observability = np.where(np.arange(1_000) == 2, Observability.complete, Observability.auto)
    crawled = pages.last_observed_at.copy()
    crawled[3] = NO_TIME
    pages = replace(pages, observability=observability.astype(np.int16), last_observed_at=crawled)
    rates = np.where(np.arange(1_000) == 4, 0.0, 0.1)
    facts = known(1_000)._replace(ping_rate=ping_rate)
    urgent = urgency(pages, facts, rates, NO_CAPS, NOW)
    assert urgent.of_pages[1:5].tolist() == [1.0] * 4
    assert np.mean(urgent.of_pages[5:] != 1.0) > 0.8


def test_gone_pages_are_no_evidence():
    pages, _ = corpus()
    gone = pages.url_group == pages.url_group[0]
    gone[0] = False
    pages = replace(pages, importance=np.where(gone, 0.0, 1.0))
    rates = np.where(gone, 0.0, 0.1)
    urgent = urgency(pages, known(1_000), rates, NO_CAPS, NOW)
    assert urgent.of_pages[0] == pytest.approx(urgent.budget_factor)


def test_hosts_with_a_cap_are_not_crawled_faster_than_the_optimum_says():
    pages, _ = corpus()
    caps = columns(
        CapColumns,
        1,
        host_id=3,
        host="h",
        max_crawl_rate=1.0,
        group_id=0,
        group="",
        group_max_crawl_rate=np.nan,
    )
    urgent = urgency(pages, known(1_000), np.full(1_000, 0.1), caps, NOW)
    assert (urgent.of_pages[pages.host_id == 3] == 1.0).all()
    assert np.mean(urgent.of_pages[pages.host_id != 3] != 1.0) > 0.8


def test_a_page_s_own_bounds_hold_for_its_rate_times_its_urgency():
    rng = np.random.default_rng(2)
    low = np.where(rng.random(1_000) < 0.5, 0.099, np.nan)
    high = np.where(rng.random(1_000) < 0.5, 0.101, np.nan)
    pages, _ = corpus(min_crawl_rate=low, max_crawl_rate=high)
    rates = np.full(1_000, 0.1)
    urgent = urgency(pages, known(1_000), rates, NO_CAPS, NOW)
    crawled = rates * urgent.of_pages
    assert (crawled >= np.nan_to_num(low) * (1 - 1e-12)).all()
    assert (crawled <= np.nan_to_num(high, nan=np.inf) * (1 + 1e-12)).all()
    assert np.isclose(crawled, low).any()
    assert np.isclose(crawled, high).any()


def test_no_clock_runs_wild_and_none_stands_still():
    pages, _ = corpus(interval_factor=1e-30)
    moments = np.full(1_000, NOW - np.timedelta64(1, "us"))
    moments[::20] = NOW - 10_000 * DAY
    pages = replace(pages, last_observed_at=moments, last_interval=np.full(1_000, 1e-9))
    urgent = urgency(pages, known(1_000, 1e-12), np.full(1_000, 1e-9), NO_CAPS, NOW)
    assert (urgent.of_pages <= FASTEST).all()
    assert (urgent.of_pages >= 1 - SHARES.max() - 1e-12).all()
    assert urgent.of_pages.max() > 1


def test_rates_at_the_ends_of_what_numbers_hold_are_left_alone():
    pages, _ = corpus()
    rates = np.full(1_000, 0.1)
    rates[:3] = 5e-324, 1e-300, 1e300
    urgent = urgency(pages, known(1_000), rates, NO_CAPS, NOW)
    assert urgent.of_pages[:3].tolist() == [1.0] * 3


def test_a_clock_set_back_makes_nothing_older_than_it_is():
    pages, _ = corpus()
    ahead = replace(pages, last_observed_at=np.full(1_000, NOW + DAY))
    urgent = urgency(ahead, known(1_000), np.full(1_000, 0.1), NO_CAPS, NOW)
    np.testing.assert_allclose(urgent.of_pages, urgent.budget_factor)


def test_no_pages():
    nothing = EpochColumns.empty(estimate=(2,))
    urgent = urgency(nothing, known(0), np.zeros(0), NO_CAPS, NOW)
    assert len(urgent.of_pages) == 0
    assert urgent.budget_factor == 1.0
