"""One deployment: its pages, databases, actors and load, and the results of the model."""

from dataclasses import asdict, dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.scale.costs import Costs
from benchmarks.scale.epoch import MILLION, Machines, stages, with_losses, with_one_loss
from benchmarks.scale.hosts import SECONDS_A_DAY, Corpus, corpus, divided, with_exceptions
from benchmarks.scale.queues import arriving, batched, lease

Floats = NDArray[np.float64]
GIGA, TERA = 1e9, 1e12
ENOUGH = 1_000
"""Minimum number of simulated requests."""


@dataclass(frozen=True)
class Plant:
    """Assumptions about a deployment."""

    pages: float
    databases: int
    actors: int = 4
    """Actors of each database."""
    logical: int = 1_024
    """Logical shards of all databases."""
    tail: float = 0.8
    """Exponent of the Pareto tail of the pages of a host: P(more than n pages) = n^-tail."""
    largest_host: float = 1e7
    """Maximum number of pages of a host."""
    exceptions: int = 0
    """Number of the largest hosts that are exceptions in the file, where they even the shards."""
    crawls_a_day: float = 0.2
    """Crawls of a page a day."""
    peak: float = 2.0
    """Busiest hour over the mean."""
    batch: int = 100
    """Pages of a lease request, and crawls of a report."""
    headroom: float = 1.2
    """Lease requests over those that are just enough."""
    delay_s: float = 1.0
    """Delay between two crawls of a host, seconds."""
    log_days: float = 30.0
    """Retention of the log in the database, days."""
    seconds: float = 60.0
    """Simulated time of reports and leases, or longer for a thousand requests."""
    epochs: int = 500
    """Simulated epochs."""
    seed: int = 1


class Line(NamedTuple):
    """A result: its name, value and unit."""

    name: str
    value: float
    unit: str


def results(plant: Plant, costs: Costs, machines: Machines) -> list[Line]:
    """Return the results of the model for a deployment."""
    rng = np.random.default_rng(plant.seed)
    load = plant.tail, plant.largest_host, plant.crawls_a_day, plant.delay_s
    made = corpus(rng, plant.pages, plant.logical, *load)
    if plant.exceptions:
        made = with_exceptions(made, plant.databases, plant.exceptions)
    per_actor = divided(made.pages, plant.databases, plant.actors)
    pages = np.array([float(each.sum()) for each in per_actor])
    return [
        *hosts_of(made, pages),
        *epoch_of(plant, per_actor, costs, machines, rng),
        *ingest_of(plant, pages, costs, rng),
        *leases_of(plant, pages, costs, rng),
        *sizes_of(plant, pages, per_actor, costs, machines),
    ]


def hosts_of(made: Corpus, pages: Floats) -> list[Line]:
    """Return how evenly the hash divides the pages."""
    return [
        Line("hosts", made.n_hosts, "hosts"),
        Line("largest host", float(made.largest[0]), "pages"),
        Line("fullest database, of the mean", _over(pages), "times"),
        Line("fullest logical shard, of the mean", _over(made.pages), "times"),
        Line("crawls that hosts with the delay cannot take", 100 * made.delayed, "%"),
    ]


def _over(values: Floats) -> float:
    return float(values.max() / values.mean())


def epoch_of(
    plant: Plant,
    per_actor: list[Floats],
    costs: Costs,
    machines: Machines,
    rng: np.random.Generator,
) -> list[Line]:
    """Return the durations of epochs."""
    usual = stages(per_actor, plant.logical, costs, machines)
    even = [np.full(len(each), plant.pages / sum(map(len, per_actor))) for each in per_actor]
    ideal = stages(even, plant.logical, costs, machines)
    runs = [stages(per_actor, plant.logical, costs, machines, rng) for _ in range(plant.epochs)]
    lengths = [with_losses(run, machines, rng) for run in runs]
    done = np.array([length for length in lengths if length is not None])
    return [
        Line("epoch, even shards", ideal.total, "s"),
        Line("epoch, these shards", usual.total, "s"),
        Line("load", usual.load, "s"),
        Line("estimate and allocate", usual.solve, "s"),
        Line("write", usual.write, "s"),
        Line("publish", usual.publish, "s"),
        Line("epoch with stragglers, median", float(np.median([r.total for r in runs])), "s"),
        Line("epoch with stragglers and losses, 99 %", float(np.quantile(done, 0.99)), "s"),
        Line("epoch that loses an actor at its end", with_one_loss(usual, machines), "s"),
        Line("epochs that fail", 100 * (1 - len(done) / len(lengths)), "%"),
    ]


