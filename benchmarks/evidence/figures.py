"""Figures of the evidence: means over seeds, gaps closed, and Recrawl over other policies.

A ratio of two policies is computed for each seed that both have played, and averaged over seeds.
With equal importance, seeds have the same world: there a policy without random numbers plays
once for all seeds.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from benchmarks.evidence.cells import OUTDATED, WEIGHTINGS, Cell, Line, cell_of, site_of
from recrawl_lab.policies.lineup import (
    HINDSIGHT,
    HINDSIGHT_KNOWS,
    LINEUP,
    NOTIFIED,
    PARTS,
    RECRAWL,
    UNIFORM,
    PolicyKind,
)

TIE = 1e-9
A_GAP = 0.1
"""Least gap between uniform and hindsight for a cell to count, share of uniform's staleness."""
VARIANTS = ("lambdacrawl-gamma", "lambdacrawl-bursty", *PARTS)
"""Our own variants: Recrawl without its rules of timing, and with one part left out each."""
A_LOSS = 0.003
"""Least gain of a variant over Recrawl that is counted, share of the variant's staleness."""

NOT_PLAYED: Line = {OUTDATED: True}

ByPolicy = dict[str, Line]
"""Lines of one cell and seed by policy."""


class Mean(NamedTuple):
    """Mean over seeds."""

    value: float
    error: float | None
    """Standard error; None with one seed."""

    def text(self, digits: int = 3) -> str:
        """Return the mean, and its standard error with one digit more unless that is zero."""
        error = f"{self.error or 0.0:.{digits + 1}f}"
        return f"{self.value:.{digits}f}" + (f" ± {error}" if float(error) else "")


def mean(values: Iterable[float | None]) -> Mean | None:
    """Return the mean of the values that are not None, one for each seed; None without any."""
    figures = [value for value in values if value is not None]
    if not figures:
        return None
    error = float(np.std(figures, ddof=1) / np.sqrt(len(figures))) if len(figures) > 1 else None
    return Mean(float(np.mean(figures)), error)


@dataclass(frozen=True)
class Played:
    """Lines of one cell."""

    seeds: dict[int, ByPolicy]

    def __contains__(self, name: str) -> bool:
        return any(name in lines for lines in self.seeds.values())

    @property
    def names(self) -> list[str]:
        """Policies that have played, in the order of the lineup."""
        return [name for name in LINEUP if name in self]

    @property
    def able(self) -> list[str]:
        """Policies without knowledge of the future."""
        return [name for name in self.names if LINEUP[name].kind is not PolicyKind.bound]

    @property
    def rivals(self) -> list[str]:
        """Policies without knowledge of the future, without Recrawl itself."""
        return [name for name in self.able if name != RECRAWL]

    @property
    def variants(self) -> list[str]:
        """Our own variants."""
        return [name for name in VARIANTS if name in self]

    @property
    def n_seeds(self) -> int:
        """Number of seeds with which Recrawl has played, as it is now."""
        return sum(OUTDATED not in lines.get(RECRAWL, NOT_PLAYED) for lines in self.seeds.values())

    def measure(self, name: str, field: str = "harmonic") -> Mean | None:
        """Return a measure of a policy."""
        return self._mean(lambda lines: lines[name].get(field), name)

    def over(self, name: str, base: str) -> Mean | None:
        """Return the staleness of a policy over that of another; None without a common seed."""
        return self._mean(
            lambda lines: lines[name]["harmonic"] / lines[base]["harmonic"], name, base
        )

    def gap_closed(self, name: str = RECRAWL) -> Mean | None:
        """Return a policy's gain over uniform crawling as a share of hindsight's gain."""
        return self._mean(lambda lines: _gap_closed(lines, name), UNIFORM, HINDSIGHT, name)

    @property
    def has_gap(self) -> bool:
        """True if hindsight is better than uniform crawling by `A_GAP`."""
        left = self.over(HINDSIGHT, UNIFORM)
        return left is not None and left.value <= 1 - A_GAP

    def best(self, names: Iterable[str]) -> str | None:
        """Return the policy with the least staleness over Recrawl's; None without any."""
        ratio = {name: over.value for name in names if (over := self.over(name, RECRAWL))}
        return min(ratio, key=ratio.__getitem__, default=None)

    def over_variant(self) -> Mean | None:
        """Return the staleness of Recrawl over that of the best of our own variants."""
        best = self.best(self.variants)
        return None if best is None else self.over(RECRAWL, best)

    def _mean(self, figure: Callable[[ByPolicy], float | None], *names: str) -> Mean | None:
        played = (lines for lines in self.seeds.values() if lines.keys() >= {*names})
        return mean(map(figure, played))


def _gap_closed(lines: ByPolicy, name: str) -> float | None:
    own, worst, best = (float(lines[each]["harmonic"]) for each in (name, UNIFORM, HINDSIGHT))
    return (worst - own) / (worst - best) if worst > best else None


Cells = dict[Cell, Played]


def by_cell(lines: list[Line]) -> Cells:
    """Return the lines by cell, in order, without cells that repeat another cell's world.

    A line replaces an outdated one.
    """
    cells: dict[Cell, dict[int, ByPolicy]] = defaultdict(lambda: defaultdict(dict))
    for line in sorted(lines, key=lambda line: OUTDATED not in line):
        cells[cell_of(line)][line["seed"]][line["policy"]] = line
    for cell, seeds in cells.items():
        if cell.importance == WEIGHTINGS[0]:
            _fill(seeds)
    return {cell: Played(dict(cells[cell])) for cell in sorted(cells) if not cell.repeats}


