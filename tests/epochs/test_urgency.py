"""Urgency: by siblings, within bounds and caps, and so that the bandwidth is met."""

from dataclasses import replace

import numpy as np
import pytest
from support.store_cases import T0, columns
from support.urgency_cases import DAY, NO_CAPS, NOW, corpus, known, urgency

from service.core.shared_changes import PRIOR, SHARES, ShareEvidence
from service.core.siblings import age_bin, siblings
from service.epochs.urgency import FASTEST, NO_EPOCH, LastEpoch
from service.model.arrays import INSTANT, NO_TIME
from service.model.columns import CapColumns, EpochColumns
from service.model.domain import Epoch, EpochStatus, Observability


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
        last = LastEpoch(NOW, evidence)
        urgent = urgency(pages, known(1_000), np.full(1_000, 0.1), NO_CAPS, NOW, last)
        np.testing.assert_allclose(urgent.of_pages, shown.observed_ratio(SHARES[best]), rtol=1e-6)


def test_an_epoch_without_crawl_rates_keeps_what_the_last_one_learnt():
    pages, _ = corpus()
    last = LastEpoch(NOW - DAY, ShareEvidence.none(4))
    urgent = urgency(pages, known(1_000), np.zeros(1_000), NO_CAPS, NOW, last, 1.2)
    assert urgent.evidence is last.evidence
    assert urgent.budget_factor == 1.2
    assert (urgent.of_pages == 1.0).all()


def test_an_epoch_adds_the_crawls_since_the_last_to_the_evidence():
    pages, _ = corpus()
    first = urgency(pages, known(1_000), np.full(1_000, 0.1), NO_CAPS, NOW)
    assert not first.evidence.score.any()
    last = LastEpoch(NOW - 2 * DAY, first.evidence)
    second = urgency(pages, known(1_000), np.full(1_000, 0.1), NO_CAPS, NOW, last)
    recent = pages.last_observed_at >= NOW - 2 * DAY
    assert second.evidence.n_changed == np.count_nonzero(recent & (pages.last_interval > 0))
    assert second.evidence.score.any()


def test_the_first_epoch_and_one_without_a_certificate_leave_the_rates_as_they_are():
    pages, _ = corpus()
    assert urgency(pages, known(1_000), np.full(1_000, 0.1), NO_CAPS, NOW).budget_factor == 1.0
    assert LastEpoch.of(None) == NO_EPOCH
    assert LastEpoch.of(Epoch(1, EpochStatus.failed, T0, T0)) == NO_EPOCH


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
        first_share=None,
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


def test_what_siblings_show_is_kept_where_the_urgency_hides_it():
    n = 1_000
    plain, _ = corpus()
    ratio = urgency(plain, known(n), np.full(n, 0.1), NO_CAPS, NOW).of_pages
    assert ratio.std() > 0.05
    high = np.where(np.arange(n) % 3 == 0, 0.0801, np.nan)
    pages, _ = corpus(max_crawl_rate=high)
    cap = {"host": "h", "max_crawl_rate": 1.0, "group_id": 0, "group": ""}
    caps = columns(CapColumns, 1, host_id=3, group_max_crawl_rate=np.nan, **cap)
    urgent = urgency(pages, known(n), np.full(n, 0.1), caps, NOW, NO_EPOCH, 0.8)
    shifted = np.arange(n) % 5 == 0
    hidden = urgent.hidden_ratio(urgent.of_pages, shifted)
    shown = np.where(urgent.of_pages == 1.0, 1.0, urgent.of_pages / 0.8)
    np.testing.assert_allclose(np.where(hidden > 0, hidden, shown), ratio, rtol=2e-6)
    at_bound = np.isclose(0.1 * urgent.of_pages, high)
    assert at_bound.any()
    moved = np.abs(ratio - shown) > 1e-5
    assert ((hidden > 0)[at_bound & moved]).all()
    assert (hidden > 0)[shifted].all()
    assert not (hidden > 0)[~shifted & ~at_bound & (pages.host_id != 3)].any()


def test_urgencies_that_show_all_ratios_hide_none():
    pages, _ = corpus()
    urgent = urgency(pages, known(1_000), np.full(1_000, 0.1), NO_CAPS, NOW, NO_EPOCH, 0.8)
    assert urgent.hidden_ratio(urgent.of_pages, np.zeros(1_000, bool)) is None


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


def test_an_archive_is_not_due_when_the_live_pages_of_its_directory_change():
    n = 200
    live = np.arange(n) < 2
    age = np.where(live, 0.05, np.linspace(1, 20, n))
    pages, _ = corpus(n, url_group=3, host_id=1)
    crawled = NOW - (age * 86_400e6).astype("m8[us]")
    interval = np.where(live, 0.1, -10.0)
    pages = replace(pages, last_observed_at=crawled.astype(INSTANT), last_interval=interval)
    facts = known(n, np.where(live, 1.0, 0.001))
    for rate, sooner in ((1.0, True), (8.0, False)):  # one crawl a day is no matter of the hour
        urgent = urgency(pages, facts, np.where(live, rate, 0.1), NO_CAPS, NOW)
        assert (urgent.of_pages[~live].max() > 1.1) == sooner
