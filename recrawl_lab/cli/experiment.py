"""`recrawl experiment`: run the papers' experiments again."""

import json
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from service.cli.options import console, finite, heed_sigterm

if TYPE_CHECKING:
    from recrawl_lab.experiments.base import Experiment, Setup

Names = Annotated[
    list[str] | None,
    typer.Argument(help="Names of experiments, e.g. a22-2 gf08-4", metavar="[NAME…]"),
]
ListOnly = Annotated[bool, typer.Option("--list", help="List the experiments and exit")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of all random numbers")]
Scale = Annotated[
    float,
    typer.Option(
        min=1e-4, max=100, callback=finite, help="Share of a full experiment's runs or pages"
    ),
]
Out = Annotated[Path, typer.Option(help="Folder for the figure, CSV and JSON")]
Trace = Annotated[
    Path | None,
    typer.Option(help="DIR/SITE of a recorded history, for experiments on a real page"),
]
Data = Annotated[
    Path | None,
    typer.Option(help="Folder of the PoliteCrawling data set, for experiments on a corpus"),
]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print JSON, one line an experiment, and no tables")
]


def experiment(
    names: Names = None,
    list_: ListOnly = False,
    seed: Seed = 1,
    scale: Scale = 1.0,
    out: Out = Path("experiments"),
    trace: Trace = None,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Run experiments of the papers that Recrawl builds on, and compare.

    Each experiment prints its tables and the claims of its paper, those that agree and those that
    differ. A claim has the paper's figure, the new one, and the tolerance. The experiment writes
    NAME.png, NAME-1.csv … and NAME.json, and the command claims.md, a table of all claims. Without
    a name, the command lists the experiments.
    """
    from recrawl_lab.experiments import Setup, find
    from recrawl_lab.experiments.report import write_claims

    heed_sigterm()
    if list_ or not names:
        _print_names()
        return
    chosen = [find(name) for name in names]
    out.mkdir(parents=True, exist_ok=True)
    setup = Setup(seed=seed, scale=scale, trace=trace, data=data)
    documents = [_run(each, setup, out, as_json=as_json) for each in chosen]
    write_claims(documents, out)
    if find_spec("matplotlib") is None:
        console.print("For the figures: pip install matplotlib")


def _print_names() -> None:
    from recrawl_lab.experiments import EXPERIMENTS

    view = Table("name", "what")
    for each in EXPERIMENTS.values():
        view.add_row(each.name, each.description)
    Console().print(view)


def _run(each: "Experiment", setup: "Setup", out: Path, *, as_json: bool) -> dict[str, Any]:
    """Run one experiment with a progress bar; write its files, print and return its results."""
    from recrawl_lab.experiments.report import document, show, write

    with Progress(console=console, transient=True) as progress:
        task = progress.add_task(each.name, total=1.0)
        setup = replace(setup, progress=lambda share: progress.update(task, completed=share))
        result = each.run(setup)
    files = [path.name for path in write(each.name, result, setup, out)]
    results = document(each.name, result, setup)
    if as_json:
        typer.echo(json.dumps(results))
    else:
        show(result, Console())
    console.print(f"{out}: {', '.join(files)}", highlight=False)
    return results
