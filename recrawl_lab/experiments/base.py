"""Parameters and results of an experiment: tables, a figure, and claims with their figures.

An experiment turns each statement of its paper into a `Check`: the claim, the measured value, and
whether the value confirms the claim. `Result.agrees` and `Result.differs` combine the checks into
two lines. No sentence about agreement is written by hand.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Draw = Callable[["Figure"], None]
"""Function that draws into an empty figure."""

LEAST_RUNS = 8
"""Minimum number of runs at any scale; a standard deviation of fewer is meaningless."""


def ignore_progress(share: float) -> None:
    """Ignore the completed share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """Parameters of an experiment."""

    seed: int = 1
    scale: float = 1.0
    """Share of a full experiment's runs (or of its pages if it has no runs)."""
    trace: Path | None = None
    """DIR/SITE of a recording, for experiments on the history of a real page."""
    data: Path | None = None
    """Folder of the PoliteCrawling data set, for experiments on a corpus."""
    progress: Callable[[float], None] = ignore_progress
    """Function that receives the completed share, in [0, 1], from time to time."""

    def rng(self) -> np.random.Generator:
        """Return the only random generator of an experiment."""
        return np.random.default_rng(self.seed)

    def runs(self, full: int) -> int:
        """Return the scaled number of runs of a full experiment."""
        return max(LEAST_RUNS, round(full * self.scale))


class ResultTable(NamedTuple):
    """Rows of words and numbers under named columns."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str | float, ...]]


class Check(NamedTuple):
    """One statement of the paper with the measured value."""

    claim: str
    measured: str
    holds: bool

    def __str__(self) -> str:
        return f"{self.claim} ({self.measured})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Results of an experiment."""

    title: str
    tables: list[ResultTable]
    checks: list[Check]
    draw: Draw
    notes: tuple[str, ...] = ()
    """Remarks for readers: substitutes for data, numbers that the paper omits."""

    @property
    def agrees(self) -> str:
        """One line of the claims that the numbers confirm."""
        return self._line(holds=True)

    @property
    def differs(self) -> str:
        """One line of the claims that the numbers do not confirm."""
        return self._line(holds=False)

    def _line(self, *, holds: bool) -> str:
        chosen = [str(check) for check in self.checks if check.holds == holds]
        if not chosen:
            return f"none of the {len(self.checks)} claims that were checked"
        return f"{len(chosen)} of {len(self.checks)} claims: {'; '.join(chosen)}"


class Experiment(NamedTuple):
    """One figure or table of a paper."""

    name: str
    description: str
    run: Callable[[Setup], Result]


def within(share: float, measured: float, expected: float) -> bool:
    """Return whether a figure lies within a share of the expected one.

    >>> within(0.1, 0.12, 0.11), within(0.1, 0.12, 0.10)
    (True, False)
    """
    return abs(measured - expected) <= share * abs(expected)
