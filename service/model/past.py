"""Past crawls: those of the time before their pages were registered. Pure.

A crawl that is dated well before the registration of its page is the work of another crawler, and
was imported. It teaches as any other. It is no finding of this service: it is not counted, spends
no budget, makes no change in the feed, and is no measure for a later absence.
"""

from service.model.arrays import DAY, Bools, Instants

PAST = DAY
"""Minimum time from a past crawl to the registration of its page.

A crawler may report a page that its report registers, hours after the crawl.
"""


def is_past(at: Instants, registered_at: Instants) -> Bools:
    """Return (N,) whether crawls are past; NaT: no crawl, or a page without a registration.

    >>> import numpy as np
    >>> registered = np.full(3, np.datetime64("2026-05-03T12:00", "us"))
    >>> is_past(np.array(["2026-05-02T11", "2026-05-02T13", "NaT"], "M8[us]"), registered).tolist()
    [True, False, False]
    """
    past: Bools = at < registered_at - PAST
    return past
