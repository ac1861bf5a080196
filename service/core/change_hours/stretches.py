"""Stretches of the day over which the crawls of a best hour are spread."""

import numpy as np

from service.core.change_hours.best_hours import CONCENTRATION, Masses
from service.core.change_hours.evidence import Indices
from service.core.change_hours.profile import SLOTS
from service.core.checks import Bools, Floats

NEAR_SLOTS = round(SLOTS / (2 * CONCENTRATION))
"""Distance of best hours whose crawls share a stretch, half-hours."""
LEAST_STRETCH = 1.0 / 96.0
"""Minimum stretch of a group, days: a quarter of an hour."""
ABOVE = 0.5
"""Share of the highest excess mass above which half-hours belong to a peak."""


def near_crawls(mass: Masses, host: Indices, crawls: Floats) -> tuple[Floats, Floats]:
    """Return (R,) crawls about the best hour of each row, and those of all of its host, 1/day.

    A row is a host or one of its groups; `host` has equal numbers for rows of one host, and
    `mass` has zeros for rows without hours. Such rows spread their crawls over the day, so the part
    1/`CONCENTRATION` of these counts.

    Examples
    --------
    Three groups of a host with one crawl a day, two of them at noon, and one at six:

    >>> mass = np.zeros((3, 48), np.float32)
    >>> mass[[0, 1, 2], [24, 25, 12]] = 1.0
    >>> [column.tolist() for column in near_crawls(mass, np.zeros(3, int), np.ones(3))]
    [[2.0, 2.0, 1.0], [3.0, 3.0, 3.0]]
    """
    n_hosts = int(host.max(initial=-1)) + 1
    timed, best = mass.any(axis=1), mass.argmax(axis=1)
    load = np.bincount(host * SLOTS + best, crawls * timed, n_hosts * SLOTS).reshape(-1, SLOTS)
    around = sum(np.roll(load, k, axis=1) for k in range(-NEAR_SLOTS, NEAR_SLOTS + 1))
    flat = np.bincount(host, crawls * ~timed, n_hosts) / CONCENTRATION
    total = np.bincount(host, crawls, n_hosts)
    return np.asarray((around + flat[:, None])[host, best]), np.asarray(total[host])


def half_gap(mass: Masses) -> Floats:
    """Return (R,) halves of the shortest time from a peak of the excess mass to the next, days.

    A peak is a run of half-hours above `ABOVE` of the highest mass. A row with one peak has half a
    day.

    Examples
    --------
    A bot runs every six hours:

    >>> float(half_gap(np.cos(8 * np.pi * np.arange(48) / 48)[None].astype(np.float32))[0] * 24)
    3.0
    """
    above = mass > ABOVE * mass.max(axis=1, keepdims=True)
    begins = above & ~np.roll(above, 1, axis=1)
    row, slot = np.divmod(np.flatnonzero(begins), SLOTS)
    first = np.flatnonzero(np.diff(row, prepend=-1))
    following = np.append(slot[1:], 0)
    # the last peak is followed by the first one, a day later
    following[np.append(first[1:], len(row))[: len(first)] - 1] = slot[first] + SLOTS
    gap = np.full(len(mass), SLOTS)
    gap[row[first]] = np.minimum.reduceat(following - slot, first) if len(first) else SLOTS
    return np.asarray(0.5 * gap / SLOTS)


def stretches(
    mass: Masses, host: Indices, is_group: Bools, crawls: Floats, delay: Floats
) -> Floats:
    """Return (R,) days over which the crawls of a best hour are spread.

    A host has 1/`CONCENTRATION` of the day. A group has as large a part of that as the crawls near
    its best hour are of all of its host. Many groups at many hours thus need little each.
    No stretch exceeds `half_gap`, unless the delay between two crawls needs more.

    Parameters
    ----------
    mass : (R, SLOTS) float32
        Excess masses of the rows, spread over 1/`CONCENTRATION` of the day.
    delay : (R,)
        Time between two crawls of the host, days.
    """
    near, total = near_crawls(mass, host, crawls)
    share = np.where(is_group, near / np.maximum(total, 1e-12), 1.0)
    usual = np.clip(share / CONCENTRATION, LEAST_STRETCH, half_gap(mass))
    return np.clip(delay * near, usual, 1.0)
