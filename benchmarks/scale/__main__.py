"""Compute epochs, reports, leases, network and sizes of deployments that no machine here has.

    python -m benchmarks.scale [--pages 1e9 --databases 8 …] [--figures FILE …] [--json FILE]

Without --pages: 10⁹ pages on 8 databases and 10¹⁰ on 80. Files of `benchmarks.http`,
`benchmarks.leases` and `benchmarks.scale.measure` (their --json) replace the constants that they
measured. Every constant is printed with its unit and its source, and every
assumption with its value; options change them.

The model leaves out: vacuum and checkpoints beside an epoch, the growth of indexes beyond memory,
pings, and networks that lose or delay.
"""

import argparse
import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.scale.costs import Costs
from benchmarks.scale.epoch import Machines
from benchmarks.scale.plant import Line, Plant, described, results

DEFAULT = (
    Plant(pages=1e9, databases=8, actors=4, logical=256),
    Plant(pages=1e10, databases=80, actors=4, logical=1_024),
)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command's options: one for each assumption."""
    made = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    made.add_argument("--figures", type=Path, nargs="*", default=[], help="JSON of benchmarks")
    made.add_argument("--json", type=Path, help="write constants, assumptions and results")
    for kind in (Plant, Machines):
        for one in fields(kind):
            number = int if one.type is int else float
            made.add_argument(f"--{one.name.replace('_', '-')}", type=number)
    return made


def changed(one: Any, options: argparse.Namespace) -> Any:
    """Return assumptions with those that an option names."""
    own = {f.name: getattr(options, f.name) for f in fields(one)}
    return replace(one, **{name: value for name, value in own.items() if value is not None})


def table(title: str, head: tuple[str, ...], rows: list[tuple[str, ...]]) -> Table:
    """Return a table for the terminal."""
    made = Table(*head, title=title, title_justify="left", box=None, pad_edge=False)
    for row in rows:
        made.add_row(*row)
    return made


def number(value: float | None) -> str:
    """Return a number with three digits."""
    if value is None:
        return "none"
    return f"{value:,.0f}" if 1_000 <= abs(value) < 1e9 else f"{value:.3g}"


def main() -> None:
    """Compute, print and write."""
    options = parser().parse_args()
    costs = Costs().with_files(options.figures)
    machines = changed(Machines(), options)
    plants = [changed(plant, options) for plant in DEFAULT]
    if options.pages is not None or options.databases is not None:
        plants = plants[:1]
    lines: list[list[Line]] = [results(plant, costs, machines) for plant in plants]
    console = Console()
    rows = [(name, number(value), unit, source) for name, value, unit, source in costs.rows()]
    console.print(table("Constants", ("", "value", "unit", "source"), rows))
    assumed = [described(plant, machines) for plant in plants]
    names = [(name, *(number(one[name]) for one in assumed)) for name in assumed[0]]
    heads = tuple(f"{plant.pages:.0e} on {plant.databases}" for plant in plants)
    console.print(table("\nAssumptions", ("", *heads), names))
    values = [
        (one.name, *(number(each[n].value) for each in lines), one.unit)
        for n, one in enumerate(lines[0])
    ]
    console.print(table("\nResults", ("", *heads, "unit"), values))
    if options.json is not None:
        cases = [
            {"assumptions": own, "results": {line.name: line.value for line in each}}
            for own, each in zip(assumed, lines, strict=True)
        ]
        content = {"constants": rows, "cases": cases}
        options.json.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