def _fill(seeds: dict[int, ByPolicy]) -> None:
    """Add to each seed the lines of policies without random numbers, which are the same for all."""
    played = {name: line for lines in seeds.values() for name, line in lines.items()}
    for name, line in played.items():
        if LINEUP[name].kind is not PolicyKind.learning:
            for lines in seeds.values():
                lines.setdefault(name, line)


def n_seeds(cells: Cells) -> int:
    """Return the largest number of seeds of a cell."""
    return max((len(played.seeds) for played in cells.values()), default=0)


def live(cells: Cells) -> Cells:
    """Return the cells with a table of the live pages alone."""
    return {
        cell: played
        for cell, played in cells.items()
        if site_of(cell.site).shows_live
        and any(played.measure(name, "harmonic_live") for name in played.names)
    }


# -- Recrawl over others


class Against(NamedTuple):
    """Recrawl's staleness over that of a rival, in the cells that both have played."""

    name: str
    n_cells: int
    n_won: int
    median: float
    worst: float


def against(cells: Cells) -> Iterator[Against]:
    """Yield the comparison with each rival, in the order of the lineup."""
    for name in LINEUP:
        rated = (played.over(RECRAWL, name) for played in cells.values() if name in played.rivals)
        ratio = [over.value for over in rated if over is not None]
        if ratio:
            n_won = int(np.count_nonzero(np.array(ratio) <= 1 + TIE))
            yield Against(name, len(ratio), n_won, float(np.median(ratio)), max(ratio))


def won(cells: Cells, rivals: list[str]) -> int:
    """Return the number of cells in which Recrawl is as good as the best of the rivals."""
    return sum(
        all(
            over.value <= 1 + TIE
            for name in rivals
            if (over := played.over(RECRAWL, name)) is not None
        )
        for played in cells.values()
    )


# -- sentences


def summary(cells: Cells) -> Iterator[str]:
    """Yield sentences without full stops, the most important first."""
    full = {cell: played for cell, played in cells.items() if RECRAWL in played and played.rivals}
    if not full:
        return
    yield _better(full)
    yield from _gaps(full)
    yield from _variants(full)
    yield from _calibration(full)
    if n_seeds(cells) > 1:
        yield f"figures are means of up to {n_seeds(cells)} seeds ± their standard error"


def _better(cells: Cells) -> str:
    names = list(dict.fromkeys(name for played in cells.values() for name in played.rivals))
    today = [name for name in names if LINEUP[name].kind is PolicyKind.today]
    better = f"in {won(cells, today)} of {len(cells)} cells"
    if len(today) < len(names):
        better += f", than all policies without foresight in {won(cells, names)}"
    return f"Recrawl is better than all policies of today's crawlers {better}"


def _gaps(cells: Cells) -> Iterator[str]:
    for name in (RECRAWL, NOTIFIED):
        wide = (played.gap_closed(name) for played in cells.values() if played.has_gap)
        closed = [gap.value for gap in wide if gap is not None]
        if closed:
            yield (
                f"gap closed by {name} in the {len(closed)} cells where hindsight is at least "
                f"{A_GAP:.0%} better than uniform: median {np.median(closed):.3f}, mean "
                f"{np.mean(closed):.3f} of ratios up to {max(closed):.2f}, least {min(closed):.2f}"
            )
    ahead = [over for played in cells.values() if (over := played.over(RECRAWL, HINDSIGHT))]
    if ahead:
        n_ahead = sum(over.value < 1 - TIE for over in ahead)
        yield f"hindsight knows {HINDSIGHT_KNOWS}"
        yield f"Recrawl is better than hindsight in {n_ahead} of {len(ahead)} cells"


def _variants(cells: Cells) -> Iterator[str]:
    ratio = {
        cell: over for cell, played in cells.items() if (over := played.over_variant()) is not None
    }
    if not ratio:
        return
    lost = [over for over in ratio.values() if over.value > 1 + A_LOSS]
    worst = max(ratio, key=lambda cell: ratio[cell].value)
    yield (
        f"a variant of our own is better than Recrawl by over {A_LOSS:.1%} in {len(lost)} of "
        f"{len(ratio)} cells; Recrawl's staleness over its best variant's is at most "
        f"{ratio[worst].text()} ({cells[worst].best(cells[worst].variants)} in {worst})"
    )
    certain = [over for over in lost if over.error is not None and over.value - 1 > 2 * over.error]
    if any(over.error is not None for over in lost):
        yield f"in {len(certain)} of these cells the loss exceeds two standard errors"


def _calibration(cells: Cells) -> Iterator[str]:
    for site in dict.fromkeys(cell.site for cell in cells):
        errors = [
            lines[RECRAWL]["ece_learnt"]
            for cell, played in cells.items()
            for lines in played.seeds.values()
            if cell.site == site and RECRAWL in lines
        ]
        known_errors = [error for error in errors if error is not None]
        if known_errors:
            yield (
                f"expected calibration error after the first quarter, {site}: mean "
                f"{np.mean(known_errors):.3f}, worst {max(known_errors):.3f}"
            )
