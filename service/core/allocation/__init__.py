"""Crawl rates within a bandwidth: the optimum of each objective, and baselines."""

from collections.abc import Callable

from service.core.allocation.alternatives import (
    allocate_approximate,
    allocate_binary,
    allocate_binary_floor,
    allocate_change_rate,
    allocate_uniform,
)
from service.core.allocation.harmonic import allocate_harmonic
from service.core.allocation.problem import Allocation

ALLOCATORS: dict[str, Callable[..., Allocation]] = {
    "harmonic": allocate_harmonic,
    "approximate": allocate_approximate,
    "binary": allocate_binary,
    "binary_floor": allocate_binary_floor,
    "uniform": allocate_uniform,
    "change_rate": allocate_change_rate,
}
"""Solver of importance, change rate, complete and bandwidth, by value of setting `objective`."""

SEARCHING = ("harmonic", "approximate")
"""Objectives whose solver begins at `start`, the multiplier of an earlier allocation."""
