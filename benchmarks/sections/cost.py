"""CPU time that hours of URL groups add to an epoch.

    python -m benchmarks.sections.cost [PAGES] [--hosts 1 20000] [--groups 50000]

An hourly epoch of pages that are crawled once in five days, without a database: learning, finding
the row of each page, and shifting. `today` has hours of hosts alone. A host learns once a
day, so `daily` is an epoch in which all hosts learn.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from service.core.budget_factor import Window
from service.core.change_hours.evidence import WIDTH
from service.core.change_hours.profile import TERMS
from service.core.estimators import make_estimator
from service.epochs.change_hours import Hours, learn_hours, lesson
from service.epochs.group_hours import HoursInForce
from service.epochs.shifts import placed, shifted
from service.epochs.urgency import LastEpoch
from service.estimation.estimates import RateEstimates
from service.model.arrays import INSTANT, NO_TIME, element_types
from service.model.columns import (
    CapColumns,
    ChangeHours,
    EpochColumns,
    GroupProfiles,
    HostHours,
    ShiftColumns,
)
from service.model.urls import URL_GROUPS

NOW = np.datetime64("2026-05-31T12:00:00", "us")
DAY_US = 86_400_000_000
EVERY = 5.0
"""Mean time between two crawls of a page, days."""
ESTIMATOR = make_estimator("gamma")
ResultT = TypeVar("ResultT")


def pages_of(n: int, n_hosts: int, n_groups: int, rng: np.random.Generator) -> EpochColumns:
    """Return pages in URL groups of hosts."""
    columns: dict[str, Any] = {}
    for name, kind in element_types(EpochColumns).items():
        nothing = NO_TIME if kind == INSTANT else np.zeros((), kind)
        columns[name] = np.full(n, nothing)
    group = np.sort(rng.integers(0, max(n_groups, n_hosts), n))
    ago = (EVERY * rng.random(n) * DAY_US).astype("m8[us]")
    return EpochColumns(
        **columns
        | {
            "page_id": np.arange(1, n + 1),
            "host_id": 1 + group * n_hosts // max(n_groups, n_hosts),
            "url_group": (group * 7919 % URL_GROUPS).astype(np.int32),
            "importance": np.ones(n),
            "n_observations": np.full(n, 9),
            "interval_factor": np.ones(n),
            "last_observed_at": NOW - ago,
            "last_interval": rng.uniform(3, 7, n) * rng.choice([-1.0, 1.0], n),
            "estimate": np.tile([9.0, 90.0], (n, 1)),
            "min_crawl_rate": np.full(n, np.nan),
            "max_crawl_rate": np.full(n, np.nan),
            "last_age": np.full(n, np.nan),
        }
    )


def profiles(n: int, rng: np.random.Generator) -> Any:
    """Return (n, 1 + TERMS) profiles with hours."""
    rows = np.zeros((n, 1 + TERMS))
    at = rng.random(n)[:, None] * np.arange(1, 9)
    rows[:, :2] = 1.0
    rows[:, 2:] = np.hstack((np.cos(2 * np.pi * at), np.sin(2 * np.pi * at)))
    return rows


def timed(work: Callable[[], ResultT]) -> tuple[float, ResultT]:
    """Return the CPU seconds of work, and its result."""
    start = time.process_time()
    result = work()
    return time.process_time() - start, result


def measure(n: int, n_hosts: int, n_groups: int) -> None:
    """Print the CPU seconds of each part, with and without groups."""
    rng = np.random.default_rng(1)
    pages = pages_of(n, n_hosts, n_groups, rng)
    host_id = np.unique(pages.host_id)
    hosts = HostHours(
        host_id=host_id,
        profile=profiles(len(host_id), rng),
        delay_s=np.full(len(host_id), np.nan),
    )
    key = np.unique(pages.host_id * URL_GROUPS + pages.url_group)[:: max(n // 20 // n_groups, 1)]
    groups = GroupProfiles(
        host_id=key // URL_GROUPS,
        url_group=(key % URL_GROUPS).astype(np.int32),
        certain=np.ones(len(key)),
        profile=profiles(len(key), rng),
        delay_s=np.full(len(key), np.nan),
    )
    none = ChangeHours.empty(evidence=(WIDTH,), profile=(1 + TERMS,))
    rate = np.full(n, 1.0 / EVERY)
    estimates = RateEstimates(np.full(n, 0.1), np.zeros(n), np.ones(n), np.zeros(n))
    last = LastEpoch.of(None)
    for name, passed in (("hourly", 1 / 24), ("daily", 1.0)):
        window = Window(passed + 0.01, 0.01)
        events = lesson(pages, window, NOW)
        empty = Hours(hosts, ShiftColumns.empty(), events, none)
        for which, with_groups in (("today", False), ("groups", True)):
            hours = empty._replace(with_groups=with_groups)
            if with_groups:
                hours = hours._replace(groups=groups)
            learnt = timed(lambda h=hours: learn_hours(pages, ESTIMATOR, h, None, NOW))
            in_force = HoursInForce.of(hosts, hours.groups)
            found = timed(lambda h=in_force: placed(pages, h))
            moved = timed(
                lambda h=hours, p=found[1]: shifted(
                    pages, estimates, rate, np.ones(n), h, p, CapColumns.empty(), last, NOW
                )
            )
            print(
                f"{n_hosts} hosts, {len(key)} groups, {name}, {which}: {len(events.row)} crawls, "
                f"learn {learnt[0]:.3f}, place {found[0]:.3f}, shift {moved[0]:.3f} s of CPU; "
                f"{found[1].nbytes / n:.0f} bytes a page; {len(learnt[1].screens)} screens"
            )


def main() -> None:
    """Measure one host and many."""
    options = argparse.ArgumentParser(
        prog="python -m benchmarks.sections.cost", description=__doc__.splitlines()[0]
    )
    options.add_argument("pages", nargs="?", type=lambda text: int(float(text)), default=1_000_000)
    options.add_argument("--hosts", type=int, nargs="+", default=[1, 20_000])
    options.add_argument("--groups", type=int, default=50_000)
    asked = options.parse_args()
    for n_hosts in asked.hosts:
        measure(asked.pages, n_hosts, asked.groups)


if __name__ == "__main__":
    main()
