"""Write the tables and the figure of `benchmarks.evidence` into docs/evidence.md.

    python -m benchmarks.evidence_page evidence.jsonl

The text between `<!-- evidence -->` and `<!-- end of evidence -->` is replaced; the rest stays.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from benchmarks.evidence import (
    BANDWIDTHS,
    SITES,
    WEIGHTINGS,
    Cell,
    Line,
    against,
    by_cell,
    gap_closed,
    summary,
)
from benchmarks.evidence import read as read_lines
from recrawl_lab.policies.lineup import HINDSIGHT, RECRAWL, UNIFORM

DOCS = Path(__file__).parent.parent / "docs"
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


def markdown(cells: dict[Cell, dict[str, Line]]) -> Iterator[str]:
    """Yield the lines of a summary, of a table of rivals and of a table of cells."""
    for sentence in summary(cells):
        yield f"- {sentence}."
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
    yield "Staleness over that of uniform crawling:"
    names = [name for name in SHOWN if any(name in got for got in cells.values())]
    yield ""
    titles = [SHOWN[name][0] for name in names]
    yield "| site | bulk | importance | R | " + " | ".join(titles) + " | gap closed |"
    yield "| --- | --- | --- | --- | " + " | ".join(["---"] * (len(names) + 1)) + " |"
    for cell, got in cells.items():
        ratios = [
            f"{got[name]['harmonic'] / got[UNIFORM]['harmonic']:.2f}" if name in got else ""
            for name in names
        ]
        closed = gap_closed(got)
        first = [cell.site, "in" if cell.bulk else "out", cell.importance]
        row = [*first, f"{cell.bandwidth_per_page:g}", *ratios]
        yield f"| {' | '.join(row)} | {'' if closed is None else f'{closed:.2f}'} |"


def figure(cells: dict[Cell, dict[str, Line]]) -> Figure:
    """Draw the cells without bulk revisions, a row each, by site and importance."""
    drawn = Figure(figsize=(7.5, 7.5), layout="constrained")
    panels = drawn.subplots(len(SITES), len(WEIGHTINGS), sharex=True, sharey=True)
    for row, site in zip(panels, SITES, strict=True):
        for axes, importance in zip(row, WEIGHTINGS, strict=True):
            axes.axvline(1.0, color="#cccccc", lw=1)
            for height, per_page in enumerate(BANDWIDTHS):
                got = cells.get(Cell(site, False, importance, per_page), {})
                for name, (label, ink, marker) in SHOWN.items():
                    if {name, UNIFORM} <= got.keys():
                        ratio = got[name]["harmonic"] / got[UNIFORM]["harmonic"]
                        at = np.minimum(ratio, MOST)
                        axes.plot(at, height, marker, color=ink, ms=7, mew=1.5, label=label)
            axes.set(
                title=f"{site}, {importance}",
                xlim=(0, MOST * 1.03),
                yticks=range(len(BANDWIDTHS)),
                yticklabels=[f"R = {r:g}" for r in BANDWIDTHS],
                ylim=(-0.6, len(BANDWIDTHS) - 0.4),
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
