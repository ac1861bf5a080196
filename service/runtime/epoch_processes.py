"""The processes that compute epochs, by the settings."""

from collections.abc import Callable
from typing import NamedTuple

from service.epochs.parts import Spread, in_this_process
from service.model.plugins import SPREADS, of_cluster
from service.runtime.cluster_settings import ClusterSettings


class EpochProcesses(NamedTuple):
    """A runner of epochs, and the function that ends its processes."""

    spread: Spread
    close: Callable[[], None]


Chooser = Callable[[ClusterSettings], EpochProcesses]
"""Entry point of the group `recrawl.spreads`; it raises `InvalidSettings`."""


def chosen_processes(settings: ClusterSettings) -> EpochProcesses:
    """Return this process, or the Dask of the settings; raise `InvalidSettings`."""
    if not settings.dask:
        return EpochProcesses(in_this_process, lambda: None)
    chooser: Chooser = of_cluster(SPREADS, "dask", "RECRAWL_DASK")
    return chooser(settings)
