"""Shifts of crawls by change hours: to better hours, within bounds, at the same rates."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.examples import examples
from support.hourly_cases import at_day, epoch_at, hours_of, known, no_hours, pages_of
from support.hours_cases import burst, many

from service.core.change_hours.best_hours import CONCENTRATION, FAST_INTERVAL
from service.epochs.shifts import SHIFTED_AHEAD, exposures, placed, shifted
from service.epochs.urgency import LastEpoch
from service.model.columns import NOT_SHIFTED, OUT_OF_TURN, CapColumns, ShiftColumns
from service.model.domain import Observability

HOUR = 1 / 24
NOON = burst(0.5)
LAG = 1 / 18 + 0.5 / CONCENTRATION
"""Mean lag of crawls after a burst: eight harmonics, and the spread of the load, days."""


NO_CAPS = CapColumns.empty()


def cap_of(host_id):
    """Return a cap of one crawl a day on a host."""
    return CapColumns(
        host_id=np.array([host_id]),
        host=np.array(["a.example"], object),
        max_crawl_rate=np.ones(1),
        group_id=np.zeros(1, np.int64),
        group=np.array([""], object),
        group_max_crawl_rate=np.full(1, np.nan),
    )


def a_shift(pages, crawl_rate, now, *, change_hours=None, urgency=None, shifts=None, between=HOUR):
    """Return urgency and shifts by change hours of noon, and the next crawls, days."""
    rate = np.broadcast_to(np.asarray(crawl_rate, np.float64), len(pages))
    change_hours = hours_of(NOON) if change_hours is None else change_hours
    if shifts is not None:
        change_hours = change_hours._replace(shifts=shifts)
    urgency = np.ones(len(pages)) if urgency is None else urgency
    last = LastEpoch.of(epoch_at(now - between))
    estimates, place = known(np.full(len(pages), 0.3)), place_of(pages, change_hours)
    rates = rate, urgency
    after = shifted(pages, estimates, *rates, change_hours, place, NO_CAPS, last, at_day(now)[()])
    crawled = (pages.last_observed_at - at_day(0.0)[()]) / np.timedelta64(1, "D")
    return after, crawled + pages.interval_factor / (rate * after.urgency)


def place_of(pages, change_hours):
    return placed(pages, change_hours.in_force)


def daily(n=200, seed=1, **values):
    """Return pages of one host, last crawled at any hour of day 9."""
    rng = np.random.default_rng(seed)
    return pages_of(np.ones(n, np.int64), 9.0 + rng.random(n), np.full(n, -1.0), **values)


def test_crawls_come_after_the_burst_within_half_a_day_of_their_instant():
    pages = daily()
    after, at = a_shift(pages, 1.0, 10.0)
    nominal = (pages.last_observed_at - at_day(0.0)[()]) / np.timedelta64(1, "D") + 1.0
    assert (np.abs(at - nominal) <= 0.5 + 1e-9).all()
    later = nominal > 10.0 + SHIFTED_AHEAD + HOUR
    np.testing.assert_allclose(at[later], nominal[later], atol=1e-6)  # a later epoch shifts them
    near = (nominal > 10.25) & (nominal < 10.7)
    lag = at[near] - 10.5
    assert lag.mean() == pytest.approx(LAG, abs=0.04)
    assert (lag > 0).all()
    assert (lag < LAG + 0.5 / CONCENTRATION + HOUR).all()
    np.testing.assert_allclose(after.shift / 1440, at - nominal, atol=1 / 1440)
    assert not after.carried.any()


def test_the_next_instant_counts_from_the_instant_by_the_rate():
    """A crawl that came 5 hours late leaves the next instant where it was."""
    pages = daily(1)
    shifts = ShiftColumns(page_id=pages.page_id, shift=np.int16([300]), carried=np.int16([-60]))
    crawled = at_day(9.97)
    pages = replace(pages, last_observed_at=crawled[None] if crawled.ndim == 0 else crawled)
    after, at = a_shift(pages, 1.0, 10.0, shifts=shifts, between=0.1)
    assert after.carried[0] == 300  # crawled since the last epoch
    nominal = 9.97 - 300 / 1440 + 1.0
    assert after.shift[0] / 1440 == pytest.approx(at[0] - nominal, abs=1 / 1440)
    earlier, _ = a_shift(pages, 1.0, 10.0, shifts=shifts, between=0.01)
    assert earlier.carried[0] == -60  # crawled before it


def test_crawls_of_later_days_stay_at_their_instants():
    """A page of five days, whose last crawl came two hours late, is shifted when it is near."""
    pages = daily(1)
    shifts = ShiftColumns(page_id=pages.page_id, shift=np.int16([0]), carried=np.int16([120]))
    crawled = (pages.last_observed_at[0] - at_day(0.0)[()]) / np.timedelta64(1, "D")
    nominal = crawled - 120 / 1440 + 5.0
    far = nominal - SHIFTED_AHEAD - 2 * HOUR
    after, at = a_shift(pages, 0.2, far, shifts=shifts)
    assert (after.shift[0], after.carried[0]) == (0, 120)
    assert at[0] == pytest.approx(nominal, abs=1e-6)
    after, at = a_shift(pages, 0.2, far + 3 * HOUR, shifts=shifts)
    assert after.shift[0] != 0
    assert at[0] == pytest.approx(nominal + after.shift[0] / 1440, abs=1 / 1440)


@pytest.mark.dear
@settings(max_examples=examples(1, 6))
@given(st.integers(0, 2**32 - 1), st.floats(0.3, 4.0))
@example(127, 0.413)  # crawls at the instants of epochs
def test_a_month_of_shifts_keeps_the_number_of_crawls(seed, interval):
    """A page is crawled when it is due, and every hour an epoch shifts its next crawl."""
    rng = np.random.default_rng(seed)
    pages, now, n_crawls = pages_of([1], [0.5], [-1.0]), 1.0, 0
    shifts, started, horizon = None, 1.0, 30.0
    while now < horizon:
        after, at = a_shift(pages, 1 / interval, now, shifts=shifts, between=2 * HOUR)
        shifts = ShiftColumns(page_id=pages.page_id, shift=after.shift, carried=after.carried)
        started, now = now, now + 2 * HOUR
        if at[0] < now:
            crawled = max(at[0], started)
            factor = rng.uniform(0.95, 1.05, 1)
            pages = pages_of([1], [crawled], [-interval], interval_factor=factor)
            n_crawls += 1
    expected = (horizon - 0.5) / interval
    assert abs(n_crawls - expected) <= 2 + min(1.0, 1 / interval) + 0.05 * np.sqrt(expected)


def test_pages_without_change_hours_keep_their_urgency():
    pages = daily(50)
    urgency = np.random.default_rng(2).uniform(0.5, 2, 50)
    others = replace(pages, host_id=np.full(50, 7))
    for change_hours, some in ((no_hours(), pages), (hours_of(NOON), others)):
        after, _ = a_shift(some, 0.5, 10.0, change_hours=change_hours, urgency=urgency)
        np.testing.assert_array_equal(after.urgency, urgency)
        assert (after.shift == NOT_SHIFTED).all()
        assert (after.carried == NOT_SHIFTED).all()


@pytest.mark.parametrize(
    "values",
    [
        {"observability": Observability.complete},
        {"last_observed_at": at_day([np.nan] * 50)},
        {"crawl_rate": 0.0},
        {"crawl_rate": 1 / 20},
    ],
)
def test_pings_first_crawls_and_rare_crawls_are_not_shifted(values):
    values = dict(values)
    rate = values.pop("crawl_rate", 1.0)
    pages = daily(50)
    filled = {name: np.full(50, v) if np.ndim(v) == 0 else v for name, v in values.items()}
    with np.errstate(divide="ignore"):
        after, _ = a_shift(replace(pages, **filled), rate, 10.0)
    assert (after.shift == NOT_SHIFTED).all()


@given(st.integers(0, 2**32 - 1))
def test_a_shift_stays_within_the_bounds_of_a_page(seed):
    rng = np.random.default_rng(seed)
    low, high = rng.uniform(0.7, 1.0, 60), rng.uniform(1.0, 1.4, 60)
    pages = daily(60, seed=seed % 100, min_crawl_rate=low, max_crawl_rate=high)
    after, _ = a_shift(pages, 1.0, 10.0)
    assert (after.urgency >= low - 1e-9).all()
    assert (after.urgency <= high + 1e-9).all()


def test_a_host_is_not_crawled_faster_than_its_delay_allows():
    """200 crawls a day with 3 minutes between them take ten hours, not four."""
    pages = daily()
    change_hours = hours_of(NOON, delay_s=180.0)
    _, at = a_shift(pages, 1.0, 10.0, change_hours=change_hours)
    counts = np.histogram(at % 1.0, 24, (0, 1))[0]
    assert counts.max() <= 30  # 20 an hour in the mean, by chance more
    _, faster = a_shift(pages, 1.0, 10.0)
    assert np.histogram(faster % 1.0, 24, (0, 1))[0].max() > 35


def test_a_best_hour_that_has_passed_is_made_up_for_at_once():
    pages = pages_of([1, 1], [9.3, 9.3], [-1.0, -1.0])
    after, at = a_shift(pages, 1.0, 10.45)  # nominal 10.3; noon is near
    assert (at >= 10.45 - 1e-6).all()
    assert (after.shift >= 0).all()


def test_pages_with_many_crawls_a_day_are_crawled_more_often_in_busy_hours():
    wave = burst(0.5)
    wave.coefficients[0, 2:9] = wave.coefficients[0, 10:] = 0.0
    wave.coefficients[0, [1, 9]] = -0.8, 0.0  # one wave with its peak at noon
    rate = 12.0
    wait = {}
    for hour in (0.0, 0.5):
        pages = pages_of([1], [10.0 + hour], [0.08])
        after, at = a_shift(pages, rate, 10.0 + hour + 0.01, change_hours=hours_of(wave))
        assert after.shift[0] == after.carried[0] == OUT_OF_TURN
        wait[hour] = at[0] - 10.0 - hour
    assert 1 / rate < FAST_INTERVAL
    assert wait[0.0] > 1.3 / rate
    assert wait[0.5] < 0.85 / rate


def test_a_pace_takes_epochs_of_an_hour_or_less():
    pages = pages_of([1], [10.5], [0.08])
    after, _ = a_shift(pages, 12.0, 10.51, between=0.25)
    assert after.urgency.tolist() == [1.0]


def test_extra_crawls_follow_a_fiftieth_of_those_that_nearly_always_change():
    n = 20_000
    pages = replace(daily(n), page_id=np.arange(1, n + 1))
    last = LastEpoch.of(epoch_at(10.0 - HOUR))
    for weight, share in ((0.0, 0.02), (0.5, 0.02), (0.95, 0.0)):
        profiles = burst(0.5, weight)
        change_hours = hours_of(profiles) if weight else no_hours()
        rate = np.full(n, 0.4)
        estimates, place = known(np.full(n, 0.9)), place_of(pages, change_hours)
        given = pages, estimates, rate, np.ones(n), change_hours, place
        after = shifted(*given, NO_CAPS, last, at_day(10.0)[()])
        wait = 1 / (0.4 * after.urgency)
        extra = np.count_nonzero(wait < 0.95)
        assert extra == pytest.approx(share * n, abs=5 * np.sqrt(share * n) + 1)
        assert np.count_nonzero(after.shift == OUT_OF_TURN) == extra
        capped = shifted(*given, cap_of(1), last, at_day(10.0)[()])
        assert not (capped.shift == OUT_OF_TURN).any()


def test_busy_hours_count_as_longer_for_siblings():
    pages = pages_of([1, 1, 2], [10.58, 10.3, 10.58], [0.1, 0.1, 0.1])
    change_hours = hours_of(NOON)
    exposure = exposures(pages, change_hours, place_of(pages, change_hours))
    assert exposure[0] > 0.5
    assert exposure[1] < 0.05
    assert exposure[2] == pytest.approx(0.1)
    whole = pages_of([1], [10.3], [-2.0])
    assert exposures(whole, change_hours, place_of(whole, change_hours))[0] == pytest.approx(2.0)
    nowhere = place_of(pages, no_hours())
    assert exposures(pages, None, nowhere) is None
    assert exposures(pages, no_hours(), nowhere) is None


def test_hosts_have_hours_of_their_own():
    both = many(NOON, 2)
    both.coefficients[1] = burst(0.0).coefficients[0]
    pages = daily(100)
    pages = replace(pages, host_id=np.repeat([1, 3], 50))
    _, at = a_shift(pages, 1.0, 10.0, change_hours=hours_of(both, host_id=(1, 3)))
    about_noon = np.abs(at % 1.0 - 0.64) < 0.16
    assert about_noon[:50].mean() > 0.6
    assert about_noon[50:].mean() < 0.2