def ingest_of(plant: Plant, pages: Floats, costs: Costs, rng: np.random.Generator) -> list[Line]:
    """Return what reports wait for in the fullest database at the busiest hour."""
    crawls = pages * plant.crawls_a_day / SECONDS_A_DAY * plant.peak
    busiest = float(crawls.max())
    singles = arriving(rng, busiest, max(plant.seconds, ENOUGH / busiest))
    batches = arriving(
        rng, busiest / plant.batch, max(plant.seconds, ENOUGH * plant.batch / busiest)
    )
    alone = batched(singles, costs.commit, costs.single, 10_000)
    together = batched(batches, costs.commit, plant.batch * costs.report, 10_000)
    return [
        Line("reports, all databases, busiest hour", float(crawls.sum()), "/s"),
        Line("reports, fullest database", busiest, "/s"),
        Line("share of its capacity, one a request", 100 * busiest * costs.single, "%"),
        Line("share of its capacity, in batches", 100 * busiest * costs.report, "%"),
        Line("answer to a single report, 99 %", 1e3 * float(np.quantile(alone, 0.99)), "ms"),
        Line("answer to a batch, 99 %", 1e3 * float(np.quantile(together, 0.99)), "ms"),
        Line("crawls a page and day that fill it", _full(plant, pages, costs), "crawls"),
    ]


def _full(plant: Plant, pages: Floats, costs: Costs) -> float:
    """Return the crawls of a page a day at which leases fill the fullest database."""
    return float(SECONDS_A_DAY / costs.lease / plant.peak / pages.max())


def leases_of(plant: Plant, pages: Floats, costs: Costs, rng: np.random.Generator) -> list[Line]:
    """Return how late pages are leased at the busiest hour, by database."""
    rates = pages * plant.crawls_a_day / SECONDS_A_DAY * plant.peak
    asked = plant.headroom * float(rates.sum()) / plant.batch
    seconds = max(plant.seconds, ENOUGH / asked)
    ready = [arriving(rng, float(rate), seconds) for rate in rates]
    requests = arriving(rng, asked, seconds)
    one = lease(ready, requests, plant.batch, costs.commit, costs.lease)
    late = [float(np.quantile(each, 0.99)) for each in one.lateness if len(each)]
    return [
        Line("lease requests", len(requests) / seconds, "/s"),
        Line("lease requests without a page", 100 * one.n_empty / max(one.n_requests, 1), "%"),
        Line("busiest database by leases", 100 * float(one.busy.max()) / seconds, "%"),
        Line("lateness, 99 %, best database", min(late), "s"),
        Line("lateness, 99 %, worst database", max(late), "s"),
    ]


def sizes_of(
    plant: Plant, pages: Floats, per_actor: list[Floats], costs: Costs, machines: Machines
) -> list[Line]:
    """Return disks, memory and network."""
    crawls_a_day = plant.pages * plant.crawls_a_day
    fullest = float(pages.max())
    a_page = costs.state + costs.log * plant.crawls_a_day * plant.log_days
    leader = costs.leader_sample + costs.leader_logical * plant.logical
    reports = crawls_a_day / SECONDS_A_DAY * plant.peak * costs.report_bytes
    return [
        Line("state, all databases", plant.pages * costs.state / TERA, "TB"),
        Line("log, all databases", (a_page - costs.state) * plant.pages / TERA, "TB"),
        Line("fullest database", fullest * a_page / TERA, "TB"),
        Line("archive, a year", 365 * crawls_a_day * costs.archive / TERA, "TB"),
        Line("memory of the fullest actor", _most(per_actor) * costs.memory / GIGA, "GB"),
        Line("network, an epoch's columns", plant.pages * costs.load_bytes / TERA, "TB"),
        Line("network, leader, an epoch", leader / 1e6, "MB"),
        Line("network, reports", reports / 1e6, "MB/s"),
        Line(
            "columns of the fullest database by the network",
            fullest * costs.load_bytes / machines.network,
            "s",
        ),
        Line("CPU of an epoch", plant.pages / MILLION * _cpu(costs) / 3_600, "h"),
    ]


def _most(per_actor: list[Floats]) -> float:
    return max(float(each.max()) for each in per_actor)


def _cpu(costs: Costs) -> float:
    database = costs.load_database + costs.write_database
    return database + costs.load_actor + costs.solve_actor + costs.write_actor


def described(plant: Plant, machines: Machines) -> dict[str, float]:
    """Return the assumptions by name."""
    return {**asdict(plant), **asdict(machines)}
