"""Output of an experiment: tables and claims in the terminal, files in a folder."""

import csv
import json
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table as View

from recrawl_lab.experiments.base import Result, ResultTable, Setup

WIDEST = 1_000
"""Maximum width of a table, characters; numbers are never cut, even in a narrower terminal."""


def document(name: str, result: Result, setup: Setup) -> dict[str, Any]:
    """Return everything but the figure as one JSON value."""
    return {
        "experiment": name,
        "title": result.title,
        "seed": setup.seed,
        "scale": setup.scale,
        "tables": [table._asdict() for table in result.tables],
        "checks": [check.row() for check in result.checks],
        "agrees": result.agrees,
        "differs": result.differs,
        "notes": list(result.notes),
    }


def write(name: str, result: Result, setup: Setup, folder: Path) -> Iterator[Path]:
    """Write NAME.json, NAME-1.csv … and, if matplotlib is installed, NAME.png; yield each path."""
    yield _written(
        folder / f"{name}.json", json.dumps(document(name, result, setup), indent=2) + "\n"
    )
    for number, table in enumerate(result.tables, start=1):
        path = folder / f"{name}-{number}.csv"
        with path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([table.columns, *table.rows])
        yield path
    if find_spec("matplotlib") is not None:
        path = folder / f"{name}.png"
        draw(result, path)
        yield path


CLAIMS = "claims.md"
"""Name of the file with the claims of all experiments of one command."""
COLUMNS = ("experiment", "claim", "place", "paper", "ours", "tolerance", "verdict")


def write_claims(documents: list[dict[str, Any]], folder: Path) -> Path:
    """Write the claims of experiments as a Markdown table; return its path."""
    rows = [
        {"experiment": f"`{each['experiment']}`", **check}
        for each in documents
        for check in each["checks"]
    ]
    lines = [" | ".join(COLUMNS), " | ".join("---" for _ in COLUMNS)]
    lines += [" | ".join(row[name] for name in COLUMNS) for row in rows]
    return _written(folder / CLAIMS, "".join(f"| {line} |\n" for line in lines))


def draw(result: Result, path: Path) -> None:
    """Write the figure as PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(layout="constrained")
    FigureCanvasAgg(figure)
    result.draw(figure)
    figure.savefig(path, dpi=120, format="png")


def show(result: Result, console: Console) -> None:
    """Print the tables, the claims that hold, the claims that do not, and the notes."""
    console.print(f"[bold]{escape(result.title)}[/]")
    for table in result.tables:
        view = _view(table)
        least = Measurement.get(console, console.options.update(width=WIDEST), view).minimum
        console.print(view, width=max(console.width, least), crop=False)
    console.print(f"[green]Agrees:[/] {escape(result.agrees)}.", highlight=False, soft_wrap=True)
    console.print(f"[yellow]Differs:[/] {escape(result.differs)}.", highlight=False, soft_wrap=True)
    for note in result.notes:
        console.print(f"Note: {escape(note)}.", highlight=False, soft_wrap=True)


def _view(table: ResultTable) -> View:
    """Return a view for narrow terminals: headers wrap between words, cells do not wrap."""
    rows = [[c if isinstance(c, str) else f"{c:.3g}" for c in row] for row in table.rows]
    view = View(title=table.title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for column, cells in zip(table.columns, zip(*rows, strict=True), strict=True):
        widest = max(map(len, (*cells, *column.split())))
        left = column == table.columns[0]
        view.add_column(escape(column), justify="left" if left else "right", min_width=widest)
    for row in rows:
        view.add_row(*row)
    return view


def _written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path
