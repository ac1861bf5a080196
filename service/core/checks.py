"""Errors of the numeric core, which name the entries at fault, and the checks that raise them."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

SHOWN = 5
"""Maximum number of entries that a message names."""


class CoreError(ValueError):
    """The input of a numeric routine is invalid."""


class InvalidInput(CoreError):
    """An array or parameter lies outside of its domain."""

    def __init__(self, name: str, problem: str, entries: NDArray[np.int64] | None = None) -> None:
        self.name = name
        self.entries = np.zeros(0, np.int64) if entries is None else entries
        where = ""
        if self.entries.size:
            shown = ", ".join(str(int(i)) for i in self.entries[:SHOWN])
            more = f" and {self.entries.size - SHOWN} more" if self.entries.size > SHOWN else ""
            where = f" (entries {shown}{more})"
        super().__init__(f"{name} {problem}{where}")


class BandwidthInfeasible(CoreError):
    """Minimum crawl rates exceed the bandwidth; lower them, or raise the bandwidth."""


def check_array(
    name: str,
    values: ArrayLike,
    shape: tuple[int, ...],
    *,
    test: Callable[[Floats], Any],
    must: str,
) -> Floats:
    """Return values as float64 of `shape`.

    Raise `InvalidInput` for another shape, or for entries for which `test` is not true.
    """
    array = np.asarray(values, np.float64)
    if array.shape != shape:
        raise InvalidInput(name, f"has shape {array.shape}, expected {shape}")
    passed = np.asarray(test(array))
    if not passed.all():
        raise InvalidInput(name, f"must be {must}", np.flatnonzero(~passed))
    return array


def check_amount(name: str, values: ArrayLike, shape: tuple[int, ...]) -> Floats:
    """Return values as float64 of `shape`; raise `InvalidInput` for negative or infinite ones."""
    return check_array(
        name,
        values,
        shape,
        test=lambda amount: (amount >= 0) & (amount < np.inf),
        must="finite and not negative",
    )


def check_share(name: str, values: ArrayLike, shape: tuple[int, ...]) -> Floats:
    """Return values as float64 of `shape`; raise `InvalidInput` for entries outside of [0, 1]."""
    return check_array(
        name, values, shape, test=lambda share: (share >= 0) & (share <= 1), must="in [0, 1]"
    )
