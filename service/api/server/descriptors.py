"""File descriptors: how many connections they allow beside the database's."""

import resource
from contextlib import suppress
from pathlib import Path

import structlog

MAX_CONNECTIONS = 16_384
"""Maximum number of connections, however many descriptors there are."""

SPARE = 8
"""Number of further connections, which are kept for probes of health."""

KEPT = 64
"""Number of descriptors kept for the database and files, at most two thirds of those free."""

FEW = 1_024
"""Number of descriptors below which the log has a warning."""

USEFUL = MAX_CONNECTIONS + SPARE + KEPT + FEW
"""Number of descriptors above which a further one has no use."""

OPEN_FILES = Path("/dev/fd")

log = structlog.get_logger()


def raise_limit() -> int:
    """Raise the soft limit of open files as far as it is of use, and return it."""
    soft, hard = map(_finite, resource.getrlimit(resource.RLIMIT_NOFILE))
    if soft < min(hard, USEFUL):
        with suppress(ValueError, OSError):  # a system may allow less than the hard limit
            hard_as_set = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, USEFUL), hard_as_set))
    return _finite(resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def _finite(limit: int) -> int:
    return USEFUL if limit == resource.RLIM_INFINITY else limit


def max_connections() -> int:
    """Return how many connections a server may have, and warn where these are few."""
    limit = raise_limit()
    n = connections_within(limit, len([*OPEN_FILES.iterdir()]))
    if limit < FEW:
        log.warning("few file descriptors", limit=limit, connections=n, remedy="raise ulimit -n")
    return n


def connections_within(limit: int, n_open: int) -> int:
    """Return how many connections a limit of open files allows, at least one.

    >>> connections_within(limit=1_024, n_open=24)
    928
    >>> connections_within(limit=64, n_open=19)
    7
    """
    free = limit - n_open
    n = max(free - KEPT, free // 3) - SPARE
    return max(1, min(n, MAX_CONNECTIONS))
