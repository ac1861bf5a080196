"""Days with known profiles, and crawls of pages that change by them."""

import numpy as np
from scipy.special import exp1

from service.core.change_hours.evidence import HourEvidence, Intervals
from service.core.change_hours.profile import HARMONICS, ORDERS, Profiles

TURN = 2.0 * np.pi
GRID = 20_000
HOURS = np.arange(GRID) / GRID
"""Instants of a day."""


class Day:
    """A day of a known profile: its operational time, and its harmonics."""

    def __init__(self, profile):
        self.profile = profile / profile.mean()
        self._sums = np.concatenate(([0.0], np.cumsum(self.profile))) / GRID
        self._waves = 2.0 * np.mean(self.profile * np.exp(-1j * TURN * ORDERS[:, None] * HOURS), 1)

    def operational(self, at):
        """Return the integral of the profile from day 0."""
        at = np.asarray(at, float)
        return np.floor(at) + np.interp(at % 1.0, np.arange(GRID + 1) / GRID, self._sums)

    def coefficients(self, shift=0.0):
        """Return the coefficients of the profile, `shift` days earlier."""
        waves = self._waves * np.exp(1j * TURN * ORDERS * shift)
        return np.concatenate(([1.0], waves.real, -waves.imag))

    def profiles(self, shift=0.0, weight=1.0):
        """Return the profile of one host."""
        return Profiles(self.coefficients(shift)[None], np.array([weight]))


def cosine(amplitude=0.8, peak=0.3):
    """Return a day with one wave."""
    return Day(1.0 + amplitude * np.cos(TURN * (HOURS - peak)))


def two_waves():
    """Return a day of two waves, cut off at a twentieth."""
    waves = 0.9 * np.cos(TURN * (HOURS - 0.3)) + 0.4 * np.cos(2.0 * TURN * (HOURS - 0.1))
    return Day(np.maximum(1.0 + waves, 0.05))


def burst(at=0.0, weight=1.0):
    """Return the harmonics of a day whose changes all come at one instant."""
    turns = TURN * ORDERS * at
    harmonics = 2.0 * np.concatenate((np.cos(turns), np.sin(turns)))
    return Profiles(np.concatenate(([1.0], harmonics))[None], np.array([weight]))


def many(profiles, n):
    """Return n hosts with the profile of one."""
    return Profiles(np.tile(profiles.coefficients, (n, 1)), np.tile(profiles.weight, n))


def ein(x):
    """Return the integral of (1 - e^-u)/u: the harmonic cost of x expected changes."""
    x = np.asarray(x, float)
    large = np.maximum(x, 1e-3)
    return np.where(x < 1e-3, x - x * x / 4, exp1(large) + np.log(large) + np.euler_gamma)


def interval_cost(day, change_rate, start, end, n=4000):
    """Return the harmonic cost, summed over the time between two crawls."""
    at = start + (np.arange(n) + 0.5) / n * (end - start)
    return (end - start) * ein(change_rate * (day.operational(at) - day.operational(start))).mean()


def crawled(day, n, rng, *, hosts=1, change_rate=1.0, length=None):
    """Return n intervals of each host between crawls at known change rates, and their results."""
    host = np.repeat(np.arange(hosts), n)
    start = 100.0 * rng.random(len(host))
    end = start + (rng.uniform(0.3, 2.7, len(host)) if length is None else length)
    expected = change_rate * (day.operational(end) - day.operational(start))
    changed = rng.random(len(host)) < -np.expm1(-expected)
    shape = np.full(len(host), 1e8)
    return Intervals(host, start, end, shape, shape / change_rate), changed


def parts(intervals, changed, n_parts):
    """Yield the intervals, the same number of each host at a time."""
    for part in range(n_parts):
        of_host = np.arange(len(intervals.host)) % n_parts == part
        yield Intervals(*(column[of_host] for column in intervals)), changed[of_host]


def few(evidence):
    """Return the evidence as of a day with so few changes that all count in full."""
    return evidence._replace(changes=np.full_like(evidence.changes, -1e9))


def random_evidence(rng, n, size):
    """Return evidence of any quadratic form, of about this size, without dates."""
    rows, columns = np.triu_indices(1 + 2 * HARMONICS)
    forms = rng.normal(size=(n, rng.integers(1, 30), 1 + 2 * HARMONICS))
    forms *= np.asarray(size)[:, None, None]
    information = np.einsum("hij,hik->hjk", forms, forms)[:, rows, columns]
    score = np.einsum("hij,hi->hj", forms, rng.normal(size=forms.shape[:2]))
    score += np.einsum("hij,hi->hj", forms, forms[:, :, 0])
    return HourEvidence.none(n)._replace(information=information, score=score)
