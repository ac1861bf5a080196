"""Figures of the evidence: means over seeds, gaps closed, and Recrawl over other policies.

A ratio of two policies is computed for each seed that both have played, and averaged over seeds.
With equal importance, seeds have the same world: there a policy without random numbers plays
once for all seeds. A ratio has a standard error if two seeds are common; otherwise "one seed".
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from benchmarks.evidence.cells import OUTDATED, WEIGHTINGS, Cell, Kind, Line, cell_of, site_of
from benchmarks.evidence.left import has_seeds
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
from service.model.words import counted

TIE = 1e-9
A_GAP = 0.1
"""Least gap between uniform and hindsight for a cell to count, share of uniform's staleness."""
VARIANTS = ("lambdacrawl-gamma", "lambdacrawl-bursty", *PARTS)
"""Our own variants: Recrawl without its rules of timing, and with one part left out each."""
RIVALS = ("stormcrawler-tuned", "nutch-tuned")
"""Policies of today's crawlers at their best, in the order of the sentences."""
HEURISTICS = (UNIFORM, "fixed-tuned", *RIVALS, "stormcrawler-news-tuned")
"""Policies among which each cell has a best heuristic: those that use the whole bandwidth."""
A_LOSS, A_VARIANTS_LOSS = 0.003, 0.005
"""Least loss of Recrawl that counts, share of the staleness of a heuristic and of a variant."""

NOT_PLAYED: Line = {OUTDATED: True}

ByPolicy = dict[str, Line]
"""Lines of one cell and seed by policy."""


class Mean(NamedTuple):
    """Mean over seeds."""

    value: float
    error: float | None
    """Standard error; None with one seed, 0 where no seed matters."""

    def text(self, digits: int = 3) -> str:
        """Return the mean, and its standard error with one digit more unless that is zero."""
        error = f"{self.error or 0.0:.{digits + 1}f}"
        return f"{self.value:.{digits}f}" + (f" ± {error}" if float(error) else "")

    def stated(self, digits: int = 3) -> str:
        """Return the mean with its standard error, or with the words "one seed"."""
        return self.text(digits) + (", one seed" if self.error is None else "")

    def exceeds(self, most: float) -> bool:
        """Return whether the mean is above a bound and, beyond two standard errors, above 1."""
        return self.value > most and self.value - 1.0 > 2.0 * (self.error or 0.0)


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

    cell: Cell
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

    @property
    def best_heuristic(self) -> str | None:
        """The best policy of today's crawlers; None unless all of `HEURISTICS` have played."""
        return self._best_of_all(HEURISTICS)

    @property
    def best_variant(self) -> str | None:
        """The best of our own variants; None unless all of them have played."""
        return self._best_of_all(VARIANTS)

    def over_best(self, best: str | None) -> Mean | None:
        """Return the staleness of Recrawl over that of a policy; None without one."""
        return None if best is None else self.over(RECRAWL, best)

    def over_variant(self) -> Mean | None:
        """Return the staleness of Recrawl over that of the best of our own variants."""
        return self.over_best(self.best_variant)

    @property
    def weak_against(self) -> list[str]:
        """Policies that are better than Recrawl by more than allowed and two standard errors."""
        bounds = (self.best_heuristic, A_LOSS), (self.best_variant, A_VARIANTS_LOSS)
        return [
            best
            for best, loss in bounds
            if best is not None
            and (over := self.over(RECRAWL, best)) is not None
            and over.exceeds(1.0 + loss)
        ]

    def _best_of_all(self, names: Iterable[str]) -> str | None:
        return self.best(names) if all(name in self for name in names) else None

    def _mean(self, figure: Callable[[ByPolicy], float | None], *names: str) -> Mean | None:
        played = (lines for lines in self.seeds.values() if lines.keys() >= {*names})
        result = mean(map(figure, played))
        if result is not None and not any(has_seeds(self.cell, name) for name in names):
            return Mean(result.value, 0.0)
        return result


def _gap_closed(lines: ByPolicy, name: str) -> float | None:
    own, worst, best = (float(lines[each]["harmonic"]) for each in (name, UNIFORM, HINDSIGHT))
    return (worst - own) / (worst - best) if worst > best else None


Cells = dict[Cell, Played]


