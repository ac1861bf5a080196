"""Nemeses: each injects a fault for some seconds and heals it.

A nemesis belongs to a part of the deployment; two nemeses of one part never work at the same time.
"""

import resource
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import NamedTuple, TypeVar

import psycopg

from benchmarks.faults import replica
from benchmarks.faults.deployment import Clients, Service
from benchmarks.faults.postgres import Cluster
from benchmarks.faults.proxy import Proxy
from benchmarks.faults.sharded import Mover

T = TypeVar("T")
STEPS_S = (-86_400.0, -300.0, -30.0, 30.0, 300.0, 86_400.0)
"""Steps of a clock, seconds."""
ROOM = 50_000
"""Room left for the files of SQLite on a full disk, bytes."""
END_SESSIONS = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'recrawl'
"""


@dataclass
class World:
    """Parts of the deployment that a nemesis may disturb."""

    replicas: list[Service]
    workers: list[Service]
    clients: Clients
    fronts: list[Proxy]
    """Proxies between clients and replicas."""
    backs: list[Proxy]
    """Proxies between the service and Postgres."""
    postgres: list[Cluster]
    """Clusters, one for each database."""
    file: Path | None
    """Database file of SQLite."""
    draw: Random
    is_sharded: bool = False
    """True for a store over several databases."""
    mover: Mover | None = None
    """Command that moves shards, in a store over several databases."""
    schedulers: list[Service] = field(default_factory=list)
    """The scheduler of Dask, in a store over several databases."""
    dask_workers: list[Service] = field(default_factory=list)
    """Workers of Dask, in a store over several databases."""
    webhook: str = ""
    """Name of the webhook of the campaign's receiver."""

    @property
    def services(self) -> list[Service]:
        return self.replicas + self.workers

    def some_postgres(self) -> list[Cluster]:
        """Return one or more of the clusters."""
        return self.draw.sample(self.postgres, self.draw.randint(1, len(self.postgres)))


Harm = Callable[[World, float], None]
"""Function that injects a fault into a world for a number of seconds and heals it."""


class Nemesis(NamedTuple):
    part: str
    harm: Harm
    stores: tuple[str, ...] = ("postgres", "sqlite", "cluster")


def kill(kind: str) -> Harm:
    """Return a fault that kills a process of the service; its supervisor restarts it."""

    def harm(world: World, _: float) -> None:
        world.draw.choice(getattr(world, kind)).signal(signal.SIGKILL)

    return harm


def stop(kind: str) -> Harm:
    """Return a fault that stops a process of the service and continues it later."""

    def harm(world: World, seconds: float) -> None:
        service: Service = world.draw.choice(getattr(world, kind))
        service.signal(signal.SIGSTOP)
        time.sleep(seconds)
        service.signal(signal.SIGCONT)

    return harm


def kill_crawler(world: World, _: float) -> None:
    """Kill a crawler; another one replaces it."""
    world.clients.kill(world.draw.choice(world.clients.of("crawler")))
    world.clients.start("crawler")


def kill_client(kind: str) -> Harm:
    """Return a fault that kills the only client of a kind; another one goes on for it."""

    def harm(world: World, seconds: float) -> None:
        for name in world.clients.of(kind):
            world.clients.kill(name)
        time.sleep(min(seconds, 0.5))
        world.clients.start(kind)

    return harm


def stop_crawler(world: World, seconds: float) -> None:
    """Stop a crawler and continue it later, possibly after its leases have expired."""
    name = world.draw.choice(world.clients.of("crawler"))
    world.clients.signal(name, signal.SIGSTOP)
    time.sleep(seconds)
    world.clients.signal(name, signal.SIGCONT)


def step_clock(world: World, seconds: float) -> None:
    """Step the clock of one process and step it back."""
    service = world.draw.choice(world.services)
    replica.step(service.clock, world.draw.choice(STEPS_S))
    time.sleep(seconds)
    replica.step(service.clock, 0.0)


def disturb(kind: str, mode: str) -> Harm:
    """Return a fault that cuts, stalls or slows the connections through some proxies."""

    def harm(world: World, seconds: float) -> None:
        proxies: list[Proxy] = getattr(world, kind)
        chosen = world.draw.sample(proxies, world.draw.randint(1, len(proxies)))
        for proxy in chosen:
            proxy.set(mode)
        time.sleep(seconds)
        for proxy in chosen:
            proxy.set("pass")

    return harm


def end_sessions(world: World, seconds: float) -> None:
    """End every session of the service repeatedly."""
    ends_at = time.monotonic() + seconds
    while time.monotonic() < ends_at:
        for server in world.postgres:
            server.execute(END_SESSIONS, "postgres")
        time.sleep(0.3)


def end_sessions_of_one(world: World, _: float) -> None:
    """End every session of the service in one of several databases."""
    world.draw.choice(world.postgres).execute(END_SESSIONS, "postgres")


