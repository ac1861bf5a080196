"""The certificate of an allocation judges the rates as written, not the search that led to them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from support.allocation_cases import cases, golden_set

from service.core.allocation import ALLOCATORS, alternatives, multipliers, sweeps
from service.core.allocation.certificate import Rates, certify
from service.core.allocation.harmonic import allocate_harmonic
from service.core.allocation.multipliers import Nodes, grow
from service.core.allocation.problem import check_hosts, check_pages
from service.core.costs import costs

N = 400
HOST = np.arange(N) % 20
HOSTS = {"host": HOST, "host_bandwidth": np.linspace(0.5, 6.0, 20)}
GROUPS = {**HOSTS, "host_group": np.arange(20) % 4, "group_bandwidth": np.linspace(5.0, 20.0, 4)}
BOUNDS = {"min_crawl_rate": np.full(N, 0.02), "max_crawl_rate": np.full(N, 0.4)}
PINGS = {"ping_recall": np.linspace(0.2, 0.9, N), "ping_precision": np.linspace(0.9, 0.4, N)}
EVERYTHING = {**GROUPS, **BOUNDS, **PINGS}


def pages():
    rng = np.random.default_rng(3)
    return rng.lognormal(size=N), rng.lognormal(-1, 1, N), rng.random(N) < 0.1


def allocated(**limits):
    return allocate_harmonic(*pages(), 60.0, **limits)


def crawls(allocation, ping_recall=0.0, ping_precision=1.0, **_):
    """Return the crawls a day of each page, from the rates alone."""
    _, change_rate, complete = pages()
    announced = np.where(complete, 1.0, ping_recall / ping_precision) * change_rate
    return allocation.crawl_rate + allocation.crawl_probability * announced


def excess(allocation, **limits):
    """Return the largest relative excess over a budget or a bound, from the rates alone."""
    each = crawls(allocation, **limits)
    used = [(each.sum(), 60.0)]
    of_host = np.bincount(HOST, each)
    if "host" in limits:
        used.append((of_host, limits["host_bandwidth"]))
    if "host_group" in limits:
        used.append((np.bincount(limits["host_group"], of_host), limits["group_bandwidth"]))
    if "max_crawl_rate" in limits:
        used += [(each, limits["max_crawl_rate"]), (limits["min_crawl_rate"], each + 1e-9)]
    return max(np.max(spent / limit - 1) for spent, limit in used)


# -- each part of the solver, broken on purpose


def with_columns(**changed):
    """Return a break: the closed form sees other columns than those of the problem."""

    def apply(monkeypatch):
        demand = sweeps.demand

        def wrong(pages, s, *work):
            columns = {name: change(pages) for name, change in changed.items()}
            return demand(pages._replace(**columns), s, *work)

        monkeypatch.setattr(sweeps, "demand", wrong)

    return apply


def with_split(wrong):
    """Return a break: `wrong` writes other rates than those of the closed form."""

    def apply(monkeypatch):
        split = sweeps.split
        monkeypatch.setattr(sweeps, "split", lambda *args: wrong(split, *args))

    return apply


def scaled(factor):
    def wrong(split, pages, rate, probability):
        rate *= factor
        split(pages, rate, probability)

    return with_split(wrong)


def starve_the_last(split, pages, rate, probability):
    rate[-1] = 0.0
    split(pages, rate, probability)


def stop_early(monkeypatch):
    monkeypatch.setattr(multipliers, "MOST_PASSES", 1)


def ignore_caps_of_hosts(monkeypatch):
    monkeypatch.setattr(sweeps.HostSweeps, "limit", lambda *_: 0)


def ignore_caps_of_groups(monkeypatch):
    def choose(levels, roots):
        nodes = [Nodes(roots[0].s.copy(), np.ones(1, np.bool_), roots[0].final.copy())]
        for level in levels[1 : len(roots)]:
            above = nodes[-1]
            never = np.zeros(level.bandwidth.size, np.bool_)
            nodes.append(Nodes(above.s[level.parent], never, above.final[level.parent]))
        return nodes

    monkeypatch.setattr(multipliers, "_choose", choose)


def confuse_hosts(monkeypatch):
    by_host = sweeps.by_host
    monkeypatch.setattr(
        sweeps, "by_host", lambda pages, host, *args: by_host(pages, host[::-1].copy(), *args)
    )


BROKEN = [
    ("the search stops early", {}, stop_early),
    ("the search stops early", GROUPS, stop_early),
    ("5 % too much is spent", {}, scaled(1.05)),
    ("5 % too much is spent", HOSTS, scaled(1.05)),
    ("5 % too much is spent", GROUPS, scaled(1.05)),
    ("5 % too little is spent", {}, scaled(0.95)),
    ("5 % too little is spent", HOSTS, scaled(0.95)),
    ("5 % too little is spent", GROUPS, scaled(0.95)),
    ("one page is starved", {}, with_split(starve_the_last)),
    ("caps of hosts are ignored", HOSTS, ignore_caps_of_hosts),
    ("caps of hosts are ignored", EVERYTHING, ignore_caps_of_hosts),
    ("caps of groups are ignored", GROUPS, ignore_caps_of_groups),
    ("hosts are confused", HOSTS, confuse_hosts),
    ("minima are ignored", BOUNDS, with_columns(min_crawl_rate=lambda p: 0 * p.importance)),
    ("maxima are ignored", BOUNDS, with_columns(max_crawl_rate=lambda p: p.max_crawl_rate * 9)),
    ("pings are trusted", PINGS, with_columns(ping_precision=lambda p: np.ones(len(p.complete)))),
    ("pings are ignored", PINGS, with_columns(ping_recall=lambda p: 1.0 * p.complete)),
    (
        "pings are not followed",
        PINGS,
        with_split(lambda split, pages, rate, probability: None),
    ),
    ("importance is ignored", {}, with_columns(importance=lambda p: np.ones(len(p.complete)))),
    ("importance is ignored", HOSTS, with_columns(importance=lambda p: np.ones(len(p.complete)))),
    ("change rates are swapped", {}, with_columns(change_rate=lambda p: p.change_rate[::-1])),
    ("change rates are swapped", PINGS, with_columns(change_rate=lambda p: p.change_rate[::-1])),
    ("who has pings is swapped", {}, with_columns(complete=lambda p: p.complete[::-1])),
]
KINDS = {0: "alone", 2: "with two columns", 4: "with groups", 8: "with everything"}


@pytest.mark.parametrize(
    ("limits", "spoil"),
    [case[1:] for case in BROKEN],
    ids=[f"{what}, {KINDS[len(limits)]}" for what, limits, _ in BROKEN],
)
def test_whatever_part_of_the_solver_breaks_the_certificate_shows_it(monkeypatch, limits, spoil):
    right = allocated(**limits)
    assert right.kkt_residual < 1e-9
    assert right.duality_gap < 1e-9
    spoil(monkeypatch)
    wrong = allocated(**limits)
    assert wrong.kkt_residual > 0.001
    assert wrong.duality_gap > 1e-3 or excess(wrong, **limits) > 0.01
    assert wrong.bandwidth_used == pytest.approx(crawls(wrong, **limits).sum(), rel=1e-12)


@pytest.mark.parametrize("limits", [{}, HOSTS, GROUPS, EVERYTHING])
@pytest.mark.parametrize("factor", [0.95, 1.05])
def test_rates_off_by_a_twentieth_are_seen(monkeypatch, limits, factor):
    scaled(factor)(monkeypatch)
    wrong = allocated(**limits)
    assert wrong.kkt_residual > 0.04
    assert wrong.duality_gap > 0


def test_a_cap_of_nothing_that_is_exceeded_is_seen():
    """A minimum explains the rate of the page, so that only the cap can show it."""
    rate = (np.sqrt(5) - 1) / 2  # at s = 1
    checked = check_pages(np.ones(2), np.ones(2), [False, False], min_crawl_rate=[0.1, 0.0])
    host, levels = np.array([0, 1]), [np.array([1.0]), np.array([0.0, 1.0])]
    rates = Rates(np.array([0.1, rate]), np.zeros(2))
    fitting, exceeded = (
        certify(
            checked,
            grow(rate + 0.1, check_hosts(2, host, [cap, np.inf], None, None)),
            levels,
            rates,
            host,
        )
        for cap in (0.1, 0.0)
    )
    assert fitting.kkt_residual < 1e-9
    assert exceeded.kkt_residual == pytest.approx(1.0)


# -- any rates, any multiplier


@st.composite
def guesses(draw):
    """Pages with noisy pings, any rates within the bandwidth, and any multiplier."""
    case = draw(cases(max_pages=6, decades=2, zero=False))
    n = case.importance.size
    share = hnp.arrays(np.float64, n, elements=st.floats(0.01, 1))
    noise = draw(st.sampled_from([{}, {"ping_recall": draw(share), "ping_precision": draw(share)}]))
    rates = Rates(draw(share), draw(share) * draw(hnp.arrays(np.bool_, n)))
    return case, noise, rates, draw(st.floats(-4, 4))


@pytest.mark.dear
@given(guesses())
def test_the_gap_is_no_less_than_what_a_better_allocation_would_save(guess):
    case, noise, rates, log_s = guess
    checked = check_pages(*case[:3], **noise)
    recall = np.where(case.complete, 1.0, noise.get("ping_recall", 0.0))
    precision = np.where(case.complete, 1.0, noise.get("ping_precision", 1.0))
    on_pings = rates.crawl_probability * recall * case.change_rate / precision
    used = (rates.crawl_rate + on_pings).sum()
    distance = certify(checked, grow(used, None), [np.array([10.0**log_s])], rates)

    def cost(crawl_rate, probability):
        columns = *case[:2], crawl_rate, probability, case.complete
        return costs(*columns, **noise).harmonic.sum()

    least = allocate_harmonic(*case[:3], used, **noise)
    saving = cost(*rates) - cost(least.crawl_rate, least.crawl_probability)
    assert distance.bandwidth_used == pytest.approx(used, rel=1e-12)
    assert distance.duality_gap >= saving - 1e-9 * cost(*rates)
    assert 0 <= distance.kkt_residual <= 1
    assert distance.kkt_residual > 1e-9 or saving < 1e-6 * cost(*rates)


# -- objectives without an optimum, and objectives of another cost


def harmonic_cost(case, allocation):
    rates = allocation.crawl_rate, allocation.crawl_probability
    return costs(*case[:2], *rates, case.complete).harmonic.sum()


@pytest.mark.parametrize("name", ["approximate", "uniform", "change_rate"])
def test_a_rule_says_how_far_its_cost_is_from_the_least(name):
    case = golden_set()
    allocation, least = ALLOCATORS[name](*case), allocate_harmonic(*case)
    above = harmonic_cost(case, allocation) - harmonic_cost(case, least)
    assert above > 2_000
    assert allocation.duality_gap == pytest.approx(above, rel=1e-9)
    assert allocation.kkt_residual > 0.5


@pytest.mark.dear
@given(cases(), st.sampled_from(["approximate", "uniform", "change_rate"]))
def test_no_rule_claims_less_than_its_distance(case, name):
    allocation, least = ALLOCATORS[name](*case), allocate_harmonic(*case)
    own, best = harmonic_cost(case, allocation), harmonic_cost(case, least)
    assert 0 <= allocation.kkt_residual <= 1
    if best < np.inf:
        assert allocation.duality_gap >= (own - best) * (1 - 1e-9)
    assert not np.isnan([allocation.duality_gap, allocation.multiplier]).any()


def test_rates_in_proportion_to_importance_are_optimal_where_the_ratios_are_equal():
    """K19 Proposition 9: then the approximation is exact, and its certificate may say so."""
    importance = np.random.default_rng(1).lognormal(size=50)
    equal = importance, 3 * importance, np.zeros(50, np.bool_), 9.0
    allocation = ALLOCATORS["approximate"](*equal)
    assert allocation.kkt_residual < 1e-12
    assert allocation.duality_gap < 1e-9
    unequal = ALLOCATORS["approximate"](importance, 3 * importance[::-1], *equal[2:])
    assert unequal.kkt_residual > 0.1


@pytest.mark.parametrize("name", ["uniform", "change_rate"])
def test_the_multiplier_of_a_baseline_is_the_cost_that_a_little_more_bandwidth_saves(name):
    case = golden_set()
    less, more = (
        harmonic_cost(case, ALLOCATORS[name](*case._replace(bandwidth=bandwidth)))
        for bandwidth in (case.bandwidth, case.bandwidth + 1e-4)
    )
    saved = (less - more) / 1e-4
    assert ALLOCATORS[name](*case).multiplier == pytest.approx(saved, rel=1e-4)


def fill_wrongly(**changed):
    def apply(monkeypatch):
        fill = alternatives._fill

        def wrong(change, spread, floor, spare):
            arguments = {"change": change, "spread": spread, "floor": floor, "spare": spare}
            arguments |= {name: wrong(arguments[name]) for name, wrong in changed.items()}
            return fill(**arguments)

        monkeypatch.setattr(alternatives, "_fill", wrong)

    return apply


def starve_one(monkeypatch):
    fill = alternatives._fill

    def wrong(*arguments):
        rate, level = fill(*arguments)
        return np.where(rate == rate.max(), arguments[2], rate), level

    monkeypatch.setattr(alternatives, "_fill", wrong)


@pytest.mark.parametrize(
    "spoil",
    [
        fill_wrongly(spare=lambda spare: 1.05 * spare),
        fill_wrongly(spread=np.ones_like),
        fill_wrongly(change=lambda change: change[::-1]),
        starve_one,
    ],
    ids=["5 % too much is spent", "importance is ignored", "change rates are swapped", "starved"],
)
@pytest.mark.parametrize("name", ["binary", "binary_floor"])
def test_whatever_part_of_the_binary_optimum_breaks_its_certificate_shows_it(
    monkeypatch, name, spoil
):
    case = golden_set()

    def binary_cost(allocation):
        return (
            case.importance * case.change_rate / (case.change_rate + allocation.crawl_rate)
        ).sum()

    right = ALLOCATORS[name](*case)
    assert right.kkt_residual < 1e-9
    assert right.duality_gap < 1e-9
    spoil(monkeypatch)
    wrong = ALLOCATORS[name](*case)
    assert wrong.kkt_residual > 0.02
    assert wrong.duality_gap > max(0.999 * (binary_cost(wrong) - binary_cost(right)), 1e-3)
