"""Write the tables and the figure of `benchmarks.evidence` into docs/evidence.md.

    python -m benchmarks.evidence.page bench-out/evidence [docs/evidence.jsonl]

The text between `<!-- evidence -->` and `<!-- end of evidence -->` is replaced; the rest stays. All
lines are written to docs/evidence.jsonl; of two lines of one game the first counts.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from benchmarks.evidence.cells import (
    EVERYTHING,
    OUTDATED,
    WEIGHTINGS,
    Cell,
    Kind,
    Line,
    read,
    written,
)
from benchmarks.evidence.figures import (
    SETTINGS,
    Cells,
    Mean,
    Played,
    against,
    by_cell,
    live,
    of_kind,
    summary,
)
from benchmarks.evidence.left import Task, left, sentences, task_of, tasks
from recrawl_lab.policies.lineup import HINDSIGHT, RECRAWL, UNIFORM

DOCS = Path(__file__).parents[2] / "docs"
BEGIN, END = "<!-- evidence -->", "<!-- end of evidence -->"
SHOWN = {
    "nutch-tuned": ("Nutch, tuned", "#d95f02", "v"),
    "stormcrawler-tuned": ("StormCrawler, tuned", "#7570b3", "^"),
    "lambdacrawl-gamma": ("LambdaCrawl", "#66a61e", "x"),
    RECRAWL: ("Recrawl", "#1f4e9c", "o"),
    HINDSIGHT: ("hindsight", "#999999", "|"),
}
MOST = 1.3
"""Right end of the figure's axis, staleness over that of uniform; points beyond it stand here."""


def markdown(cells: Cells, lines: list[Line]) -> Iterator[str]:
    """Yield the lines of a summary, of what is not played, and of the tables."""
    for sentence in (*summary(cells), *_commits(lines)):
        yield f"- {sentence[0].upper()}{sentence[1:]}."
    if todo := left(tasks(EVERYTHING), lines):
        yield "- Not played yet:"
        yield from (f"  - {sentence}." for sentence in sentences(todo))
    yield ""
    yield from targets(cells)
    for (kind, importance), words in SETTINGS.items():
        if some := of_kind(cells, kind, importance):
            yield ""
            yield f"### {words[0].upper()}{words[1:]}"
            yield ""
            yield from rivals(some)
            yield ""
            yield from ratios(some)
    if of_live := live(cells):
        yield ""
        yield "### Live pages among dead ones"
        yield ""
        yield from staleness_of_live_pages(of_live)


def _commits(lines: list[Line]) -> Iterator[str]:
    """Yield a sentence on the versions of the code that have played Recrawl."""
    commits = {each["commit"] for each in lines if each["policy"] == RECRAWL}
    if commits:
        yield f"the games of Recrawl were played by {', '.join(sorted(commits))}"


def targets(cells: Cells) -> Iterator[str]:
    """Yield the lines of the table of each cell's best heuristic and variant, the weakest first."""
    judged = [played for played in cells.values() if played.best_heuristic and RECRAWL in played]
    if not judged:
        return
    yield (
        "The best heuristic of each cell, and the best of our own variants. The cells in which "
        "Recrawl gains least come first. A weak cell, in bold, is above 1 by more than the allowed "
        "loss and by more than two standard errors:"
    )
    yield ""
    yield _titles("best heuristic", "Recrawl over it", "best variant", "Recrawl over it", "seeds")
    yield _line(9)
    judged.sort(key=lambda played: -_worst(played))
    for played in judged:
        yield _row(
            played.cell,
            *_target(played, played.best_heuristic),
            *_target(played, played.best_variant),
            _seeds(played),
        )


def _worst(played: Played) -> float:
    """Return the largest of Recrawl's two ratios."""
    both = (played.over_best(name) for name in (played.best_heuristic, played.best_variant))
    return max((over.value for over in both if over is not None), default=0.0)


def _target(played: Played, best: str | None) -> tuple[str, str]:
    over = played.over_best(best)
    if best is None or over is None:
        return "", ""
    text = over.stated()
    return f"`{best}`", f"**{text}**" if best in played.weak_against else text


def rivals(cells: Cells) -> Iterator[str]:
    """Yield the lines of the table of rivals, sizes before counts."""
    yield "| Recrawl's staleness over that of | median | worst | in | cells | at most 1 in |"
    yield _line(6)
    for one in against(cells):
        worst = f"{one.worst_cell.site}, R = {one.worst_cell.bandwidth_per_page:g}"
        sizes = f"{one.median:.3f} | {one.worst:.3f} | {worst}"
        yield f"| `{one.name}` | {sizes} | {one.n_cells} | {one.n_won} |"


def ratios(cells: Cells) -> Iterator[str]:
    """Yield the lines of the table of cells."""
    yield (
        "Staleness over that of uniform crawling; *own best* is that of Recrawl over the best of "
        "our own variants. *Seeds* is the number of games of Recrawl as it is now, *old* marks "
        "lines from before its last changes:"
    )
    yield ""
    names = _shown(cells)
    yield from _head(names, "own best", "gap closed", "seeds")
    for cell, played in cells.items():
        figures = [_text(played.over(name, UNIFORM), 2) for name in names]
        own, gap = played.over_variant(), _text(played.gap_closed(), 2)
        yield _row(cell, *figures, own.stated() if own else "", gap, _seeds(played))


