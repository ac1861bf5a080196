import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import exp1
from support.allocation_cases import golden_set, magnitudes

from recrawl_lab.reference.simulate import simulated_cost
from service.core.allocation.harmonic import allocate_harmonic
from service.core.checks import InvalidInput
from service.core.costs import costs


def one(of, change_rate, crawl_rate, crawl_probability, complete, timing="poisson"):
    page = [1.0], [change_rate], [crawl_rate], [crawl_probability], [complete]
    return getattr(costs(*page, timing=timing), of)[0]


@pytest.mark.parametrize(
    ("x", "harmonic", "binary"),
    [
        (0.01, 0.004991680534749854, 0.004983374916805339),
        (0.5, 0.23078075969248157, 0.21306131942526685),
        (2.0, 0.7515957145512329, 0.5676676416183064),
        (10.0, 1.979800374871532, 0.9000045399929762),
    ],
)
def test_crawling_on_time_costs_what_was_published(x, harmonic, binary):
    assert one("harmonic", x, 1.0, 0, False, "periodic") == pytest.approx(harmonic, rel=1e-13)
    assert one("binary", x, 1.0, 0, False, "periodic") == pytest.approx(binary, rel=1e-13)


@given(st.floats(1e-6, 50))
def test_crawling_on_time_averages_the_cost_over_an_interval(x):
    """Ein(u) is the expected penalty u changes after a crawl: average it by quadrature."""
    ein = lambda u: quad(lambda t: -np.expm1(-t) / t, 0, u)[0]  # noqa: E731
    average = quad(ein, 0, x)[0] / x
    assert one("harmonic", x, 1.0, 0, False, "periodic") == pytest.approx(average, rel=1e-9)
    average = quad(lambda u: -np.expm1(-u), 0, x)[0] / x
    assert one("binary", x, 1.0, 0, False, "periodic") == pytest.approx(average, rel=1e-9)


@given(st.floats(1, 1e9) | st.floats(39, 41))
def test_crawling_on_time_seldom_costs_what_the_closed_form_says(x):
    """E1 by scipy; what the cost leaves out of it far out has no digit left there."""
    closed = np.euler_gamma + np.log(x) + exp1(x) - 1 - np.expm1(-x) / x
    assert one("harmonic", x, 1.0, 0, False, "periodic") == pytest.approx(closed, rel=3e-14)


@pytest.mark.parametrize("k", [1, 2, 3, 7, 49, 1000])
def test_crawling_every_kth_ping_costs_the_harmonic_number(k):
    expected = (1 / np.arange(1, k + 1)).sum() - 1
    assert one("harmonic", 3.0, 0, 1 / k, True, "periodic") == pytest.approx(expected, abs=1e-12)
    assert one("binary", 3.0, 0, 1 / k, True, "periodic") == pytest.approx(1 - 1 / k)


def assert_costs_what_it_simulates(seed, change_rate, clock=0.0, p=0.0, timing="poisson", **noise):
    """Closed forms against ten long plays, within five of their standard errors."""
    rng = np.random.default_rng(seed)
    days = 40_000 / change_rate
    plays = [
        simulated_cost(rng, days, change_rate, clock, p, timing=timing, **noise) for _ in range(10)
    ]
    page = [2.0], [change_rate], [clock], [p], [not noise and p > 0]
    given_ = {name: [share] for name, share in noise.items()}
    for of, counted in zip(("harmonic", "binary"), np.transpose(plays), strict=True):
        error = counted.std(ddof=1) / np.sqrt(10)
        assert error < 0.01 * max(counted.mean(), 0.1)
        closed = getattr(costs(*page, timing=timing, **given_), of)[0] / 2.0
        assert abs(closed - counted.mean()) < 5 * error + 1e-9, (of, closed, counted.mean())


@pytest.mark.parametrize("crawl_rate", [0.1, 1.0, 8.0])
def test_poisson_clocks_cost_what_a_simulation_counts(crawl_rate):
    assert_costs_what_it_simulates(1, 1.5, crawl_rate)


@pytest.mark.parametrize("crawl_rate", [0.1, 1.0, 8.0])
def test_crawling_on_time_costs_what_a_simulation_counts(crawl_rate):
    assert_costs_what_it_simulates(2, 1.5, crawl_rate, timing="periodic")


@pytest.mark.parametrize("p", [0.03, 0.3, 1 / 3, 0.5, 0.77, 1.0])
def test_ping_credit_costs_what_a_simulation_counts(p):
    assert_costs_what_it_simulates(3, 2.5, p=p, timing="periodic")


@pytest.mark.parametrize(("clock", "p"), [(0.0, 0.3), (0.5, 0.4), (3.0, 0.05), (0.0, 1.0)])
def test_pings_crawled_by_lot_cost_what_a_simulation_counts(clock, p):
    assert_costs_what_it_simulates(4, 2.0, clock, p)


@pytest.mark.parametrize(
    ("clock", "p", "recall", "precision"),
    [(0.5, 0.3, 0.7, 0.4), (0.5, 1.0, 0.2, 1.0), (0.1, 0.9, 1.0, 0.3), (1.0, 0.5, 0.0, 1.0)],
)
def test_noisy_pings_cost_what_a_simulation_counts(clock, p, recall, precision):
    noise = {"ping_recall": recall, "ping_precision": precision}
    assert_costs_what_it_simulates(5, 2.0, clock, p, **noise)


