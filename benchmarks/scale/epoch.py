"""The duration of an epoch: each stage waits for its last actor, and a loss repeats stages.

All actors of a database load at once. The cores of its machine share the work of Postgres; then
each actor computes on a core of its own. Columns also pass the network of the database's machine,
which may take longer. Between stages, and at each question of a stage, all actors wait for the
slowest. A lost part loads again, and the epoch begins at the census.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.scale.costs import Costs
from benchmarks.scale.sharing import finish_times, stragglers

Floats = NDArray[np.float64]

RESTARTS = 2
"""Number of losses that an epoch survives, as `service.epochs.parts`."""
MILLION = 1e6


@dataclass(frozen=True)
class Machines:
    """Machines and their troubles."""

    database_cores: float = 16
    """Cores of the machine of a database."""
    network: float = 10e9 / 8
    """Bytes a second of the network of a machine."""
    shared_cores: float | None = None
    """Cores that all databases and actors share, on one machine; None: many machines."""
    spread: float = 0.1
    """Standard deviation of the logarithm of a job's work."""
    slow_share: float = 0.01
    """Share of jobs that a busy machine slows down."""
    slow_factor: float = 2.0
    """Factor of these jobs' work."""
    mean_life_s: float = 30 * 86_400.0
    """Mean time until an actor is lost, seconds; inf: never."""
    detection_s: float = 1.0
    """Time from the loss of an actor until the leader sees it, seconds."""


@dataclass(frozen=True)
class Stages:
    """Durations of the stages, seconds."""

    load: float
    solve: float
    write: float
    publish: float
    loads: Floats
    """Duration of the load of each actor alone."""

    @property
    def total(self) -> float:
        """Duration of an epoch without a loss, seconds."""
        return self.load + self.solve + self.write + self.publish


def moved(
    per_actor: list[Floats], database: float, actor: float, n_bytes: float, machines: Machines
) -> float:
    """Return the duration of a stage that moves columns between databases and actors.

    `database` and `actor` are CPU seconds for a page, `n_bytes` bytes for a page.
    """
    if machines.shared_cores is not None:
        jobs = np.concatenate(per_actor) * (database + actor)
        return float(finish_times(jobs, machines.shared_cores).max())
    slowest = 0.0
    for pages in per_actor:
        served = finish_times(pages * database, machines.database_cores)
        last = max(float((served + pages * actor).max()), pages.sum() * n_bytes / machines.network)
        slowest = max(slowest, last)
    return slowest


def stages(
    per_actor: list[Floats],
    logical: int,
    costs: Costs,
    machines: Machines,
    rng: np.random.Generator | None = None,
) -> Stages:
    """Return the durations of an epoch's stages; with `rng` some actors are slower than others."""

    def slowed() -> list[Floats]:
        if rng is None:
            return per_actor
        how = machines.spread, machines.slow_share, machines.slow_factor
        return [pages * stragglers(rng, len(pages), *how) for pages in per_actor]

    c = costs
    load = c.load_database / MILLION, c.load_actor / MILLION, c.load_bytes
    write = c.write_database / MILLION, c.write_actor / MILLION, c.write_bytes
    n_actors = sum(map(len, per_actor))
    solved = np.concatenate(slowed()) * c.solve_actor / MILLION
    most_logical = -(-logical // n_actors)
    solved += c.questions * c.ask_logical * most_logical
    cores = machines.shared_cores or np.inf
    n_bytes = c.leader_sample + c.leader_logical * logical
    asking = c.questions * c.ask_actor * n_actors + n_bytes / machines.network
    return Stages(
        load=moved(slowed(), *load, machines),
        solve=float(finish_times(solved, cores).max()) + asking,
        write=moved(slowed(), *write, machines),
        publish=(1 + 2 * len(per_actor)) * c.commit,
        loads=np.concatenate(per_actor) * (load[0] + load[1]),
    )


def with_losses(one: Stages, machines: Machines, rng: np.random.Generator) -> float | None:
    """Return the duration of an epoch whose actors may be lost; None: it fails.

    Losses come at random, at a rate that grows with the number of actors.
    """
    n_actors = len(one.loads)
    now, ready_at = 0.0, one.load
    for _ in range(RESTARTS + 1):
        end = ready_at + one.total - one.load
        lost_after = rng.exponential(machines.mean_life_s / n_actors)
        if now + lost_after >= end:
            return end
        now += lost_after + machines.detection_s
        ready_at = max(ready_at, now + float(one.loads[rng.integers(n_actors)]))
    return None


def with_one_loss(one: Stages, machines: Machines) -> float:
    """Return the duration of an epoch that loses its fullest actor at the worst moment, the end."""
    again = one.total - one.load
    return one.total + machines.detection_s + float(one.loads.max()) + again
