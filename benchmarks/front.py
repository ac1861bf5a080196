"""Write the figures of README.md, and docs/figures/demo.svg.

    python -m benchmarks.front               # play the demo: its table, its figure; evidence too
    python -m benchmarks.front --evidence    # the sentences that follow from docs/evidence.jsonl

Each part stands between `<!-- NAME -->` and `<!-- end of NAME -->`; the rest of README.md stays.
"""

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.evidence.cells import WEIGHTINGS, Kind, read
from benchmarks.evidence.figures import RIVALS, Cells, by_cell, of_kind
from recrawl_lab.demo.game import GameResult, draw
from recrawl_lab.policies.lineup import RECRAWL
from recrawl_lab.worlds.scenario import scenario, stages

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
FIGURE = ROOT / "docs" / "figures" / "demo.svg"
LINES = ROOT / "docs" / "evidence.jsonl"
SEED = 1
"""Seed of the demo, as `recrawl demo` has it."""
NUMBERS = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
MINUS = "\N{MINUS SIGN}"


def ratios(cells: Cells, importance: str) -> np.ndarray:
    """Return (K, 2) Recrawl's staleness over that of each rival, in the cells of an importance."""
    played = of_kind(cells, Kind.plain, importance).values()
    every = ([own.over(RECRAWL, rival) for rival in RIVALS] for own in played)
    complete = ([over.value for over in row if over is not None] for row in every)
    return np.array([row for row in complete if len(row) == len(RIVALS)]).reshape(-1, len(RIVALS))


def evidence(cells: Cells) -> str:
    """Return the sentences on equal importance, and on importance that differs."""
    equal, differing = (ratios(cells, importance) for importance in WEIGHTINGS)
    n_sites = len({cell.site for cell in of_kind(cells, Kind.plain)})
    storm, nutch = np.median(equal, axis=0)
    worst_storm, worst_nutch = equal.max(axis=0)
    text = (
        f"The histories of {NUMBERS[n_sites]} real sites are played again, with **equal "
        f"importance**, no pings and as many crawls for each policy. Recrawl's copies are "
        f"**{storm:.2f} times** as stale as those of tuned StormCrawler, and **{nutch:.2f} "
        f"times** as those of tuned Nutch. These are medians of {len(equal)} settings; the worst "
        f"are {worst_storm:.2f} and {worst_nutch:.2f}."
    )
    if not len(differing):
        return text
    weighted = np.median(differing, axis=0)
    return (
        f"{text} With importance that differs from page to page, the medians of {len(differing)} "
        f"settings are {weighted[0]:.2f} and {weighted[1]:.2f}."
    )


def table(results: Sequence[GameResult]) -> str:
    """Return the table of the demo, a row for each stage."""
    policies = [outcome.policy for outcome in results[0].outcomes]
    lines = [
        f"| 2,000 made-up pages, 60 days | {' | '.join(policies)} | Recrawl against StormCrawler |",
        f"| --- |{' --- |' * (len(policies) + 1)}",
    ]
    for result in results:
        figures = [f"{outcome.staleness.harmonic:.3f}" for outcome in result.outcomes]
        against = result.recrawl.staleness.harmonic / result.stormcrawler.staleness.harmonic - 1
        shown = f"{against:+.0%}".replace("-", MINUS).replace("%", " %")
        lines.append(f"| {result.world.name} | {' | '.join(figures)} | {shown} |")
    return "\n".join(lines)


def marks(name: str) -> tuple[str, str]:
    """Return the lines around a part of README.md."""
    return f"<!-- {name} -->\n", f"<!-- end of {name} -->"


def part(name: str) -> str:
    """Return a part of README.md."""
    begin, end = map(re.escape, marks(name))
    return re.search(f"{begin}(.*?){end}", README.read_text(), re.DOTALL)[1].rstrip("\n")


def write(name: str, content: str) -> None:
    """Replace a part of README.md; raise `ValueError` where it has no such part."""
    begin, end = marks(name)
    before, rest = README.read_text().split(begin)
    _, after = rest.split(end)
    README.write_text(f"{before}{begin}{content}\n{end}{after}")


def play() -> list[GameResult]:
    """Play the demo at its defaults."""
    import service.cli  # noqa: F401 - it loads the commands of the laboratory in its turn
    from recrawl_lab.cli.demo import games

    return [result for _, result in games(stages(scenario(seed=SEED)), SEED)]


def main() -> None:
    """Replace the parts and the figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--evidence", action="store_true", help="leave the demo out")
    if not parser.parse_args().evidence:
        results = play()
        write("demo", table(results))
        draw(results, FIGURE)
    write("evidence", evidence(by_cell(read(LINES))))


if __name__ == "__main__":
    main()