def test_clock_and_credit_together_cost_less_than_the_better_of_them():
    rng = np.random.default_rng(6)
    for clock, p in ((0.5, 0.3), (2.0, 0.1)):
        harmonic, binary = simulated_cost(rng, 20_000.0, 2.0, clock, p, timing="periodic")
        assert harmonic < one("harmonic", 2.0, clock, p, True, "periodic")
        assert binary < one("binary", 2.0, clock, p, True, "periodic")


@pytest.mark.dear
def test_the_total_of_a_corpus_is_what_its_pages_are_simulated_to_cost():
    rng = np.random.default_rng(7)
    importance, change_rate = rng.lognormal(0, 1, 30), rng.lognormal(0, 1, 30)
    complete = np.arange(30) % 3 == 0
    allocation = allocate_harmonic(importance, change_rate, complete, 20.0)
    rates = allocation.crawl_rate, allocation.crawl_probability
    for timing in "poisson", "periodic":
        counted = sum(
            weight * np.array(simulated_cost(rng, 20_000 / change, change, *page, timing=timing))
            for weight, change, *page in zip(importance, change_rate, *rates, strict=True)
        )
        closed = np.sum(costs(importance, change_rate, *rates, complete, timing=timing), axis=1)
        np.testing.assert_allclose(counted, closed, rtol=0.01)


def test_the_golden_set_executed_on_time_costs_what_was_published():
    importance, change_rate, complete, bandwidth = golden_set()
    allocation = allocate_harmonic(importance, change_rate, complete, bandwidth)
    rates = allocation.crawl_rate, allocation.crawl_probability, complete
    harmonic = costs(importance, change_rate, *rates, timing="periodic").harmonic.sum()
    binary = costs(importance, change_rate, *rates, timing="periodic").binary.sum()
    assert (harmonic / 1000, binary / 1000) == pytest.approx((14.115, 9.753), abs=5e-4)


@given(magnitudes(12, zero=False), magnitudes(12, zero=False), st.sampled_from([0.0, 0.2, 1.0]))
def test_crawling_on_time_never_costs_more_than_at_random(change_rate, crawl_rate, p):
    for of in "harmonic", "binary":
        for clock, probability, complete in [(crawl_rate, 0.0, False), (0.0, p, True)]:
            on_time = one(of, change_rate, clock, probability, complete, "periodic")
            at_random = one(of, change_rate, clock, probability, complete)
            assert 0 <= on_time <= at_random * (1 + 1e-12)


def test_a_page_that_is_never_crawled_costs_without_limit_unless_it_never_changes():
    rates = [0.0, 0.0, 0.0], [0.0, 0.0, 0.0], [False, True, False]
    for timing in "poisson", "periodic":
        cost = costs([1.0, 1.0, 0.0], [1.0, 1.0, 1.0], *rates, timing=timing).harmonic
        assert cost.tolist() == [np.inf, np.inf, 0]
        assert costs([2.0, 1.0, 0.0], [1.0] * 3, *rates, timing=timing).binary.tolist() == [2, 1, 0]
        assert costs([1.0] * 3, [0.0] * 3, *rates, timing=timing).harmonic.tolist() == [0, 0, 0]
        assert costs([1.0] * 3, [0.0] * 3, *rates, timing=timing).binary.tolist() == [0, 0, 0]


def test_noisy_pages_are_allocated_at_the_cost_of_the_published_example():
    importance, change_rate = [10.0, 5.0, 1.0, 3.0, 8.0, 0.5], [0.1, 1.0, 2.0, 0.5, 0.25, 4.0]
    noise = {
        "ping_recall": [0.9, 0.5, 0, 0.8, 1, 0.99],
        "ping_precision": [0.8, 0.6, 1, 1, 1, 0.9],
    }
    unknown = [False] * 6
    allocation = allocate_harmonic(importance, change_rate, unknown, 2.0, **noise)
    rates = allocation.crawl_rate, allocation.crawl_probability, unknown
    cost = costs(importance, change_rate, *rates, **noise).harmonic.sum()
    assert cost == pytest.approx(7.6246990872677, rel=1e-12)
    with pytest.raises(InvalidInput, match="no closed form for noisy pings"):
        costs(importance, change_rate, *rates, timing="periodic", **noise)


def test_untrusted_pings_earn_nothing():
    assert one("harmonic", 1.0, 0.0, 1.0, False) == np.inf
    assert one("harmonic", 1.0, 0.0, 1.0, True) == 0


def test_senseless_arguments_are_refused_by_name():
    with pytest.raises(InvalidInput, match=r"crawl_probability must be in \[0, 1\] \(entries 0\)"):
        one("harmonic", 1.0, 1.0, 1.5, True)
    with pytest.raises(InvalidInput, match="crawl_rate must be"):
        one("binary", 1.0, np.nan, 0.5, True)
    with pytest.raises(InvalidInput, match="timing is 'weekly'"):
        one("harmonic", 1.0, 1.0, 0.5, True, "weekly")
    with pytest.raises(InvalidInput, match="complete has shape"):
        costs([1.0], [1.0], [1.0], [0.0], [True, False])
