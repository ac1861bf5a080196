"""Shifts to better hours inside of windows, and what windows cost hosts."""

import numpy as np
import pytest

from service.core.change_hours.best_hours import Planned, excess_mass, turns
from service.core.change_hours.profile import Profiles
from service.core.open_hours import DAY_US, OpenHours
from service.epochs.capacities import Capacities, kept, limited
from service.epochs.open_shifts import MINUTE_US, nominal_in_open_time, shifts_in_open_time
from service.epochs.windows import HostWindows
from service.model.columns import CapColumns

BEGIN = np.datetime64("2026-05-01", "us")
N = 400


def nights(begin_h=20, hours=10, days=60):
    openings = BEGIN + np.arange(days) * np.timedelta64(1, "D") + np.timedelta64(begin_h, "h")
    length = np.timedelta64(hours, "h")
    return OpenHours.of(openings, openings + length, BEGIN, openings[-1])


def changes_at(hour):
    """Return change hours with all changes at one hour."""
    profiles = Profiles(np.eye(17)[:1], np.ones(1))
    k = np.arange(1, 9)
    wave = 2.0 * np.exp(-2j * np.pi * k * hour / 24)
    profiles.coefficients[0, 1:9], profiles.coefficients[0, 9:] = wave.real, -wave.imag
    return excess_mass(profiles, 1 / 6)


def played(hours, mass, rate=1.0):
    rng = np.random.default_rng(5)
    last = hours.instant((rng.random(N) * 10 * 10 / 24 * DAY_US).astype(np.int64))
    step = np.full(N, 1.0 / rate)
    open_us, at = nominal_in_open_time(hours, last, np.zeros(N), step)
    nominal = (at - np.datetime64(0, "us")) / np.timedelta64(1, "D")
    page = np.arange(1, N + 1)
    planned = Planned(np.zeros(N, np.int64), nominal, step, np.full(N, 1.0), turns(page, nominal))
    minutes = shifts_in_open_time(hours, mass, planned, open_us, np.full(1, 1 / 6), 0.0)
    wait = hours.step(step) + minutes / 1_440
    return last, hours.due(last, hours.interval(np.maximum(wait, 1e-3))), open_us, minutes


def hour_of(at):
    return ((at - at.astype("M8[D]")) / np.timedelta64(1, "h")).astype(float)


def test_shifted_crawls_lie_in_windows_and_after_the_changes():
    hours = nights()
    _, due, open_us, minutes = played(hours, changes_at(0.0))
    assert (hours.opening(due) == due).all()
    after = ((hour_of(due) + 0.0) % 24 < 5.5).mean()
    plain = ((hour_of(hours.instant(open_us))) % 24 < 5.5).mean()
    assert after > 0.9
    assert plain < 0.7
    expected = hours.instant(open_us + (minutes * MINUTE_US).astype(np.int64))
    # the urgency of an epoch gives the due rule the same instant, to a minute
    assert (np.abs(expected - due) <= np.timedelta64(90, "s")).mean() > 0.99


def test_changes_in_a_closure_leave_crawls_at_their_opening_side():
    hours = nights()
    _, due, *_ = played(hours, changes_at(14.0))
    assert (hours.opening(due) == due).all()
    since_opening = (hour_of(due) - 20) % 24
    assert since_opening.mean() < 4.0


def windows_of(hours, capacity, queue=(1, 2)):
    return HostWindows(
        host_id=np.array([1, 2]),
        host=np.array(["a.example", "b.example"], object),
        queue_id=np.array(queue),
        hours=np.array([hours, hours], object),
        texts=np.array([None, None], object),
        capacity=np.asarray(capacity, np.float64),
        at_delay=np.full(2, np.inf),
    )


@pytest.mark.parametrize("rate", [0.5, 3.0, 24.0])
def test_limits_rise_until_the_crawls_that_are_made_fill_the_open_time(rate):
    hours, n = nights(hours=8), 100
    wanted = np.full(n, rate)
    made = float((wanted * kept(np.full(n, hours, object), wanted)).sum())
    capacity = 0.6 * made
    capacities = Capacities(windows_of(hours, [capacity, np.inf]), np.zeros(n, np.int64))
    rates = wanted
    for _ in range(12):
        if not capacities.exceeded(rates):
            break
        # a solver that shares a cap evenly
        rates = np.minimum(wanted, capacities.limits[1] / n)
    share = kept(np.full(n, hours, object), rates)
    assert float((rates * share).sum()) == pytest.approx(capacity, rel=0.02)
    (loss,) = capacities.losses(rates, 5.0, {})
    assert loss.host == "a.example"
    assert loss.wanted == pytest.approx(rate * n)
    assert loss.by_delay + loss.by_closures == pytest.approx(rate * n - capacity, rel=0.03)


def test_a_host_within_its_capacity_is_not_limited():
    capacities = Capacities(windows_of(nights(), [1e6, 1e6]), np.zeros(3, np.int64))
    assert not capacities.exceeded(np.ones(3))
    assert capacities.limits == {}
    assert capacities.losses(np.ones(3), 5.0, {}) == []


def test_limits_join_the_caps_that_are_set():
    caps = CapColumns(
        host_id=np.array([2, 7]),
        host=np.array(["b.example", "c.example"], object),
        max_crawl_rate=np.array([50.0, 9.0]),
        group_id=np.zeros(2, np.int64),
        group=np.array(["", ""], object),
        group_max_crawl_rate=np.full(2, np.nan),
    )
    of_hosts = limited(caps, windows_of(nights(), [1.0, 1.0]), {1: 20.0, 2: 80.0})
    assert of_hosts.host_id.tolist() == [1, 2, 7]
    assert of_hosts.max_crawl_rate.tolist() == [20.0, 50.0, 9.0]
    of_group = limited(caps, windows_of(nights(), [1.0, 1.0], (-5, -5)), {-5: 30.0})
    assert of_group.group_id.tolist() == [5, 5, 0]
    assert of_group.group_max_crawl_rate[:2].tolist() == [30.0, 30.0]
    assert limited(caps, windows_of(nights(), [1.0, 1.0]), {}) is caps


def test_the_limit_of_a_group_holds_for_its_hosts_without_windows():
    caps = CapColumns(
        host_id=np.array([7]),
        host=np.array(["c.example"], object),
        max_crawl_rate=np.array([np.nan]),
        group_id=np.array([5]),
        group=np.array(["g"], object),
        group_max_crawl_rate=np.array([90.0]),
    )
    within = limited(caps, windows_of(nights(), [1.0, 1.0], (-5, -5)), {-5: 30.0})
    assert within.group_id.tolist() == [5, 5, 5]
    assert within.group_max_crawl_rate.tolist() == [30.0, 30.0, 30.0]
