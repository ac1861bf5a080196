"""Commands and importers of other distributions: the laboratory and the cluster."""

from importlib.metadata import entry_points
from typing import Any

import typer

from service.model.plugins import COMMANDS, IMPORTERS
from service.model.plugins import INSTALL as INSTALL_CLUSTER

LABORATORY = ("demo", "experiment", "replay")
"""Commands of the laboratory."""
CLUSTER = ("shards",)
"""Commands of the cluster."""
INSTALL = "pip install ./recrawl_client ./recrawl_lab ."
"""Command that installs the laboratory, in a checkout."""
MISSING = f"is part of the laboratory; in a checkout, install it by: {INSTALL}"
MISSING_CLUSTER = f"is for several databases; install it by: {INSTALL_CLUSTER}"
HINTS = {**dict.fromkeys(LABORATORY, MISSING), **dict.fromkeys(CLUSTER, MISSING_CLUSTER)}
"""End of the sentence about each command that is not installed."""


def add_commands(app: typer.Typer) -> None:
    """Add the commands of installed distributions, and hints for those that are missing."""
    installed = {entry.name: entry for entry in entry_points(group=COMMANDS)}
    for name, entry in sorted(installed.items()):
        command = entry.load()
        panel = "Several databases" if name in CLUSTER else "The laboratory"
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name, rich_help_panel=panel)
        else:
            app.command(name=name, rich_help_panel=panel)(command)
    for name, hint in HINTS.items():
        if name not in installed:
            _add_missing(app, name, hint)


def _add_missing(app: typer.Typer, name: str, hint: str) -> None:
    """Add a command that names the missing distribution for all arguments, `--help` included."""
    lenient = {"allow_extra_args": True, "ignore_unknown_options": True}

    @app.command(name=name, hidden=True, add_help_option=False, context_settings=lenient)
    def missing() -> None:
        raise typer.BadParameter(f"`recrawl {name}` {hint}")


def folder_importer() -> Any:
    """Return the importer of folders.

    Raises
    ------
    typer.BadParameter
        No importer is installed.
    """
    for entry in entry_points(group=IMPORTERS):
        return entry.load()
    raise typer.BadParameter(
        f"a folder; name its files, as FOLDER/*; only the PoliteCrawling data set is a folder, and "
        f"it {MISSING}",
        param_hint="SOURCE",
    )
