"""Counters in shared memory, which a measured server adds to and the benchmark reads."""

import os
from pathlib import Path
from typing import Literal

import numpy as np

VARIABLE = "HISTORY_COST"
"""Environment variable with the path of the counters."""
NAMES = ("off", "commit", "write", "backend", "commits")
"""off: 1 while the server counts nothing; CPU seconds of commits and writes; number of commits.

`commit` is the CPU time of `tx.count` and of the counter's `add`. `write` is that of the threads
that write a second, and `backend` that of their database sessions.
"""


class Counters:
    """The numbers of `NAMES`."""

    def __init__(self, path: Path, mode: Literal["r+", "w+"] = "r+") -> None:
        self.values = np.memmap(path, np.float64, mode, shape=(len(NAMES),))

    @classmethod
    def of_environment(cls) -> "Counters":
        """Return the counters that the environment names."""
        return cls(Path(os.environ[VARIABLE]))

    def add(self, name: str, value: float) -> None:
        """Add to a number."""
        self.values[NAMES.index(name)] += value

    def switch(self, *, off: bool) -> None:
        """Let the server count nothing, or count again."""
        self.values[NAMES.index("off")] = off

    @property
    def off(self) -> bool:
        """Whether the server counts nothing."""
        return bool(self.values[0])

    def read(self) -> dict[str, float]:
        """Return all numbers by name."""
        return dict(zip(NAMES, self.values.tolist(), strict=True))


def session_s(pid: int) -> float:
    """Return the CPU time of a database session, seconds."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
