"""Write the tables and the figure of `benchmarks.evidence` into docs/evidence.md.

    python -m benchmarks.evidence.page evidence.jsonl

The text between `<!-- evidence -->` and `<!-- end of evidence -->` is replaced; the rest stays.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from benchmarks.evidence.cells import WEIGHTINGS, Cell
from benchmarks.evidence.cells import read as read_lines
from benchmarks.evidence.figures import Cells, Mean, Played, against, by_cell, live, summary
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


def markdown(cells: Cells) -> Iterator[str]:
    """Yield the lines of a summary, of a table of rivals and of tables of cells."""
    for sentence in summary(cells):
        yield f"- {sentence[0].upper()}{sentence[1:]}."
    yield ""
    yield "| Recrawl against | cells | as good or better in | staleness over its, median | worst |"
    yield "| --- | --- | --- | --- | --- |"
    rivals = list(against(cells))
    for one in rivals:
        figures = f"{one.n_cells} | {one.n_won} | {one.median:.2f} | {one.worst:.3f}"
        yield f"| `{one.name}` | {figures} |"
    yield ""
    if any(one.n_cells < len(cells) for one in rivals):
        yield "A rival with fewer cells has not been played in the others yet."
        yield ""
    yield from ratios(cells)
    if of_live := live(cells):
        yield ""
        yield from staleness_of_live_pages(of_live)


def ratios(cells: Cells) -> Iterator[str]:
    """Yield the lines of the table of cells."""
    yield (
        "Staleness over that of uniform crawling; *own best* is that of Recrawl over the best of "
        "our own variants, above 1 where a part of the default costs something. *Seeds* is the "
        "number of games of Recrawl as it is now, *old* marks lines from before its last changes:"
    )
    yield ""
    names = _shown(cells)
    yield from _head(names, "own best", "gap closed", "seeds")
    for cell, played in cells.items():
        figures = [_text(played.over(name, UNIFORM), 2) for name in names]
        last = _text(played.over_variant(), 3), _text(played.gap_closed(), 2)
        yield _row(cell, *figures, *last, _seeds(played))


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
    titles = ["site", "bulk", "importance", "R", *(_title(name) for name in names), *last]
    yield f"| {' | '.join(titles)} |"
    yield f"| {' | '.join(['---'] * len(titles))} |"


def _title(name: str) -> str:
    return SHOWN[name][0] if name in SHOWN else name


def _row(cell: Cell, *figures: str) -> str:
    first = (cell.site, cell.bulk_label, cell.importance, f"{cell.bandwidth_per_page:g}")
    return f"| {' | '.join((*first, *figures))} |"


def _text(figure: Mean | None, digits: int) -> str:
    return "" if figure is None else figure.text(digits)


def _seeds(played: Played) -> str:
    return str(played.n_seeds or ("old" if RECRAWL in played else ""))


def figure(cells: Cells) -> Figure:
    """Draw the cells without bulk revisions, a row for each site, a column for each importance."""
    drawn_cells = {cell: played for cell, played in cells.items() if not cell.bulk}
    sites = list(dict.fromkeys(cell.site for cell in drawn_cells))
    bandwidths = sorted({cell.bandwidth_per_page for cell in drawn_cells})
    drawn = Figure(figsize=(7.5, 1.5 * len(sites)), layout="constrained")
    size = len(sites), len(WEIGHTINGS)
    panels = drawn.subplots(*size, sharex=True, sharey=True, squeeze=False)
    for row, site in zip(panels, sites, strict=True):
        for axes, importance in zip(row, WEIGHTINGS, strict=True):
            axes.axvline(1.0, color="#cccccc", lw=1)
            for height, per_page in enumerate(bandwidths):
                played = drawn_cells.get(Cell(site, False, importance, per_page))
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


def main() -> None:
    """Replace the tables and the figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("lines", type=Path, help="file written by benchmarks.evidence")
    cells = by_cell(read_lines(parser.parse_args().lines))
    page = DOCS / "evidence.md"
    before, _, rest = page.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    table = "\n".join(markdown(cells))
    page.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}")
    mpl.rcParams["svg.hashsalt"] = "recrawl"
    figure(cells).savefig(DOCS / "figures" / "evidence.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
