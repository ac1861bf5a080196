"""Entry points: what other distributions add to the service.

`recrawl-lab` adds commands and importers, `recrawl-cluster` commands, stores and runners of epochs.
"""

from importlib.metadata import entry_points
from typing import Any

from service.model.errors import InvalidSettings

COMMANDS = "recrawl.commands"
"""Entry-point group of commands."""
IMPORTERS = "recrawl.importers"
"""Entry-point group of importers of folders; the first importer is used."""
STORES = "recrawl.stores"
"""Entry-point group of stores, by the scheme of their address (`storage.StoreOpener`)."""
SPREADS = "recrawl.spreads"
"""Entry-point group of runners of epochs, by their setting (`runtime.epoch_processes.Chooser`)."""
INSTALL = "pip install 'recrawl[cluster]'"
"""Command that installs `recrawl-cluster`."""


def of_cluster(group: str, name: str, setting: str) -> Any:
    """Return what the cluster offers under a name of a group, for a setting that is in use.

    Raises
    ------
    InvalidSettings
        `recrawl-cluster` is not installed, or a package that it needs is not.
    """
    for entry in entry_points(group=group, name=name):
        try:
            return entry.load()
        except ModuleNotFoundError as error:
            raise InvalidSettings(
                f"{setting} needs the package {error.name}; {INSTALL}, or unset {setting}"
            ) from error
    raise InvalidSettings(
        f"{setting} needs the distribution recrawl-cluster; {INSTALL}, or unset {setting}"
    )
