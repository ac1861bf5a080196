"""Columns built from blocks of rows, in little more memory than the columns take."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Gathered:
    """Columns that grow block by block.

    A column with the same value in all rows takes no memory and is read-only. `empty` has each
    column by name, without rows.

    >>> gathered = Gathered({"page_id": np.zeros(0, np.int64), "max_crawl_rate": np.zeros(0)})
    >>> gathered.append([np.array([1, 2]), np.array([np.nan, np.nan])])
    >>> gathered.append([np.array([3]), np.array([np.nan])])
    >>> {name: (column, column.strides) for name, column in gathered.columns().items()}
    {'page_id': (array([1, 2, 3]), (8,)), 'max_crawl_rate': (array([nan, nan, nan]), (0,))}
    """

    def __init__(self, empty: Mapping[str, NDArray[Any]]) -> None:
        self.parts = {name: [column] for name, column in empty.items()}

    def append(self, block: Iterable[NDArray[Any]]) -> None:
        """Append rows: one array for each column, in the order of the columns."""
        for parts, part in zip(self.parts.values(), block, strict=True):
            parts.append(_compact(part))

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return the columns by name, and empty the builder."""
        return {name: _join(self.parts.pop(name)) for name in list(self.parts)}


def placed(n: int, where: Any, values: NDArray[Any], none: np.generic) -> NDArray[Any]:
    """Return a column of n rows with `values` in the rows `where` and `none` in the others.

    >>> placed(4, [2], np.array([7]), np.int64(0))
    array([0, 0, 7, 0])
    """
    if not len(where):
        return np.broadcast_to(none, n)
    column = np.full(n, none)
    column[where] = values
    return column


def _compact(part: NDArray[Any]) -> NDArray[Any]:
    plain = part.ndim == 1 and part.dtype.kind != "V" and len(part) > 0
    same = plain and bool((_bits(part) == _bits(part[:1])).all())
    return np.broadcast_to(part[:1].copy(), part.shape) if same else part


def _join(parts: list[NDArray[Any]]) -> NDArray[Any]:
    full = [part for part in parts if len(part)]
    values = {part[:1].tobytes() for part in full}
    if len(values) == 1 and not any(part.strides[0] for part in full):
        return np.broadcast_to(full[0][:1], sum(map(len, full)))
    return np.concatenate(parts)


def _bits(part: NDArray[Any]) -> NDArray[Any]:
    """Return the bits of a column, in which NaN and NaT are equal to themselves."""
    return part.view(np.int64) if part.dtype.kind in "fM" else part
