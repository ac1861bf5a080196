"""Best hours: the excess mass, the cost that it stands for, moves, turns and extra crawls."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import examples
from support.hours_cases import (
    HOURS,
    Day,
    burst,
    cosine,
    ein,
    interval_cost,
    many,
    two_waves,
)

import service.core.change_hours.best_hours as module
from service.core.change_hours.best_hours import (
    CONCENTRATION,
    FAST_INTERVAL,
    MOST_INTERVAL,
    Planned,
    excess_mass,
    moves,
    probe_delay,
    resistance,
    turns,
)
from service.core.change_hours.profile import ORDERS, SLOTS, TERMS, Profiles, waves
from service.core.checks import InvalidInput

FLAT = Day(np.ones_like(HOURS))
SLOTS_OF_DAY = np.arange(SLOTS) / SLOTS


def mass_at(day, at):
    """The excess mass of a day at any instant: that at midnight of a day that is shifted."""
    return float(excess_mass(day.profiles(shift=at))[0, 0])


def planned(nominal, interval=1.0, change_rate=1.0, turn=0.5, host=0):
    shape = np.shape(nominal)
    columns = (host, nominal, interval, change_rate, turn)
    return Planned(*(np.broadcast_to(column, shape) for column in columns))


def phase_cost(day, change_rate, interval, phase):
    """Cost a day of crawls at equal intervals of whole days, by numerical integration."""
    return interval_cost(day, change_rate, phase, phase + interval) / interval


@pytest.mark.parametrize(("phase", "cost"), [(0.1, 1.62354), (0.45, 1.42146)])
def test_a_slow_page_costs_half_its_interval_less_the_excess_mass(phase, cost):
    """Known answers for two waves, cut off at a twentieth, crawled every three days."""
    day, rate = two_waves(), 1e-6
    assert phase_cost(day, rate, 3.0, phase) / rate == pytest.approx(cost, abs=1e-4)
    assert 1.5 - mass_at(day, phase) == pytest.approx(cost, abs=1e-4)


@pytest.mark.parametrize(
    ("interval", "expected", "error"),
    [(1.0, 0.1, 0.001), (1.0, 1.0, 0.01), (1.0, 2.0, 0.03), (2.0, 2.0, 0.007), (3.0, 2.0, 0.004)],
)
def test_the_cost_of_a_phase_is_linear_in_the_excess_mass(interval, expected, error):
    day, x = cosine(), expected
    cost = [phase_cost(day, x / interval, interval, phase) for phase in SLOTS_OF_DAY]
    mass = excess_mass(day.profiles())[0]
    linear = ein(x) - 1.0 - np.expm1(-x) / x - mass * ein(x) / interval
    np.testing.assert_allclose(cost, linear, atol=error)
    assert abs(np.argmin(cost) - np.argmax(mass)) <= 0.05 * SLOTS


def test_a_crawl_costs_least_where_the_intensity_falls_through_its_mean():
    best = np.argmax(excess_mass(cosine(peak=0.3).profiles())[0]) / SLOTS
    assert best == pytest.approx(0.55, abs=0.5 / SLOTS)


def test_eight_harmonics_place_the_best_hour_an_eighteenth_of_a_day_after_a_burst():
    at = np.linspace(0.0, 0.2, 2_001)
    mass = [excess_mass(burst(-shift))[0, 0] for shift in at]
    assert at[np.argmax(mass)] == pytest.approx(1 / 18, abs=5e-4)
    assert 0.5 < max(mass) < 0.6  # half a day, and the overshoot of a truncated series


@pytest.mark.parametrize(("clicks", "error"), [(1, 0.1), (2, 0.1), (3, 0.25)])
def test_even_clicks_at_change_hours_are_worth_half_their_spacing(clicks, error):
    """Of three clicks a day, eight harmonics show two orders and lose a fifth."""
    rise = np.exp(-0.5 * (((HOURS * clicks) % 1.0 - 0.5) / clicks / 0.01) ** 2)
    mass = excess_mass(Day(rise).profiles())[0]
    assert mass.max() == pytest.approx(0.5 / clicks, rel=error)


@pytest.mark.parametrize("spread", [1 / 6, 1 / 3, 1.0])
def test_a_spread_averages_the_excess_mass_about_each_hour(spread):
    day = two_waves()
    fine = np.array([mass_at(day, at) for at in np.arange(960) / 960])
    width = round(960 * spread)
    about = np.arange(width + 1) - width // 2
    stretch = fine[(20 * np.arange(SLOTS)[:, None] + about) % 960]
    averaged = excess_mass(day.profiles(), spread)[0]
    mean = (stretch[:, 1:] + stretch[:, :-1]).mean(axis=1) / 2
    np.testing.assert_allclose(averaged, mean, atol=2e-4)


def test_hosts_have_their_own_spread_and_the_weight_of_their_change_hours():
    profiles = Profiles(many(burst(0.4), 3).coefficients, np.array([1.0, 0.5, 0.0]))
    mass = excess_mass(profiles, [1 / 6, 1 / 6, 1 / 3])
    np.testing.assert_allclose(mass[1], 0.5 * mass[0], rtol=1e-6)
    assert not mass[2].any()
    wide = excess_mass(burst(0.4), 1 / 3)[0]
    np.testing.assert_allclose(excess_mass(many(burst(0.4), 2), [1 / 6, 1 / 3])[1], wide)


@pytest.mark.parametrize(("x", "exact"), [(1.0, 0.7935), (2.0, 0.6554), (4.0, 0.4990)])
def test_moves_resist_as_the_cost_curves(x, exact):
    """A flat day: moving one crawl between two others by d costs Ein(x) kappa d²/T more."""
    interval, d = 2.0, 0.02

    def cost(move):
        early = interval_cost(FLAT, x / interval, 0.0, interval + move)
        return early + interval_cost(FLAT, x / interval, 0.0, interval - move)

    curvature = (cost(d) - cost(0.0)) / (ein(x) * d**2 / interval)
    assert curvature == pytest.approx(exact, abs=2e-3)
    assert -np.expm1(-x) / ein(x) == pytest.approx(exact, abs=1e-4)
    assert resistance(x) == pytest.approx(exact, abs=0.03)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("change_rate", "interval"), [(0.05, 2), (0.5, 2), (2.0, 2), (0.5, 1)])
@pytest.mark.parametrize("day", [cosine(), two_waves()])
def test_a_move_saves_nearly_all_that_a_move_can_save(day, change_rate, interval):
    """Between two crawls that stay, averaged over hours; of the range of all shifts."""
    mass = excess_mass(day.profiles())
    candidates = np.linspace(-0.5, 0.5, 41)
    regret, stay = [], []
    for nominal in np.arange(16) / 16 + 0.01:

        def cost(move, nominal=nominal):
            at, bounds = nominal + move, (nominal - interval, nominal + interval)
            early = interval_cost(day, change_rate, bounds[0], at, 400)
            return early + interval_cost(day, change_rate, at, bounds[1], 400)

        costs = np.array([cost(move) for move in candidates])
        chosen = moves(mass, planned([nominal], interval, change_rate), 0.0)[0]
        span = costs.max() - costs.min()
        regret.append((cost(chosen) - costs.min()) / span)
        stay.append((cost(0.0) - costs.min()) / span)
    assert np.mean(regret) < 0.06
    assert np.median(regret) < 0.02
    assert np.mean(stay) > 0.2


INTERVALS = st.floats(-3.0, 2.0).map(lambda power: 10.0**power)


@given(st.integers(0, 2**32 - 1), INTERVALS, st.floats(0, 1))
@settings(max_examples=examples(20, 60), deadline=None)
def test_moves_stay_within_the_window(seed, interval, spread):
    rng = np.random.default_rng(seed)
    coefficients = np.hstack((np.ones((3, 1)), rng.normal(0.0, 0.5, (3, TERMS - 1))))
    profiles = Profiles(coefficients, np.array([1.0, 0.3, 0.0]))
    n = 200
    crawls = Planned(
        rng.integers(0, 3, n),
        20_000.0 + 30.0 * rng.random(n),
        interval * rng.uniform(0.5, 2.0, n),
        rng.exponential(3.0, n),
        rng.random(n),
    )
    moved = moves(excess_mass(profiles, spread), crawls, spread)
    assert (np.abs(moved) <= np.minimum(0.5, 0.5 * crawls.interval) + 1e-12).all()
    within = (crawls.interval >= FAST_INTERVAL) & (crawls.interval <= MOST_INTERVAL)
    assert not moved[~within | (crawls.host == 2)].any()
    assert np.count_nonzero(moved) >= 0.9 * np.count_nonzero(within & (crawls.host != 2))


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=examples(15, 40), deadline=None)
def test_the_move_is_the_best_half_hour_of_the_window(seed):
    rng = np.random.default_rng(seed)
    coefficients = np.hstack((np.ones((4, 1)), rng.normal(0.0, 0.5, (4, TERMS - 1))))
    mass = excess_mass(Profiles(coefficients, np.ones(4)), 0.2)
    n = 50
    crawls = Planned(
        rng.integers(0, 4, n),
        20_000.0 + rng.random(n),
        rng.uniform(0.2, 3.0, n),
        rng.exponential(1.0, n),
        np.full(n, 0.5),
    )
    moved = moves(mass, crawls, 0.2)
    half = np.minimum(0.5, 0.5 * crawls.interval)
    slots = np.floor(crawls.nominal * SLOTS)[:, None] + np.arange(-25, 26)
    move = slots / SLOTS - crawls.nominal[:, None]
    kappa = resistance(crawls.change_rate * crawls.interval)
    score = mass[crawls.host[:, None], slots.astype(int) % SLOTS].astype(float)
    score -= (kappa / crawls.interval)[:, None] * move**2
    score[np.abs(move) > half[:, None]] = -np.inf
    best = score.max(axis=1)
    nearest = np.abs(move - moved[:, None]).argmin(axis=1)
    chosen = score[np.arange(n), nearest]
    np.testing.assert_allclose(chosen, best, atol=1e-6)
    np.testing.assert_allclose(move[np.arange(n), nearest], moved, atol=1e-9)


def test_whole_days_later_the_move_is_the_same():
    mass = excess_mass(two_waves().profiles(), 1 / 6)
    nominal = np.linspace(0.0, 1.0, 97)[:-1] + 1e-4
    moved = moves(mass, planned(nominal), 1 / 6)
    np.testing.assert_allclose(moves(mass, planned(nominal + 20_000.0), 1 / 6), moved, atol=1e-9)
    assert np.abs(moved).max() > 0.3


@pytest.mark.parametrize("block", [1, 7, 10_000])
def test_moves_do_not_depend_on_blocks(monkeypatch, block):
    rng = np.random.default_rng(1)
    profiles = many(burst(0.3), 4)
    crawls = Planned(
        rng.integers(0, 4, 100),
        rng.random(100),
        rng.uniform(0.1, 3, 100),
        np.ones(100),
        rng.random(100),
    )
    spread = np.array([1 / 6, 1 / 3, 0.0, 1 / 6])
    mass = excess_mass(profiles, spread)
    expected = moves(mass, crawls, spread)
    monkeypatch.setattr(module, "BLOCK", block)
    np.testing.assert_array_equal(moves(mass, crawls, spread), expected)


def test_pages_that_are_never_crawled_stay():
    mass = excess_mass(burst(0.3))
    assert moves(mass, planned([0.2, 0.2], interval=[np.inf, 1.0]), 0.0)[0] == 0.0
    empty = Planned(np.zeros(0, int), *np.zeros((4, 0)))
    assert moves(mass, empty, 0.0).shape == (0,)


def crawls_of_days(profiles, intervals, *, days, spread, rng):
    """Instants of crawls of pages whose nominal instants follow their intervals."""
    page = np.arange(len(intervals))
    nominal, mass, all_ = rng.random(len(page)) * intervals, excess_mass(profiles, spread), []
    while (nominal < days).any():
        host = page % len(profiles.weight)
        crawls = Planned(host, nominal, intervals, np.ones(len(page)), turns(page, nominal))
        all_.append(nominal + moves(mass, crawls, spread))
        nominal = nominal + intervals
    return np.array(all_).T


@pytest.mark.parametrize(("spread", "most"), [(1 / 6, 6.6), (1 / 3, 3.5)])
def test_the_best_hours_take_six_times_the_mean_load_of_a_host(spread, most):
    """Three times for hosts with a spread of a third of a day."""
    assert pytest.approx(1 / 6) == 1 / CONCENTRATION
    rng = np.random.default_rng(2)
    intervals = rng.uniform(0.6, 3.0, 3_000)
    at = crawls_of_days(burst(0.4), intervals, days=30.0, spread=spread, rng=rng)
    at = at[(at > 3.0) & (at < 27.0)]
    load = np.bincount((at % 1.0 * 24).astype(int), minlength=24) / len(at) * 24
    assert 0.8 / spread < load.max() < most
    first, last = 0.4, 0.4 + 1 / 18 + spread
    assert ((at % 1.0 > first - 0.02) & (at % 1.0 < last)).mean() > 0.75


@pytest.mark.dear
@given(st.integers(0, 2**32 - 1))
@settings(max_examples=6, deadline=None)
def test_moved_crawls_keep_their_rate(seed):
    """In any time L a page has L/T crawls, to within 1 + 2h/T, with h the window."""
    rng = np.random.default_rng(seed)
    intervals = rng.uniform(0.15, 5.0, 50)
    at = crawls_of_days(two_waves().profiles(), intervals, days=60.0, spread=1 / 6, rng=rng)
    start, length = rng.uniform(5.0, 20.0), rng.uniform(1.0, 30.0)
    counts = ((at >= start) & (at < start + length)).sum(axis=1)
    most = 1.0 + 2.0 * np.minimum(0.5, 0.5 * intervals) / intervals
    assert (np.abs(counts - length / intervals) <= most + 1e-9).all()


def test_turns_are_even_over_pages_and_over_days():
    for page, day in ((np.arange(50_000), 3.0), (np.full(50_000, 7), np.arange(50_000.0))):
        turn = turns(page, day)
        assert turn.min() >= 0
        assert turn.max() < 1
        counts = np.bincount((turn * 20).astype(int), minlength=20)
        assert np.abs(counts / 2_500 - 1).max() < 0.09
    assert turns(np.array([5]), 3.2) == turns(np.array([5]), 3.9)
    assert turns(np.array([5]), 3.9) != turns(np.array([5]), 4.1)
    late = turns(np.arange(50_000), 3.0), turns(np.arange(50_000), 4.0)
    assert abs(np.corrcoef(*late)[0, 1]) < 0.02


def test_one_crawl_in_fifty_of_pages_that_always_change_is_followed_by_another():
    page = np.arange(100_000)
    delay = probe_delay(page, 3.5, weight=0.2, expected=2.0)
    chosen = delay[~np.isnan(delay)]
    assert len(chosen) / 100_000 == pytest.approx(0.02, abs=0.0015)
    assert chosen.min() >= 0.02
    assert chosen.max() <= 0.92
    assert chosen.mean() == pytest.approx(0.47, abs=0.02)
    assert np.isnan(probe_delay(page, 3.5, weight=0.95, expected=2.0)).all()
    assert np.isnan(probe_delay(page, 3.5, weight=0.2, expected=1.4)).all()
    other = probe_delay(page, 4.5, weight=0.2, expected=2.0)
    both = ~np.isnan(delay) & ~np.isnan(other)
    assert both.mean() == pytest.approx(0.02**2, abs=3e-4)
    again = probe_delay(page, 3.5 + np.nan_to_num(delay), weight=0.2, expected=2.0)
    followed = np.isfinite(again[~np.isnan(delay)])
    assert followed.mean() == pytest.approx(0.02, abs=0.013), "an extra crawl has a draw of its own"
    turn = turns(page, 3.5)[~np.isnan(delay)]
    assert abs(np.corrcoef(turn, chosen)[0, 1]) < 0.08


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"nominal": [0.0, np.nan]}, r"nominal .* \(entries 1\)"),
        ({"interval": [0.0, 1.0]}, "interval must be positive"),
        ({"interval": [np.nan, 1.0]}, "interval must be positive"),
        ({"change_rate": [-1.0, 1.0]}, "change_rate"),
        ({"turn": [0.5, 1.0]}, "turn"),
        ({"host": [0, 1]}, r"host must lie in \[0, 1\)"),
        ({"host": [-1, 0]}, "host"),
        ({"interval": [1.0]}, "shape"),
    ],
)
def test_crawls_out_of_their_domain_are_refused_by_name(change, named):
    crawls = planned(np.zeros(2))._replace(**{k: np.array(v) for k, v in change.items()})
    with pytest.raises(InvalidInput, match=named):
        moves(excess_mass(burst()), crawls, 0.1)


def test_a_spread_of_more_than_a_day_is_refused():
    for call in (
        lambda: excess_mass(burst(), 1.5),
        lambda: moves(excess_mass(burst()), planned(np.zeros(1)), -0.1),
    ):
        with pytest.raises(InvalidInput, match="spread"):
            call()
    with pytest.raises(InvalidInput, match="expected"):
        resistance(-1.0)


def test_blocks_of_hosts_change_no_mass():
    rng = np.random.default_rng(1)
    n = module.ROWS + 200
    profiles = Profiles(rng.normal(size=(n, TERMS)) * 0.3, rng.random(n))
    spread = rng.random(n)
    cosines, sines = np.split(profiles.harmonics, 2, axis=1)
    scale = np.sinc(spread[:, None] * ORDERS) * profiles.weight[:, None] / (2 * np.pi * ORDERS)
    wave = waves(SLOTS_OF_DAY)
    plainly = (cosines * scale) @ wave.imag.T - (sines * scale) @ wave.real.T
    np.testing.assert_allclose(excess_mass(profiles, spread), plainly, rtol=0, atol=1e-7)


def test_masses_take_little_memory_beside_the_result():
    n = 20_000
    profiles = Profiles(np.full((n, TERMS), 0.1), np.ones(n))
    excess_mass(profiles)  # what the first call loads is no memory of the second
    tracemalloc.start()
    mass = excess_mass(profiles, np.full(n, 0.1))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.5 * mass.nbytes
