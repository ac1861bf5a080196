"""The runner of RECRAWL_DASK, which the service finds by its entry point."""

from recrawl_cluster.epochs.actors import Actors, Certificates
from recrawl_cluster.epochs.databases import for_processes
from recrawl_cluster.epochs.hosts import ByHosts
from service.runtime.cluster_settings import ClusterSettings
from service.runtime.epoch_processes import EpochProcesses


def dask_processes(settings: ClusterSettings) -> EpochProcesses:
    """Return the actors on the Dask workers of the settings, for one database or several."""
    certificates = None
    if settings.dask_ca is not None:
        paths = settings.dask_ca, settings.dask_cert, settings.dask_key
        certificates = Certificates(*map(str, paths))
    actors = Actors(for_processes, str(settings.dask), certificates=certificates)
    spread = actors.opened if settings.cluster else ByHosts(actors).opened
    return EpochProcesses(spread, actors.close)
