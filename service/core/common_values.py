"""Computations over several parts that meet at sums, samples and fits. Pure.

Each part runs the same generator on its own columns. A generator yields what its part adds to a
common value, and receives the common value. One part alone receives its own value back, so a
computation over one part is the plain computation. All parts yield at the same places: branches
between two yields depend on common values only.

Values are combined in the order of the parts. Therefore the result does not depend on which
process computes which part.
"""

from collections.abc import Callable, Generator, Sequence
from functools import reduce
from operator import add
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")


class Contribution(NamedTuple):
    """The share of one part in a common value."""

    value: Any
    combine: Callable[[Sequence[Any]], Any]
    """Function of the values of all parts, in their order; the same for all parts."""
    own_reply: bool = False
    """True if `combine` returns a reply for each part instead of one for all."""
    exact: bool = False
    """True if values may be combined in groups first: `combine` is associative and does not
    round."""


Joint = Generator[Contribution, Any, T]
"""A computation over parts with a result."""


def alone(joint: Joint[T]) -> T:
    """Return the result of a computation over one part."""
    reply = None
    while True:
        try:
            share = joint.send(reply)
        except StopIteration as end:
            result: T = end.value
            return result
        reply = share.combine([share.value])
        if share.own_reply:
            (reply,) = reply


def total(value: T) -> Joint[T]:
    """Return the sum of the values of all parts: numbers, or arrays of one shape."""
    result: T = yield Contribution(value, added)
    return result


def count(value: int) -> Joint[int]:
    """Return the sum of integers, which does not round."""
    result: int = yield Contribution(int(value), added, exact=True)
    return result


def anywhere(condition: Any) -> Joint[bool]:
    """Return whether a condition holds in any part."""
    result: bool = yield Contribution(bool(condition), any, exact=True)
    return result


def added(values: Sequence[Any]) -> Any:
    """Return the sum of values, added from the first to the last; fields of a tuple one by one."""
    first = values[0]
    if not isinstance(first, tuple):
        return reduce(add, values)
    sums = [added(column) for column in zip(*values, strict=True)]
    return type(first)(*sums) if hasattr(first, "_fields") else tuple(sums)


def offset(size: int) -> Joint[tuple[int, int]]:
    """Return the number of rows in earlier parts, and that in all parts."""
    result: tuple[int, int] = yield Contribution(int(size), _offsets, own_reply=True)
    return result


def _offsets(sizes: Sequence[int]) -> list[tuple[int, int]]:
    ends = np.cumsum(sizes).tolist()
    return [(end - size, ends[-1]) for end, size in zip(ends, sizes, strict=True)]


def sampled(row: NDArray[Any], most: int) -> Joint[NDArray[Any]]:
    """Return the rows of an evenly spread sample of the rows of all parts, at most `most`.

    >>> alone(sampled(np.arange(7), 3))
    array([0, 3, 6])
    """
    before, n = yield from offset(len(row))
    step = max(1, -(-n // most))
    return row[-before % step :: step]


def gathered(values: Sequence[tuple[NDArray[Any], ...]]) -> tuple[NDArray[Any], ...]:
    """Return columns with the rows of all parts."""
    if len(values) == 1:
        return values[0]
    return tuple(np.concatenate(column) for column in zip(*values, strict=True))
