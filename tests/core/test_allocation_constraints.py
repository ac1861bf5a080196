import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.optimize import minimize
from support.allocation_cases import golden_set, magnitudes, six_pages
from support.examples import examples

from service.core.allocation.blocks import LARGE
from service.core.allocation.harmonic import allocate_harmonic
from service.core.checks import BandwidthInfeasible, InvalidInput

SIX_HOSTS = [0, 0, 1, 1, 0, 1]


def ping_columns(case, recall, precision):
    recall = np.where(case.complete, 1.0, recall)
    precision = np.where(case.complete, 1.0, precision)
    return recall * case.change_rate / precision, (1 - recall) * case.change_rate, precision


def noisy_cost(case, allocation, recall=0.0, precision=1.0):
    """mu ln(1 + (alpha + (1-p) q g)/c) of pages that matter, c = rho + p g."""
    ping_rate, alpha, q = ping_columns(case, recall, precision)
    p = allocation.crawl_probability
    crawls = allocation.crawl_rate + p * ping_rate
    missed = alpha + (1 - p) * q * ping_rate
    matters = (case.importance > 0) & (case.change_rate > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(matters, case.importance * np.log1p(missed / crawls), 0.0).sum()


def total_rate(case, allocation, recall=0.0, precision=1.0):
    ping_rate = ping_columns(case, recall, precision)[0]
    return allocation.crawl_rate + allocation.crawl_probability * ping_rate


def test_a_host_at_its_cap_has_a_multiplier_of_its_own():
    case = six_pages(2.0)
    allocation = allocate_harmonic(*case, host=SIX_HOSTS, host_bandwidth=[0.6, np.inf])
    assert total_rate(case, allocation) == pytest.approx(
        [
            0.16517042154147524,
            0.1848295784585248,
            0.4435065006768244,
            0.6855657449491128,
            0.25,
            0.27092775437406275,
        ],
        rel=1e-12,
    )
    assert allocation.multiplier == pytest.approx(1.8455104430152376, rel=1e-12)
    assert allocation.host_multiplier == pytest.approx(
        [22.83193102669382, 1.8455104430152376], rel=1e-12
    )
    assert noisy_cost(case, allocation) == pytest.approx(18.719317847406018, rel=1e-12)
    assert allocation.kkt_residual < 1e-14


def test_bounds_and_hosts_together():
    case = six_pages(2.0)
    allocation = allocate_harmonic(
        *case,
        host=SIX_HOSTS,
        host_bandwidth=[0.6, np.inf],
        min_crawl_rate=np.full(6, 0.05),
        max_crawl_rate=np.full(6, 0.5),
    )
    assert total_rate(case, allocation) == pytest.approx(
        [0.16517042154147524, 0.1848295784585248, 0.5, 0.5, 0.25, 0.4], rel=1e-12
    )
    assert allocation.multiplier == pytest.approx(1.25, rel=1e-12)
    assert noisy_cost(case, allocation) == pytest.approx(18.863721330996373, rel=1e-12)


def test_noisy_pings():
    case = six_pages(2.0)
    recall, precision = [0.9, 0.5, 0, 0.8, 1, 0.99], [0.8, 0.6, 1, 1, 1, 0.9]
    untrusted = case._replace(complete=np.zeros(6, bool))
    allocation = allocate_harmonic(*untrusted, ping_recall=recall, ping_precision=precision)
    assert total_rate(untrusted, allocation, recall, precision) == pytest.approx(
        [
            0.15591638000388466,
            0.8333333333333334,
            0.23182045244877003,
            0.4,
            0.25,
            0.1289298342140118,
        ],
        rel=1e-9,
    )
    assert allocation.crawl_probability == pytest.approx(
        [1, 1, 0, 1, 1, 0.02930223504863905], rel=1e-9
    )
    assert allocation.multiplier == pytest.approx(3.8656185209398317, rel=1e-9)
    assert noisy_cost(untrusted, allocation, recall, precision) == pytest.approx(
        7.6246990872677, rel=1e-9
    )


def test_pings_that_are_all_trusted_or_all_absent_are_the_plain_problem():
    case = golden_set()
    plain = allocate_harmonic(*case)
    noisy = allocate_harmonic(
        case.importance,
        case.change_rate,
        np.zeros(1000, bool),
        case.bandwidth,
        ping_recall=case.complete.astype(float),
        ping_precision=np.ones(1000),
    )
    assert noisy.crawl_rate == pytest.approx(plain.crawl_rate, rel=1e-12)
    assert noisy.crawl_probability == pytest.approx(plain.crawl_probability, rel=1e-12)


@st.composite
def constrained(draw, max_pages=7, decades=12, *, zero=True):
    """Pages with hosts, groups, bounds and noisy pings at once, always feasible."""
    n = draw(st.integers(1, max_pages))
    n_hosts, n_groups = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    column = hnp.arrays(np.float64, n, elements=magnitudes(decades, zero=zero))
    share = hnp.arrays(np.float64, n, elements=st.floats(0.01, 1))
    host = draw(hnp.arrays(np.intp, n, elements=st.integers(0, n_hosts - 1)))
    group = draw(hnp.arrays(np.intp, n_hosts, elements=st.integers(0, n_groups - 1)))
    lower = draw(column) * draw(st.sampled_from([0.0, 0.0, 1e-3, 1.0]))
    upper = lower + draw(st.one_of(column, st.just(np.full(n, np.inf))))
    spare = st.one_of(magnitudes(decades, zero=zero), st.just(np.inf))
    host_floor = np.bincount(host, lower, n_hosts)
    group_floor = np.bincount(group, host_floor, n_groups)
    return {
        "importance": draw(column),
        "change_rate": draw(column),
        "complete": draw(hnp.arrays(np.bool_, n)),
        "bandwidth": lower.sum() + draw(magnitudes(decades, zero=zero)),
        "host": host,
        "host_bandwidth": host_floor + draw(hnp.arrays(np.float64, n_hosts, elements=spare)),
        "host_group": group,
        "group_bandwidth": group_floor + draw(hnp.arrays(np.float64, n_groups, elements=spare)),
        "min_crawl_rate": lower,
        "max_crawl_rate": upper,
        "ping_recall": draw(share) * draw(hnp.arrays(np.bool_, n)),
        "ping_precision": draw(share),
    }


def split(problem):
    case = six_pages(0)._replace(
        importance=problem["importance"],
        change_rate=problem["change_rate"],
        complete=problem["complete"],
        bandwidth=problem["bandwidth"],
    )
    return case, problem["ping_recall"], problem["ping_precision"]


@pytest.mark.dear
@settings(max_examples=examples(40, 200))
@given(constrained())
def test_every_feasible_problem_is_solved_within_all_of_its_limits(problem):
    allocation = allocate_harmonic(**problem)
    rate = total_rate(split(problem)[0], allocation, *split(problem)[1:])
    close = 1 + 1e-9
    assert (rate <= problem["max_crawl_rate"] * close).all()
    assert (rate * close >= problem["min_crawl_rate"]).all()
    assert rate.sum() <= problem["bandwidth"] * close
    of_host = np.bincount(problem["host"], rate, problem["host_bandwidth"].size)
    assert (of_host <= problem["host_bandwidth"] * close).all()
    of_group = np.bincount(problem["host_group"], of_host, problem["group_bandwidth"].size)
    assert (of_group <= problem["group_bandwidth"] * close).all()
    assert allocation.bandwidth_used == pytest.approx(rate.sum(), rel=1e-9)
    assert (allocation.host_multiplier >= allocation.multiplier * (1 - 1e-12)).all()
    assert np.isfinite(allocation.duality_gap)
    assert allocation.kkt_residual < 1e-9


@pytest.mark.dear
@settings(max_examples=examples(15, 60))
@given(constrained(max_pages=5, decades=1, zero=False))
def test_no_generic_solver_finds_less_cost(problem):
    """SLSQP on logarithms of the rates, from the solution and from a feasible mixture."""
    allocation = allocate_harmonic(**problem)
    case, recall, precision = split(problem)
    ping_rate, alpha, q = ping_columns(case, recall, precision)
    matters = (case.importance > 0) & (case.change_rate > 0)
    rate = total_rate(case, allocation, recall, precision)
    if not matters.any() or (rate[matters] <= 0).any() or (rate[~matters] > 0).any():
        return

    def objective(log_rate):
        crawls = np.exp(log_rate)
        p = np.minimum(1, crawls / np.where(ping_rate > 0, ping_rate, np.inf))
        missed = alpha + (1 - p) * q * ping_rate
        return (case.importance * np.log1p(missed / crawls))[matters].sum()

    log_rate = np.log(np.where(matters, rate, 1e-12))
    hosts, groups = problem["host"], problem["host_group"][problem["host"]]
    caps = [(np.ones(rate.size, bool), problem["bandwidth"])]
    caps += [(hosts == h, cap) for h, cap in enumerate(problem["host_bandwidth"])]
    caps += [(groups == g, cap) for g, cap in enumerate(problem["group_bandwidth"])]
    limits = [
        {"type": "ineq", "fun": lambda x, of=of, cap=cap: cap - np.exp(x)[of].sum()}
        for of, cap in caps
        if of.any() and np.isfinite(cap)
    ]
    least, most = problem["min_crawl_rate"], problem["max_crawl_rate"]
    floor = np.where(least > 0, np.log(np.maximum(least, 1e-30)), log_rate - 5)
    ceiling = np.minimum(np.log(np.maximum(most, 1e-12)), log_rate + 5)
    found = minimize(
        objective,
        np.clip(log_rate - 0.3, floor, np.maximum(floor, ceiling)),
        bounds=list(zip(floor, np.maximum(floor, ceiling), strict=True)),
        constraints=limits,
        method="SLSQP",
        options={"ftol": 1e-13, "maxiter": 300},
    )
    if all(limit["fun"](found.x) >= -1e-10 for limit in limits):
        ours = noisy_cost(case, allocation, recall, precision)
        assert ours <= found.fun + 1e-9 * max(case.importance.sum(), found.fun)


@settings(max_examples=examples(20, 100))
@given(constrained(), magnitudes(6, zero=False), magnitudes(6, zero=False))
def test_units_of_importance_and_of_time_do_not_matter(problem, weight, time):
    before = allocate_harmonic(**problem)
    scaled = dict(problem)
    scaled["importance"] = problem["importance"] * weight
    for name in (
        "change_rate",
        "bandwidth",
        "host_bandwidth",
        "group_bandwidth",
        "min_crawl_rate",
        "max_crawl_rate",
    ):
        scaled[name] = problem[name] * time
    after = allocate_harmonic(**scaled)
    case, *noise = split(problem)
    rate = total_rate(split(scaled)[0], after, *noise)
    assert rate / time == pytest.approx(
        total_rate(case, before, *noise), rel=1e-6, abs=1e-9 * case.bandwidth
    )


def test_a_million_hosts_are_one_vector_of_roots():
    """Here 2,000; every host is either below its cap at the common multiplier or at its cap."""
    n, rng = 20_000, np.random.default_rng(5)
    case = golden_set(n)
    host = rng.integers(0, 2000, n)
    cap = rng.exponential(4.0, 2000)
    allocation = allocate_harmonic(*case, host=host, host_bandwidth=cap)
    used = np.bincount(host, total_rate(case, allocation), 2000)
    at_cap = allocation.host_multiplier > allocation.multiplier
    assert 0.1 < at_cap.mean() < 0.9
    assert used[at_cap] == pytest.approx(cap[at_cap], rel=1e-12)
    assert (used <= cap * (1 + 1e-12)).all()
    assert allocation.bandwidth_used == pytest.approx(case.bandwidth, rel=1e-12)
    assert allocation.kkt_residual < 1e-12


def test_a_group_shares_what_its_hosts_may_not_use():
    case = six_pages(2.0)
    allocation = allocate_harmonic(
        *case,
        host=[0, 0, 1, 1, 2, 2],
        host_bandwidth=[0.3, np.inf, np.inf],
        host_group=[0, 0, 1],
        group_bandwidth=[0.5, np.inf],
    )
    used = np.bincount([0, 0, 1, 1, 2, 2], total_rate(case, allocation))
    assert used == pytest.approx([0.3, 0.2, 1.5], rel=1e-12)
    assert allocation.group_multiplier.shape == (2,)
    ordered = allocation.host_multiplier[[2, 1]]
    assert ordered[0] == allocation.multiplier < ordered[1] == allocation.group_multiplier[0]


def test_blocks_and_threads_change_nothing_beyond_rounding(monkeypatch):
    n = LARGE
    case = golden_set(n)
    host = np.arange(n) % 7
    caps = {"host": host, "host_bandwidth": np.full(7, 0.03 * n)}
    threaded = allocate_harmonic(*case), allocate_harmonic(*case, **caps)
    monkeypatch.setattr("service.core.allocation.blocks.LARGE", n + 1)
    single = allocate_harmonic(*case), allocate_harmonic(*case, **caps)
    for one, other in zip(threaded, single, strict=True):
        np.testing.assert_allclose(one.crawl_rate, other.crawl_rate, rtol=1e-12)
        assert one.bandwidth_used == pytest.approx(other.bandwidth_used, rel=1e-12)


def test_bandwidth_beyond_all_limits_is_left_over():
    allocation = allocate_harmonic(
        [1.0, 1.0, 1.0],
        [1.0, 1.0, 1.0],
        [False, False, True],
        100.0,
        host=[0, 1, 1],
        host_bandwidth=[3.0, np.inf],
        max_crawl_rate=[9.0, 2.0, 5.0],
    )
    assert allocation.crawl_rate == pytest.approx([3, 2, 0])
    assert allocation.crawl_probability.tolist() == [0, 0, 1]
    assert (allocation.multiplier, allocation.bandwidth_used) == (0, pytest.approx(6))
    assert allocation.host_multiplier[1] == 0 < allocation.host_multiplier[0]


@pytest.mark.parametrize("least", [[0.3, 0.2], [0.0, 0.5]])
def test_minima_that_take_the_whole_bandwidth_are_met_exactly(least):
    allocation = allocate_harmonic(
        [1.0, 1.0], [1.0, 1.0], [False, False], 0.5, min_crawl_rate=least
    )
    assert allocation.crawl_rate == pytest.approx(least)
    assert allocation.multiplier == np.inf


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"min_crawl_rate": [0.6, 0.6]}, "the pages add up to 1.2 a day, .* bandwidth 1"),
        (
            {"min_crawl_rate": [0.1, 0.3], "host": [0, 1], "host_bandwidth": [0.1, 0.2]},
            "hosts 1 add up to 0.3 a day, .* bandwidth 0.2",
        ),
        (
            {
                "min_crawl_rate": [0.1, 0.3],
                "host": [0, 1],
                "host_bandwidth": [1, 1],
                "host_group": [0, 0],
                "group_bandwidth": [0.3],
            },
            "groups 0 add up to 0.4 a day",
        ),
    ],
)
def test_minima_beyond_a_bandwidth_are_refused_with_the_culprits(limits, message):
    with pytest.raises(BandwidthInfeasible, match=message):
        allocate_harmonic([1.0, 1.0], [1.0, 1.0], [False, True], 1.0, **limits)


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        ({"host": [0, 2], "host_bandwidth": [1, 1]}, r"host must be in 0..1 \(entries 1\)"),
        ({"host": [0.5, 1], "host_bandwidth": [1, 1]}, "host is float64"),
        ({"host": [0, 1]}, "host and host_bandwidth go together"),
        ({"host": [0, 1], "host_bandwidth": [1, -1]}, r"host_bandwidth must be .* \(entries 1\)"),
        ({"host_group": [0], "group_bandwidth": [1]}, "host_group needs host"),
        ({"host": [0, 0], "host_bandwidth": [1], "host_group": [0]}, "host_group and group_band"),
        ({"min_crawl_rate": [2, 0], "max_crawl_rate": [1, 1]}, r"above max_crawl_rate \(entries 0"),
        ({"max_crawl_rate": [np.nan, 1]}, r"max_crawl_rate must be .* \(entries 0\)"),
        ({"ping_recall": [1.5, 0]}, r"ping_recall must be in \[0, 1\] \(entries 0\)"),
        ({"ping_precision": [0, 1]}, r"ping_precision must be positive .* \(entries 0\)"),
    ],
)
def test_senseless_limits_are_refused_by_name(problem, message):
    with pytest.raises(InvalidInput, match=message):
        allocate_harmonic([1.0, 1.0], [1.0, 1.0], [False, True], 1.0, **problem)
