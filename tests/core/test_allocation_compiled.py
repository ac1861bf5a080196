import numpy as np
import pytest
from allocation_cases import golden_set

from service.core.allocation import allocate_harmonic, sweeps
from service.core.allocation.blocks import LARGE
from service.core.allocation.inputs import check_pages

by_host = pytest.importorskip("service.core.allocation.ordered").by_host


@pytest.fixture
def interpreted(monkeypatch):
    """Switch to numpy's passes."""

    def switch():
        monkeypatch.setattr(sweeps, "numba_is_here", lambda: False)

    return switch


@pytest.mark.parametrize("hosts", [False, True])
def test_compiled_passes_are_the_interpreted_ones_to_rounding(interpreted, hosts):
    n, rng = LARGE, np.random.default_rng(3)
    case = golden_set(n)
    case.importance[::97] = 0
    case.change_rate[::89] = 0
    limits = {}
    if hosts:
        limits = {"host": rng.integers(0, 999, n), "host_bandwidth": rng.exponential(80, 999)}
    fast = allocate_harmonic(*case, **limits)
    interpreted()
    plain = allocate_harmonic(*case, **limits)
    np.testing.assert_allclose(fast.crawl_rate, plain.crawl_rate, rtol=1e-12)
    np.testing.assert_allclose(fast.crawl_probability, plain.crawl_probability, rtol=1e-12)
    assert fast.multiplier == pytest.approx(plain.multiplier, rel=1e-12)
    assert fast.bandwidth_used == pytest.approx(plain.bandwidth_used, rel=1e-12)
    assert fast.kkt_residual < 1e-12 > plain.kkt_residual
    if hosts:
        assert 0.1 < (fast.host_multiplier > fast.multiplier).mean() < 0.9
        np.testing.assert_allclose(fast.host_multiplier, plain.host_multiplier, rtol=1e-12)


def test_compiled_roots_of_hosts_are_the_interpreted_ones_at_any_magnitude(interpreted):
    """Most hosts are limited, many far below what they would take, some to exactly nothing."""
    n, n_hosts, rng = LARGE, LARGE // 8, np.random.default_rng(5)
    pages = 10 ** rng.uniform(-20, 20, n), 10 ** rng.uniform(-20, 20, n), rng.random(n) < 0.5
    limits = {
        "host": rng.integers(0, n_hosts, n),
        "host_bandwidth": 10 ** rng.uniform(-25, 25, n_hosts) * (rng.random(n_hosts) < 0.9),
    }
    fast = allocate_harmonic(*pages, 1e18, **limits)
    interpreted()
    plain = allocate_harmonic(*pages, 1e18, **limits)
    assert (fast.host_multiplier > fast.multiplier).mean() > 0.5
    np.testing.assert_allclose(fast.crawl_rate, plain.crawl_rate, rtol=1e-12)
    np.testing.assert_allclose(fast.crawl_probability, plain.crawl_probability, rtol=1e-12)
    assert fast.kkt_residual < 1e-12 > plain.kkt_residual


@pytest.mark.parametrize("n_hosts", [1, 3, 999, 300_001, 17_000_000])
@pytest.mark.parametrize("empty", [0.0, 0.5])
def test_pages_are_put_in_the_order_of_their_hosts(n_hosts, empty):
    """Few and many hosts, large ones and empty ones at both ends."""
    n, rng = LARGE, np.random.default_rng(4)
    case = golden_set(n)
    share = (empty / 2 + (1 - empty) * rng.random(n) ** 3) * n_hosts
    host = share.astype(np.int32)
    host[: n // 5] = host[0]
    pages = check_pages(*case[:3])
    ordered, first = by_host(pages, host, n_hosts, (np.empty(n), np.empty(n)))
    np.testing.assert_array_equal(first, np.append(0, np.bincount(host, None, n_hosts).cumsum()))
    of_page = np.repeat(np.arange(n_hosts), np.diff(first))
    expected = np.lexsort((case.importance, host))
    found = np.lexsort((ordered.importance, of_page))
    for column, original in zip(ordered[:3], case[:3], strict=True):
        np.testing.assert_array_equal(column[found], original[expected])
    again, same = by_host(ordered, of_page, n_hosts, (np.empty(0), np.empty(0)))
    assert again is ordered
    np.testing.assert_array_equal(same, first)


def test_compiled_passes_give_bandwidth_that_nobody_can_use_back(interpreted):
    n = LARGE
    case = golden_set(n)._replace(complete=np.ones(n, bool), bandwidth=1e9)
    allocation = allocate_harmonic(*case)
    assert (allocation.crawl_probability == 1).all()
    assert allocation.multiplier == 0
    assert allocation.kkt_residual == 0