def by_cell(lines: list[Line]) -> Cells:
    """Return the lines by cell, in order; a line replaces an outdated one."""
    cells: dict[Cell, dict[int, ByPolicy]] = defaultdict(lambda: defaultdict(dict))
    for line in sorted(lines, key=lambda line: OUTDATED not in line):
        cells[cell_of(line)][line["seed"]][line["policy"]] = line
    for cell, seeds in cells.items():
        _fill(cell, seeds)
    return {cell: Played(cell, dict(cells[cell])) for cell in sorted(cells)}


def _fill(cell: Cell, seeds: dict[int, ByPolicy]) -> None:
    """Add to each seed the lines of policies without random numbers, which are the same for all."""
    played = {name: line for lines in seeds.values() for name, line in lines.items()}
    for name, line in played.items():
        if not has_seeds(cell, name):
            for lines in seeds.values():
                lines.setdefault(name, line)


def of_kind(cells: Cells, kind: Kind, importance: str = WEIGHTINGS[0]) -> Cells:
    """Return the cells of a kind of world and an importance."""
    return {
        cell: played
        for cell, played in cells.items()
        if cell.kind == kind and cell.importance == importance
    }


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
    median: float
    worst: float
    worst_cell: Cell
    n_cells: int
    n_won: int


def against(cells: Cells) -> Iterator[Against]:
    """Yield the comparison with each rival, in the order of the lineup."""
    for name in LINEUP:
        ratio = {
            cell: over.value
            for cell, played in cells.items()
            if name in played.rivals and (over := played.over(RECRAWL, name)) is not None
        }
        if ratio:
            worst = max(ratio, key=ratio.__getitem__)
            n_won = sum(value <= 1 + TIE for value in ratio.values())
            median = float(np.median(list(ratio.values())))
            yield Against(name, median, ratio[worst], worst, len(ratio), n_won)


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
    """Yield sentences without full stops, sizes before counts."""
    full = {cell: played for cell, played in cells.items() if RECRAWL in played and played.rivals}
    if not full:
        return
    yield from _sizes(full)
    yield from _weak(full)
    yield _better(full)
    yield from _gaps(full)
    yield from _variants(full)
    yield from _calibration(full)


SETTINGS = {
    (Kind.plain, "equal"): "plain worlds, equal importance",
    (Kind.outages, "equal"): "worlds with outages, equal importance",
    (Kind.revisions, "equal"): "worlds with revisions of many pages, equal importance",
    (Kind.plain, "lognormal"): "plain worlds, log-normal importance",
}
"""Words of the kinds of worlds and importances, in the order of the sentences."""


def _sizes(cells: Cells) -> Iterator[str]:
    for (kind, importance), words in SETTINGS.items():
        rated = {one.name: one for one in against(of_kind(cells, kind, importance))}
        for name in (*RIVALS, UNIFORM):
            if name in rated:
                yield f"{words}: {_size(rated[name])}"


def _size(one: Against) -> str:
    return (
        f"Recrawl has {one.median:.2f} of the staleness of {one.name} in the median of "
        f"{counted(one.n_cells, 'cell')}; at worst {one.worst:.3f} ({one.worst_cell.site}, R = "
        f"{one.worst_cell.bandwidth_per_page:g})"
    )


def _weak(cells: Cells) -> Iterator[str]:
    judged = {cell: played for cell, played in cells.items() if played.best_heuristic is not None}
    if not judged:
        return
    weak = [f"{cell}" for cell, played in judged.items() if played.weak_against]
    yield (
        f"weak cells, in which Recrawl is above the best heuristic by over {A_LOSS:.1%} or above "
        f"its own best variant by over {A_VARIANTS_LOSS:.1%}, beyond two standard errors: "
        f"{len(weak)} of {len(judged)}"
        + (f" ({'; '.join(weak)})" if weak else "")
        + f"; all variants have played in {sum(bool(one.best_variant) for one in judged.values())}"
    )


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
    values = [over.value for over in ratio.values()]
    worst = max(ratio, key=lambda cell: ratio[cell].value)
    lost = [over for over in ratio.values() if over.value > 1 + A_VARIANTS_LOSS]
    yield (
        f"Recrawl's staleness over that of its own best variant is {np.median(values):.3f} in the "
        f"median of {counted(len(ratio), 'cell')}, at worst {ratio[worst].stated()} "
        f"({cells[worst].best_variant} in {worst}); above {1 + A_VARIANTS_LOSS} in {len(lost)}, "
        f"{sum(over.error is None for over in lost)} of them by one seed"
    )


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