def kill_mover(world: World, seconds: float) -> None:
    """Kill the command that moves a shard at any step; the next one goes on."""
    the(world.mover).harm(seconds / 2)


def restart_postgres(world: World, seconds: float) -> None:
    """Crash Postgres, or some of several databases, and restart it."""
    chosen = world.some_postgres()
    for server in chosen:
        server.stop()
    time.sleep(seconds / 2)
    for server in chosen:
        server.start()


def stop_postgres(world: World, seconds: float) -> None:
    """Stop all processes of Postgres: connections stay open without an answer."""
    chosen = world.some_postgres()
    for server in chosen:
        server.signal(signal.SIGSTOP)
    time.sleep(seconds)
    for server in chosen:
        server.signal(signal.SIGCONT)


def lock_tables(world: World, seconds: float) -> None:
    """Hold a lock on the table of page states, as a careless operator does."""
    url = world.postgres[0].url()
    with psycopg.connect(url) as connection:
        connection.execute("LOCK TABLE page_states")
        time.sleep(seconds)


def fill_disk(world: World, seconds: float) -> None:
    """Fill the database's disk."""
    place = full_file if world.file is not None else full_tablespace
    with place(world):
        time.sleep(seconds)


@contextmanager
def full_file(world: World) -> Iterator[None]:
    """Limit the file size of the server process, so that the system refuses to extend SQLite."""
    pid, file = the(world.replicas[0].process).pid, the(world.file)
    size = max(path.stat().st_size for path in file.parent.glob(f"{file.name}*"))
    limit_files(pid, size + ROOM)
    try:
        yield
    finally:
        limit_files(pid, None)


def limit_files(pid: int, n_bytes: int | None) -> None:
    """Limit the file size of a process if it still runs; None removes the limit."""
    with suppress(ProcessLookupError):
        _, most = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (most if n_bytes is None else n_bytes, most))


@contextmanager
def full_tablespace(world: World) -> Iterator[None]:
    """Fill the small disk that holds the tables of Postgres."""
    ballast = the(world.postgres[0].disk).parent / "ballast"
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1 << 16))
    try:
        yield
    finally:
        ballast.unlink(missing_ok=True)


def the(value: T | None) -> T:
    """Return a value that this store must have; raise AssertionError for None."""
    assert value is not None
    return value


POSTGRES = ("postgres", "cluster")
CLUSTER = ("cluster",)

NEMESES = {
    "kill-replica": Nemesis("replicas", kill("replicas")),
    "stop-replica": Nemesis("replicas", stop("replicas")),
    "kill-worker": Nemesis("workers", kill("workers"), POSTGRES),
    "stop-worker": Nemesis("workers", stop("workers"), POSTGRES),
    "kill-crawler": Nemesis("crawlers", kill_crawler),
    "stop-crawler": Nemesis("crawlers", stop_crawler),
    "kill-follower": Nemesis("follower", kill_client("follower")),
    "kill-receiver": Nemesis("receiver", kill_client("receiver")),
    "step-clock": Nemesis("clocks", step_clock),
    "cut-clients": Nemesis("clients", disturb("fronts", "cut")),
    "stall-clients": Nemesis("clients", disturb("fronts", "stall")),
    "delay-clients": Nemesis("clients", disturb("fronts", "delay")),
    "cut-database": Nemesis("network", disturb("backs", "cut"), POSTGRES),
    "stall-database": Nemesis("network", disturb("backs", "stall"), POSTGRES),
    "delay-database": Nemesis("network", disturb("backs", "delay"), POSTGRES),
    "end-sessions": Nemesis("database", end_sessions, POSTGRES),
    "restart-postgres": Nemesis("database", restart_postgres, POSTGRES),
    "stop-postgres": Nemesis("database", stop_postgres, POSTGRES),
    "lock-tables": Nemesis("database", lock_tables, ("postgres",)),
    "fill-disk": Nemesis("database", fill_disk, ("postgres", "sqlite")),
    "end-sessions-of-one": Nemesis("database", end_sessions_of_one, CLUSTER),
    "kill-mover": Nemesis("mover", kill_mover, CLUSTER),
    "kill-dask-worker": Nemesis("dask", kill("dask_workers"), CLUSTER),
    "stop-dask-worker": Nemesis("dask", stop("dask_workers"), CLUSTER),
    "kill-dask-scheduler": Nemesis("dask", kill("schedulers"), CLUSTER),
}


def available(store: str, world: World) -> dict[str, Nemesis]:
    """Return the nemeses that are possible on this store and this machine."""
    disk = all(server.disk is not None for server in world.postgres)
    return {
        name: nemesis
        for name, nemesis in NEMESES.items()
        if store in nemesis.stores and (disk or name != "fill-disk")
    }
