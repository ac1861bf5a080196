"""Compare the time to check a right key and wrong ones by Welch's t."""

import argparse
import gc
import time
from collections.abc import Callable
from pathlib import Path
from secrets import token_hex

import numpy as np
from scipy import stats

from benchmarks.access.keys import ADMIN, new_key, sqlite_url, with_keys
from service.access.keyring import KeyRing
from service.access.keys import HEAD
from service.model.access import Role
from service.storage import open_store

LIKELY = 4.5
"""Greatest |t| without a finding; the threshold of leakage tests in the field."""

SHORT_NS = 5.0
"""Difference of the means that counts as none, nanoseconds.

The interpreter's own steps differ by one or two, with either sign from run to run."""


def add_options(command: argparse.ArgumentParser) -> None:
    """Add the options."""
    command.add_argument("--tries", type=int, default=100_000, help="number of checks of each kind")


def run(options: argparse.Namespace, folder: Path) -> bool:
    """Measure pairs of keys; return whether none can be told apart."""
    url = sqlite_url(folder)
    with_keys(url, ())
    store = open_store(url, 3)
    texts = [new_key(store, Role.report) for _ in range(1_000)]
    ring = KeyRing(store, [ADMIN], store.clock, n_slots=1)
    ring.refresh()
    right = texts[500]
    kinds = {
        "key of the database, wrong secrets": (right, lambda: right[:HEAD] + token_hex(24)),
        "key of the database, last digit wrong": (right, lambda: right[:-1] + "g"),
        "key of the environment, other texts": (ADMIN, lambda: token_hex(32)[: len(ADMIN)]),
        "key of the environment, last letter wrong": (ADMIN, lambda: ADMIN[:-1] + "x"),
    }
    found = [
        show(what, measure(ring.compared, text, wrong, options.tries))
        for what, (text, wrong) in kinds.items()
    ]
    store.close()
    return all(found)


def measure(
    check: Callable[[str], object], right: str, wrong: Callable[[], str], tries: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the times of both checks, nanoseconds, in a random order without the slowest 5 %.

    Each try has a text of its own, so that the places of the texts in memory do not matter.
    """
    rng = np.random.default_rng(1)
    is_wrong = rng.permutation(np.repeat([False, True], tries))
    texts = [wrong() if each else "".join((right[:7], right[7:])) for each in is_wrong.tolist()]
    times = np.empty(2 * tries)
    clock = time.perf_counter_ns
    gc.disable()
    for i, text in enumerate(texts):
        began = clock()
        check(text)
        times[i] = clock() - began
    gc.enable()
    usual = times <= np.quantile(times, 0.95)
    return times[usual & ~is_wrong], times[usual & is_wrong]


def show(what: str, times: tuple[np.ndarray, np.ndarray]) -> bool:
    """Print the means and Welch's t; return whether it is small."""
    t = float(stats.ttest_ind(*times, equal_var=False).statistic)
    means = " and ".join(f"{each.mean():.1f}" for each in times)
    print(f"{what}: {means} ns, Welch's t {t:+.2f} over {len(times[0]) + len(times[1]):,} checks")
    return abs(t) < LIKELY or abs(times[0].mean() - times[1].mean()) < SHORT_NS
