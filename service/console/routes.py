"""The routes of the API by their operations, whose parameters the console reads."""

from functools import cache

from service.api.app import ROUTERS
from service.api.route import DirectRoute


@cache
def route_of(operation: str) -> DirectRoute:
    """Return the route of an operation of the API."""
    return next(
        each
        for router in ROUTERS
        for each in router.routes
        if isinstance(each, DirectRoute) and each.operation == operation
    )
