"""What an experiment is given and what it gives: tables, a figure, and claims with their figures.

No sentence about agreement is written by hand. An experiment turns each statement of its paper
into a `Check`: the claim, what was measured, and whether that bears it out. The two lines that a
reader sees, `Result.agrees` and `Result.differs`, are put together from those.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Draw = Callable[["Figure"], None]
"""Draws into an empty figure."""

LEAST_RUNS = 8
"""However small the scale: below, a standard deviation means nothing."""


def unheard(share: float) -> None:
    """Ignore the share that is done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What whoever runs an experiment chooses."""

    seed: int = 1
    scale: float = 1.0
    """Share of a full experiment's runs (or pages, where there are no runs)."""
    trace: Path | None = None
    """DIR/SITE of a recording, for experiments on the history of a real page."""
    data: Path | None = None
    """Folder of the PoliteCrawling data set, for experiments on a corpus."""
    progress: Callable[[float], None] = unheard
    """Is told the share done, in [0, 1], now and then."""

    def rng(self) -> np.random.Generator:
        """Return the one source of chance of an experiment."""
        return np.random.default_rng(self.seed)

    def runs(self, full: int) -> int:
        """Scale the number of runs of a full experiment."""
        return max(LEAST_RUNS, round(full * self.scale))


class ResultTable(NamedTuple):
    """Rows of words and numbers under named columns."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str | float, ...]]


class Check(NamedTuple):
    """One statement of the paper, held against the numbers just produced."""

    claim: str
    measured: str
    holds: bool

    def __str__(self) -> str:
        return f"{self.claim} ({self.measured})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What an experiment found."""

    title: str
    tables: list[ResultTable]
    checks: list[Check]
    draw: Draw
    notes: tuple[str, ...] = ()
    """What a reader must know: stand-ins for data, numbers that the paper does not give."""

    @property
    def agrees(self) -> str:
        """One line: the claims that the numbers bear out."""
        return self._line(holds=True)

    @property
    def differs(self) -> str:
        """One line: the claims that they do not."""
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
