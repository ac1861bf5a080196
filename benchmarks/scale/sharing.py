"""Durations of jobs that share the cores of a machine."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def finish_times(work: Floats, cores: float) -> Floats:
    """Return when each job ends, in seconds from their common start.

    All jobs advance at the same speed: a core each, or an equal share of fewer cores. So the jobs
    end in the order of their work.

    >>> finish_times(np.array([1.0, 2.0, 2.0]), 2).round(2).tolist()
    [1.5, 2.5, 2.5]
    """
    order = np.argsort(work, kind="stable")
    running = np.arange(len(work), 0, -1)
    steps = np.diff(work[order], prepend=0.0) / np.minimum(1.0, cores / running)
    times = np.empty(len(work))
    times[order] = np.cumsum(steps)
    return times


def stragglers(
    rng: np.random.Generator, n: int, spread: float, share: float, slow: float
) -> Floats:
    """Return the factor of each job's work: log-normal of mean 1, and a share that is slow."""
    usual = np.exp(spread * rng.standard_normal(n) - spread**2 / 2)
    return np.asarray(usual * np.where(rng.random(n) < share, slow, 1.0))
