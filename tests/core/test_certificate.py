"""The certificate of an allocation judges the rates as written, not the search that led to them."""

import numpy as np
import pytest

from service.core.allocation import sweeps
from service.core.allocation.harmonic import allocate_harmonic

N = 400


def allocated(**limits):
    rng = np.random.default_rng(3)
    pages = rng.lognormal(size=N), rng.lognormal(-1, 1, N), rng.random(N) < 0.1
    return allocate_harmonic(*pages, 60.0, **limits)


HOSTS = {"host": np.arange(N) % 20, "host_bandwidth": np.linspace(0.5, 6.0, 20)}
GROUPS = {**HOSTS, "host_group": np.arange(20) % 4, "group_bandwidth": np.linspace(5.0, 20.0, 4)}


@pytest.mark.parametrize("limits", [{}, HOSTS, GROUPS], ids=["alone", "hosts", "groups"])
@pytest.mark.parametrize("factor", [0.95, 1.05])
def test_rates_off_by_a_twentieth_are_seen(monkeypatch, limits, factor):
    split = sweeps._split

    def off(pages, rate, probability):
        rate *= factor
        return split(pages, rate, probability)

    assert allocated(**limits).kkt_residual < 1e-9
    monkeypatch.setattr(sweeps, "_split", off)
    wrong = allocated(**limits)
    assert wrong.kkt_residual > 0.04
    assert wrong.duality_gap > 0
