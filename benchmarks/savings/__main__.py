"""Compare the savings that a fleet's log shows with the true ones, on the past of sites.

    python -m benchmarks.savings DIR [--sites …] [--rates .1] [--days 365] [--last 365 90] [--bulk]

Recrawl plays each site by the service's own use cases and keeps its log. `service.history.savings`
then estimates the ratio of its staleness to that of uniform crawling, from the log and the
estimates alone. The true ratio follows from the instants of all changes, which the site's trace
has. Uniform crawling makes the same number of crawls. A line has both, for each measure and for
each window at the end. The command fails if one differs by more than --within from the truth.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import structlog

from recrawl_lab.policies.lineup import DEFAULT_PLAN, suitable_step
from recrawl_lab.policies.plain import matched, uniform
from recrawl_lab.replay.playing import announcements, crawl
from recrawl_lab.replay.replay import LocalFleet
from recrawl_lab.replay.staleness import Crawls, Steps, harmonic_numbers, merged, uncrawled
from recrawl_lab.worlds.recording import recorded_world
from recrawl_lab.worlds.simulated_time import Clock
from recrawl_lab.worlds.trace import read_trace
from recrawl_lab.worlds.world import World
from service.core.savings import Ratio
from service.estimation.rules import InForce
from service.history.savings import Savings, read_savings
from service.runtime.bootstrap import configure_logging

SITES = ("oi-wiki", "ota-contrib", "scoop-extras")
"""A wiki that changes at random, pages that change in bursts, an index that a bot rebuilds."""
WITHIN = 0.05

Line = dict[str, Any]


def logged(
    world: World, bandwidth: float, step: float, seed: int
) -> tuple[LocalFleet, Clock, Crawls]:
    """Play Recrawl in a world, and return the fleet with its log, and its crawls."""
    clock = Clock()
    fleet = LocalFleet(world, clock, replace(DEFAULT_PLAN, bandwidth=bandwidth), seed)
    fleet.plan = replace(fleet.plan, retention=None)
    parts = [crawls for _, crawls in crawl(fleet, clock, announcements(world), bandwidth, step)]
    return fleet, clock, merged(*parts)


def estimated(fleet: LocalFleet, now: Clock, last: float, seed: int) -> Savings:
    """Return the savings of the last days by the log of a fleet."""
    rng = np.random.default_rng(seed)
    since = now() - timedelta(days=last)
    return read_savings(fleet.store, InForce(fleet.rules), since, now(), rng)


def true_ratios(world: World, own: Crawls, other: Crawls, since: float) -> tuple[float, float]:
    """Return the true ratios of harmonic staleness and of stale time from a day on."""
    steps = uncrawled(world, own), uncrawled(world, other)
    harmonic = [_sum(world, s, since, harmonic_numbers(s.n_uncrawled)) for s in steps]
    stale = [_sum(world, s, since, (s.n_uncrawled > 0).astype(float)) for s in steps]
    return harmonic[0] / harmonic[1], stale[0] / stale[1]


def _sum(world: World, steps: Steps, since: float, height: Any) -> float:
    lasted = np.maximum(steps.at + steps.days - np.maximum(steps.at, since), 0.0)
    return float((world.importance[steps.page] * height) @ lasted)


def lines(asked: argparse.Namespace) -> Iterator[Line]:
    """Yield a line for each site, rate and window."""
    for site in asked.sites:
        recording = read_trace(str(asked.traces / site))
        for rate in asked.rates:
            rng = np.random.default_rng(asked.seed)
            world = recorded_world(recording, rng=rng, days=asked.days, bulk=asked.bulk)
            bandwidth = rate * world.mean_pages
            step = suitable_step(world, bandwidth)
            fleet, clock, own = logged(world, bandwidth, step, asked.seed)
            other = matched(uniform, world, len(own.at))
            for last in asked.last:
                started = time.process_time()
                savings = estimated(fleet, clock, last, asked.seed)
                seconds = time.process_time() - started
                true = true_ratios(world, own, other, world.days - last)
                yield _line(site, rate, last, savings, true) | {"cpu_s": round(seconds, 2)}


def _line(site: str, rate: float, last: float, savings: Savings, true: tuple[float, float]) -> Line:
    own: tuple[Ratio | None, ...] = tuple(
        compared and compared.ratio for compared in (savings.harmonic, savings.stale)
    )
    line: Line = {"site": site, "rate": rate, "days": last, "crawls": savings.n_crawls}
    for name, ratio, truth in zip(("harmonic", "stale"), own, true, strict=True):
        line |= {
            f"{name}_true": round(truth, 4),
            name: ratio and round(ratio.value, 4),
            f"{name}_bounds": ratio and [round(ratio.low, 4), round(ratio.high, 4)],
            f"{name}_off": ratio and round(ratio.value - truth, 4),
        }
    return line | {"missing": savings.missing}


def main() -> None:
    """Print and write a line for each game; end with status 1 if one is off."""
    options = argparse.ArgumentParser(
        prog="python -m benchmarks.savings", description=__doc__.splitlines()[0]
    )
    options.add_argument("traces", type=Path, help="folder of traces")
    options.add_argument("--sites", nargs="+", default=list(SITES))
    options.add_argument("--rates", type=float, nargs="+", default=[0.1])
    options.add_argument("--days", type=float, default=365.0)
    options.add_argument("--last", type=float, nargs="+", default=[365.0])
    options.add_argument("--bulk", action="store_true", help="with revisions of many pages")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--within", type=float, default=WITHIN)
    options.add_argument("--json", type=Path, default=Path("bench-out/savings.jsonl"))
    asked = options.parse_args()
    configure_logging("warning")
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    asked.json.parent.mkdir(parents=True, exist_ok=True)
    off = False
    with asked.json.open("w") as file:
        for line in lines(asked):
            text = json.dumps(line)
            print(text, flush=True)
            file.write(text + "\n")
            gaps = [abs(line[f"{name}_off"] or 0.0) for name in ("harmonic", "stale")]
            off |= max(gaps) > asked.within
    sys.exit(off)


if __name__ == "__main__":
    main()
