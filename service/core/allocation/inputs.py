"""The inputs that every allocator shares: pages as arrays, checked once."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from service.core.conditions import Bools, Floats, InvalidInput, check_array

SMALLEST, LARGEST = 1e-40, 1e40
"""Positive inputs lie between these, so that no product of four of them leaves float64."""

IN_RANGE = f"0 or between {SMALLEST:g} and {LARGEST:g}"


class Pages(NamedTuple):
    """Pages as (N,) arrays: importance, change_rate (1/day), complete (bool)."""

    importance: Floats
    change_rate: Floats
    complete: Bools


def check_pages(importance: ArrayLike, change_rate: ArrayLike, complete: ArrayLike) -> Pages:
    """Coerce the arrays of a set of pages.

    Raises
    ------
    InvalidInput
        An entry is negative, not finite or beyond `SMALLEST`, `LARGEST`; or shapes differ.
    """
    n = np.shape(importance)[:1] or (0,)
    observed = np.asarray(complete)
    if observed.shape != n or observed.dtype != np.bool_:
        raise InvalidInput(
            "complete", f"is {observed.dtype} of shape {observed.shape}, expected bool of {n}"
        )
    return Pages(
        check_magnitude("importance", importance, n),
        check_magnitude("change_rate", change_rate, n),
        observed,
    )


def check_magnitude(name: str, values: ArrayLike, shape: tuple[int, ...]) -> Floats:
    """Coerce an array whose entries are 0 or of a magnitude that the solvers can square."""
    return check_array(name, values, shape, test=_in_range, must=IN_RANGE)


def check_bandwidth(bandwidth: float) -> float:
    """Coerce the bandwidth; a negative one spends nothing, like 0.

    Raises
    ------
    InvalidInput
        Not a number, infinite or out of range.
    """
    value = max(0.0, float(bandwidth)) if bandwidth == bandwidth else float("nan")  # noqa: PLR0124
    return float(check_magnitude("bandwidth", value, ()))


def _in_range(values: Floats) -> Bools:
    return np.asarray((values == 0) | ((values >= SMALLEST) & (values <= LARGEST)))
