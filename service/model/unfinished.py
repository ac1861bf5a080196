"""Leases that ended without a report."""

from enum import IntEnum


class Ending(IntEnum):
    """The end of a lease without a report."""

    expired = 1
    """Nobody reported the crawl before the end of the lease."""
    returned = 2
    """The worker, or an operator, returned the lease."""
    refused = 3
    """The service refused the report by item."""


REPORTED = 0
"""Code in a column of endings: a report ended the lease."""
SET_ASIDE_AFTER = 3
"""Leases in a row that end without a report, after which a page is set aside."""
