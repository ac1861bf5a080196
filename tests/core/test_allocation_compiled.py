import numpy as np
import pytest
from allocation_cases import golden_set

from service.core.allocation import allocate_harmonic, sweeps
from service.core.allocation.blocks import LARGE

pytest.importorskip("numba")


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
    compiled = allocate_harmonic(*case, **limits)
    interpreted()
    plain = allocate_harmonic(*case, **limits)
    np.testing.assert_allclose(compiled.crawl_rate, plain.crawl_rate, rtol=1e-12)
    np.testing.assert_allclose(compiled.crawl_probability, plain.crawl_probability, rtol=1e-12)
    assert compiled.multiplier == pytest.approx(plain.multiplier, rel=1e-12)
    assert compiled.bandwidth_used == pytest.approx(plain.bandwidth_used, rel=1e-12)
    assert compiled.kkt_residual < 1e-12 > plain.kkt_residual
    if hosts:
        assert 0.1 < (compiled.host_multiplier > compiled.multiplier).mean() < 0.9
        np.testing.assert_allclose(compiled.host_multiplier, plain.host_multiplier, rtol=1e-12)


def test_compiled_passes_give_bandwidth_that_nobody_can_use_back(interpreted):
    n = LARGE
    case = golden_set(n)._replace(complete=np.ones(n, bool), bandwidth=1e9)
    allocation = allocate_harmonic(*case)
    assert (allocation.crawl_probability == 1).all()
    assert allocation.multiplier == 0
    assert allocation.kkt_residual == 0
