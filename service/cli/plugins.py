"""Commands and importers of other distributions, such as the laboratory (`recrawl-lab`)."""

from importlib.metadata import entry_points
from typing import Any

import typer

COMMANDS = "recrawl.commands"
"""Entry-point group of commands."""
IMPORTERS = "recrawl.importers"
"""Entry-point group of importers of folders; the first importer is used."""
LABORATORY = ("demo", "experiment", "replay")
"""Commands of the laboratory."""
INSTALL = "pip install ./recrawl_client ./recrawl_lab ."
"""Command that installs the laboratory, in a checkout."""
MISSING = f"is part of the laboratory; in a checkout, install it by: {INSTALL}"


def add_commands(app: typer.Typer) -> None:
    """Add the commands of installed distributions, or hints for missing laboratory commands."""
    installed = {entry.name: entry for entry in entry_points(group=COMMANDS)}
    for name, entry in sorted(installed.items()):
        command = entry.load()
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            app.command(name=name)(command)
    for name in LABORATORY:
        if name not in installed:
            _add_missing(app, name)


def _add_missing(app: typer.Typer, name: str) -> None:
    """Add a command that names the missing distribution for all arguments, `--help` included."""
    lenient = {"allow_extra_args": True, "ignore_unknown_options": True}

    @app.command(name=name, hidden=True, add_help_option=False, context_settings=lenient)
    def missing() -> None:
        raise typer.BadParameter(f"`recrawl {name}` {MISSING}")


def chosen_processes(settings: Any) -> Any:
    """Return the runner of epochs: this process, or those of several databases."""
    from service.epochs.shards import EpochProcesses, in_this_process
    from service.storage import plugin

    if settings.epoch_processes or settings.dask:
        return plugin("recrawl.spreads", "dask")(settings)
    return EpochProcesses(in_this_process, lambda: None)


def folder_importer() -> Any:
    """Return the importer of folders.

    Raises
    ------
    typer.BadParameter
        No importer is installed.
    """
    for entry in entry_points(group=IMPORTERS):
        return entry.load()
    raise typer.BadParameter(f"the import of a folder {MISSING}", param_hint="SOURCE")
