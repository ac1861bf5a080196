"""Parameters and results of an experiment: tables, a figure, and claims with their figures.

An experiment turns each statement of its paper into a `Check` with both figures and the verdict.
`Result.agrees` and `Result.differs` combine the checks into two lines. No sentence about agreement
is written by hand.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from recrawl_lab.experiments.checks import AGREES, DIFFERS, Check

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
        return self._line(AGREES)

    @property
    def differs(self) -> str:
        """One line of the claims that the numbers do not confirm."""
        return self._line(DIFFERS)

    def _line(self, verdict: str) -> str:
        chosen = [str(check) for check in self.checks if check.verdict == verdict]
        if not chosen:
            return f"none of the {len(self.checks)} claims that were checked"
        return f"{len(chosen)} of {len(self.checks)} claims: {'; '.join(chosen)}"


class Experiment(NamedTuple):
    """One figure or table of a paper."""

    name: str
    description: str
    run: Callable[[Setup], Result]