def staleness_of_live_pages(cells: Cells) -> Iterator[str]:
    """Yield the lines of the table of live pages."""
    yield (
        "Nearly all pages of data-feeds never change. The mean harmonic staleness of its live "
        "pages, with at least 0.1 changes a day:"
    )
    yield ""
    names = _shown(cells, UNIFORM)
    yield from _head(names)
    for cell, played in cells.items():
        yield _row(cell, *(_text(played.measure(name, "harmonic_live"), 3) for name in names))


def _shown(cells: Cells, *also: str) -> list[str]:
    return [name for name in (*also, *SHOWN) if any(name in played for played in cells.values())]


def _head(names: list[str], *last: str) -> Iterator[str]:
    yield _titles(*(_title(name) for name in names), *last)
    yield _line(4 + len(names) + len(last))


def _titles(*titles: str) -> str:
    return f"| {' | '.join(('site', 'world', 'importance', 'R', *titles))} |"


def _line(n: int) -> str:
    return f"| {' | '.join(['---'] * n)} |"


def _title(name: str) -> str:
    return SHOWN[name][0] if name in SHOWN else name


def _row(cell: Cell, *figures: str) -> str:
    first = (cell.site, cell.kind, cell.importance, f"{cell.bandwidth_per_page:g}")
    return f"| {' | '.join((*first, *figures))} |"


def _text(figure: Mean | None, digits: int) -> str:
    return "" if figure is None else figure.text(digits)


def _seeds(played: Played) -> str:
    n = played.n_seeds
    return "one seed" if n == 1 else str(n or ("old" if RECRAWL in played else ""))


def figure(cells: Cells) -> Figure:
    """Draw the plain cells, a row for each site, a column for each importance."""
    drawn_cells = {cell: played for cell, played in cells.items() if cell.kind == Kind.plain}
    weightings = [
        each for each in WEIGHTINGS if any(cell.importance == each for cell in drawn_cells)
    ]
    sites = list(dict.fromkeys(cell.site for cell in drawn_cells))
    bandwidths = sorted({cell.bandwidth_per_page for cell in drawn_cells})
    drawn = Figure(figsize=(7.5, 1.5 * len(sites)), layout="constrained")
    size = len(sites), len(weightings)
    panels = drawn.subplots(*size, sharex=True, sharey=True, squeeze=False)
    for row, site in zip(panels, sites, strict=True):
        for axes, importance in zip(row, weightings, strict=True):
            axes.axvline(1.0, color="#cccccc", lw=1)
            for height, per_page in enumerate(bandwidths):
                played = drawn_cells.get(Cell(site, Kind.plain, importance, per_page))
                for name, (label, ink, marker) in SHOWN.items():
                    if played is not None and (ratio := played.over(name, UNIFORM)) is not None:
                        at = np.minimum(ratio.value, MOST)
                        axes.plot(at, height, marker, color=ink, ms=7, mew=1.5, label=label)
            axes.set(
                title=f"{site}, {importance}",
                xlim=(0, MOST * 1.03),
                yticks=range(len(bandwidths)),
                yticklabels=[f"R = {r:g}" for r in bandwidths],
                ylim=(-0.6, len(bandwidths) - 0.4),
            )
            axes.title.set_fontsize("small")
    for axes in panels[-1]:
        axes.set_xlabel("harmonic staleness over that of uniform crawling")
        axes.xaxis.label.set_fontsize("small")
    labels = dict(zip(*reversed(panels[0][0].get_legend_handles_labels()), strict=True))
    drawn.legend(
        labels.values(),
        labels.keys(),
        loc="outside upper center",
        ncols=len(SHOWN),
        fontsize="small",
    )
    return drawn


def ordered(lines: list[Line]) -> list[Line]:
    """Return the lines in the order of play, one for each game."""
    first: dict[Task, Line] = {}
    for each in sorted(lines, key=lambda line: OUTDATED in line):
        first.setdefault(task_of(each), each)
    place = {task: k for k, task in enumerate(tasks(EVERYTHING))}
    return [
        first[task] for task in sorted(first, key=lambda task: (place.get(task, len(place)), task))
    ]


def main() -> None:
    """Replace the lines, the tables and the figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("lines", type=Path, nargs="+", help="folders and files of games")
    lines = ordered(read(*parser.parse_args().lines))
    (DOCS / "evidence.jsonl").write_text("".join(map(written, lines)))
    cells = by_cell(lines)
    page = DOCS / "evidence.md"
    before, _, rest = page.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    table = "\n".join(markdown(cells, lines))
    page.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}")
    mpl.rcParams["svg.hashsalt"] = "recrawl"
    figure(cells).savefig(DOCS / "figures" / "evidence.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
