"""`recrawl experiment`: run the papers' experiments again."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from service.cli.parts import console, finite, heed_sigterm


def experiment(
    names: Annotated[
        list[str] | None, typer.Argument(help="Which, e.g. a22-2 gf08-4", metavar="[NAME…]")
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="Say which there are, and stop")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Of everything random")] = 1,
    scale: Annotated[
        float,
        typer.Option(
            min=1e-4, max=100, callback=finite, help="Share of a full experiment's runs or pages"
        ),
    ] = 1.0,
    out: Annotated[Path, typer.Option(help="Folder for the figure, CSV and JSON")] = Path(
        "experiments"
    ),
    trace: Annotated[
        Path | None,
        typer.Option(help="DIR/SITE of a recorded history, for experiments on a real page"),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Folder of the PoliteCrawling data set, for experiments on a corpus"),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON, one line an experiment, and no tables")
    ] = False,
) -> None:
    """Run experiments of the papers that Recrawl builds on, and compare.

    Each prints its tables and says in one line what agrees with the paper and in one what
    differs, both found by the numbers just produced; it writes NAME.png, NAME-1.csv … and
    NAME.json. Without a name it says which experiments there are.
    """
    from service.sim.experiments import EXPERIMENTS, Setup, find
    from service.sim.experiments.report import document, show, write

    heed_sigterm()
    if list_ or not names:
        view = Table("name", "what")
        for each in EXPERIMENTS.values():
            view.add_row(each.name, each.description)
        Console().print(view)
        return
    chosen = [find(name) for name in names]
    out.mkdir(parents=True, exist_ok=True)
    for each in chosen:
        with Progress(console=console, transient=True) as progress:
            task = progress.add_task(each.name, total=1.0)

            def follow(share: float, progress: Progress = progress) -> None:
                progress.update(task, completed=share)  # noqa: B023

            setup = Setup(seed=seed, scale=scale, trace=trace, data=data, progress=follow)
            result = each.run(setup)
        written = [path.name for path in write(each.name, result, setup, out)]
        if as_json:
            typer.echo(json.dumps(document(each.name, result, setup)))
        else:
            show(result, Console())
        console.print(f"{out}: {', '.join(written)}", highlight=False)
    if find_spec("matplotlib") is None:
        console.print("For the figures: pip install 'recrawl[demo]'")
