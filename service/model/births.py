"""Births of pages: which new pages were born, and which had only not been found before."""

from datetime import timedelta

import numpy as np

from service.model.arrays import NO_TIME, Instants

KNOWN_FOR = timedelta(days=7)
"""Minimum time for which a host is known before a new page of it counts as born.

A crawler finds most pages of a new host in its first days, however old they are.
"""


def births(host_known_at: Instants, created_at: np.datetime64) -> Instants:
    """Return the births of new pages, NaT for pages that may be older than their registration.

    A host without a time of its own has been known for long.

    >>> hours = np.array(["2026-01-01T00", "2026-01-09T00", "NaT"], "M8[us]")
    >>> births(hours, np.datetime64("2026-01-10", "us")).astype("M8[D]")
    array(['2026-01-10',        'NaT', '2026-01-10'], dtype='datetime64[D]')
    """
    born = np.isnat(host_known_at) | (host_known_at <= created_at - np.timedelta64(KNOWN_FOR))
    return np.where(born, created_at, NO_TIME)
