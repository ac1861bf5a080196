"""Profiles of the day: eight harmonics for each host, and the hours that hold most changes."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.core.checks import Floats

HARMONICS = 8
"""Number of harmonics of a day in a profile; the peak after a burst is 1/18 day late."""
TERMS = 1 + 2 * HARMONICS
"""Number of coefficients: an intercept, which absorbs errors of change rates, and harmonics."""
ORDERS = np.arange(1, HARMONICS + 1)
LEAST_INTENSITY = 0.1
"""Minimum of a profile, of its mean."""
LEAST_LEVEL = 0.5
"""Minimum of the intercept by which harmonics are divided."""
SLOTS = 48
"""Number of half-hours of a day, in which profiles are tabulated."""
HALF = 0.5
"""Share of the changes that the busiest stretch of a day holds."""

Waves = NDArray[np.complex128]


class Profiles(NamedTuple):
    """(H,) profiles of hosts."""

    coefficients: Floats
    """(H, TERMS) intercept, cosines, sines of a profile."""
    weight: Floats
    """(H,) probability that the host has change hours; 0 where evidence is too weak to matter."""

    @classmethod
    def flat(cls, n: int) -> "Profiles":
        """Return the profiles of n hosts without change hours."""
        return cls(np.tile(np.eye(TERMS)[0], (n, 1)), np.zeros(n))

    def take(self, where: NDArray[np.integer] | slice) -> "Profiles":
        """Return the hosts that an index selects."""
        return Profiles(self.coefficients[where], self.weight[where])

    @property
    def harmonics(self) -> Floats:
        """(H, TERMS - 1) cosines and sines of profiles of mean 1."""
        return self.coefficients[:, 1:] / np.maximum(self.coefficients[:, :1], LEAST_LEVEL)


class Busiest(NamedTuple):
    """(H,) shortest stretch of the day that holds half of the changes."""

    start: Floats
    """Hour in UTC, [0, 24)."""
    end: Floats
    """Hour in UTC, (0, 24]; below `start` if the stretch goes on after midnight."""
    share: Floats
    """Share of the changes between the two hours, at least `HALF`."""


def waves(at: ArrayLike) -> Waves:
    """Return (..., HARMONICS) values of exp(2 pi i k t) at instants, days."""
    first = np.exp(2j * np.pi * (np.asarray(at, np.float64) % 1.0))[..., None]
    return np.asarray(np.cumprod(np.broadcast_to(first, (*first.shape[:-1], HARMONICS)), axis=-1))


def integrals(start: Floats, end: Floats) -> Floats:
    """Return (..., TERMS) integrals of the terms of a profile from `start` to `end`, days.

    Those of the harmonics are 0 over whole days.
    """
    waved = (waves(end) - waves(start)) * (1.0 / (2j * np.pi * ORDERS))
    return np.concatenate(((end - start)[..., None], waved.real, waved.imag), axis=-1)


SLOT_STARTS = np.arange(SLOTS) / SLOTS
SLOT_TERMS = integrals(SLOT_STARTS, SLOT_STARTS + 1.0 / SLOTS) * SLOTS
"""(SLOTS, TERMS) means of the terms of a profile over each half-hour."""


def intensity(profiles: Profiles) -> Floats:
    """Return (H, SLOTS) profiles, averaged over half-hours; each has mean 1.

    The truncated series is cut off at `LEAST_INTENSITY`.

    Examples
    --------
    >>> profiles = Profiles.flat(1)
    >>> profiles.coefficients[0, 1] = 0.8  # twice a day's middle rate at midnight
    >>> intensity(profiles)[0, [0, 12, 24, 36]].round(2)
    array([1.8 , 0.95, 0.2 , 1.05])
    """
    values = np.maximum(1.0 + profiles.harmonics @ SLOT_TERMS[:, 1:].T, LEAST_INTENSITY)
    return np.asarray(values / values.mean(axis=1, keepdims=True))


def busiest(profiles: Profiles) -> Busiest:
    """Return the shortest stretch of each day that holds half of the changes, to half-hours.

    The stretch of a flat profile is half of the day.

    Examples
    --------
    All changes come at six o'clock. Eight harmonics place half of them within an hour and a
    half:

    >>> profiles = Profiles.flat(1)
    >>> turns = 2 * np.pi * ORDERS * 6 / 24
    >>> profiles.coefficients[0, 1:] = 2 * np.hstack((np.cos(turns), np.sin(turns)))
    >>> [column.round(2).tolist() for column in busiest(profiles)]
    [[5.0], [6.5], [0.55]]
    """
    values = intensity(profiles) / SLOTS
    hosts = np.arange(len(values))
    sums = np.cumsum(np.hstack((np.zeros((len(values), 1)), values, values)), axis=1)
    start, length = np.zeros((2, len(values)), np.intp)
    share = np.zeros(len(values))
    for n in range(1, SLOTS + 1):
        within = np.round(sums[:, n : n + SLOTS] - sums[:, :SLOTS], 12)  # ties: the first
        first = np.argmax(within, axis=1)
        most = within[hosts, first]
        reached = (length == 0) & (most >= HALF)
        start[reached], length[reached], share[reached] = first[reached], n, most[reached]
    hour = 24.0 / SLOTS
    end = (start + length - 1) % SLOTS + 1
    return Busiest(np.asarray(start * hour), np.asarray(end * hour), share)
