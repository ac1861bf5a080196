"""The first page: what the fleet has achieved."""

from fastapi import Response

from service.console.visit import Visit


def show(visit: Visit) -> Response:
    """Show the overview."""
    with visit.service.store.begin(write=False) as tx:
        epoch = tx.epoch_in_force()
    return visit.page("overview.html", epoch=epoch)
