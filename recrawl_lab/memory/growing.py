"""Columns that grow, and revert the changes of a transaction."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.model.arrays import Bools

Undo = list[Callable[[], object]]
"""Functions that restore the state before the transaction, to be called last first."""


class GrowingTable:
    """Named columns that grow by doubling and record their changes in an undo log."""

    def __init__(self, dtypes: dict[str, Any], **shapes: tuple[int, ...]) -> None:
        self.n = 0
        self.columns: dict[str, NDArray[Any]] = {
            name: np.zeros((0, *shapes.get(name, ())), dtype) for name, dtype in dtypes.items()
        }

    def __getitem__(self, name: str) -> NDArray[Any]:
        """Return the filled part of a column."""
        return self.columns[name][: self.n]

    def append(self, undo: Undo, n: int, **values: Any) -> None:
        """Append n rows: arrays, or one value for all rows; columns not named are zero."""
        undo.append(partial(setattr, self, "n", self.n))
        start, self.n = self.n, self.n + n
        for name, column in self.columns.items():
            if self.n > len(column):
                grown = np.zeros((max(self.n, 2 * len(column)), *column.shape[1:]), column.dtype)
                grown[:start] = column[:start]
                self.columns[name] = grown
            self.columns[name][start : self.n] = values.get(name, 0)

    def put(self, undo: Undo, row: Any, **values: Any) -> None:
        """Overwrite some rows of some columns."""
        for name, value in values.items():
            undo.append(partial(self._put_back, name, row, self[name][row].copy()))
            self[name][row] = value

    def _put_back(self, name: str, row: Any, value: Any) -> None:
        self[name][row] = value

    def keep(self, undo: Undo, mask: Bools) -> None:
        """Delete the rows outside of the mask, for a table whose rows have no references."""
        undo += (
            partial(setattr, self, "n", self.n),
            partial(setattr, self, "columns", self.columns),
        )
        n_kept = int(np.count_nonzero(mask))
        n_dropped = self.n - n_kept
        if mask[n_dropped:].all():  # only the oldest rows go, so the others stay in place
            self.columns = {name: column[n_dropped:] for name, column in self.columns.items()}
        else:
            self.columns = {name: self[name][mask] for name in self.columns}
        self.n = n_kept
