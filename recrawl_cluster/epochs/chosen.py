"""The processes that compute epochs, by the settings."""

from functools import partial

from recrawl_cluster.epochs.databases import for_processes
from recrawl_cluster.epochs.processes import Processes
from service.epochs.shards import EpochProcesses, in_this_process
from service.model.errors import InvalidSettings
from service.runtime.epoch_settings import EpochSettings


def chosen_processes(settings: EpochSettings) -> EpochProcesses:
    """Return the runner of epochs; raise `InvalidSettings` if a package is missing."""
    if settings.epoch_processes:
        pool = Processes(partial(for_processes, n_processes=settings.epoch_processes))
        return EpochProcesses(pool.opened, pool.close)
    if not settings.dask:
        return EpochProcesses(in_this_process, lambda: None)
    try:
        from recrawl_cluster.epochs.actors import Actors, Certificates
    except ModuleNotFoundError as error:
        raise InvalidSettings(
            f"RECRAWL_DASK needs the package {error.name}; pip install 'recrawl[dask]', or unset "
            "RECRAWL_DASK"
        ) from error
    certificates = None
    if settings.dask_ca is not None:
        paths = settings.dask_ca, settings.dask_cert, settings.dask_key
        certificates = Certificates(*map(str, paths))
    actors = Actors(for_processes, settings.dask, certificates=certificates)
    return EpochProcesses(actors.opened, actors.close)
