"""Crawl rates within a bandwidth: the optimum of each objective, and baselines.

`ALLOCATORS` names the choices of the setting `objective`.
"""

from typing import Protocol

from numpy.typing import ArrayLike

from service.core.allocation.alternatives import (
    allocate_approximate,
    allocate_binary,
    allocate_binary_floor,
    allocate_change_rate,
    allocate_uniform,
)
from service.core.allocation.harmonic import allocate_harmonic
from service.core.allocation.problem import Allocation


class Allocator(Protocol):
    """What every objective's solver accepts."""

    def __call__(
        self,
        importance: ArrayLike,
        change_rate: ArrayLike,
        complete: ArrayLike,
        bandwidth: float,
        *,
        start: float | None = None,
    ) -> Allocation:
        """Allocate `bandwidth` to pages; `start` is an earlier multiplier, where one is of use."""
        ...


ALLOCATORS: dict[str, Allocator] = {
    "harmonic": allocate_harmonic,
    "approximate": allocate_approximate,
    "binary": allocate_binary,
    "binary_floor": allocate_binary_floor,
    "uniform": allocate_uniform,
    "change_rate": allocate_change_rate,
}
