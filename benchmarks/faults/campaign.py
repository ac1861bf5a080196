"""One campaign: start all processes, inject faults, heal, wait for recovery, check."""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import httpx

from benchmarks.faults import checker, final
from benchmarks.faults.clients import Task
from benchmarks.faults.deployment import (
    Clients,
    Service,
    Supervisor,
    await_ready,
    dask,
    free_ports,
    migrate,
    settings_of,
)
from benchmarks.faults.feed_checks import lags
from benchmarks.faults.feed_clients import PLACE, webhook
from benchmarks.faults.hands import Plan, harass, kill_evenly
from benchmarks.faults.history import Answer, History, Silence, now
from benchmarks.faults.lease_checks import crawled_again
from benchmarks.faults.nemeses import World, available
from benchmarks.faults.postgres import Cluster, cluster
from benchmarks.faults.proxy import Network, Proxy
from benchmarks.faults.sharded import NAMES, Mover, create, shards_of_pages
from benchmarks.faults.verdicts import Verdict
from benchmarks.http.processes import Failed

N_HOSTS, PAGES_PER_HOST = 24, 4
N_OTHERS = 48
"""Number of pages without a crawl rate of their own, for reporters and pingers."""
LEAST_RATE = 500.0
"""Minimum rate at which readers catch up, changes/s."""
PERIOD_S = 4.0
"""Time from one crawl of a page to the next, seconds."""
DELAY_S = 0.3
"""Host delay, seconds."""
SETTLES_WITHIN_S = 60.0
"""Time within which every page must be handed out after the last nemesis, seconds."""
CLIENTS = {
    "crawler": 3,
    "reporter": 1,
    "pinger": 1,
    "registrar": 1,
    "reader": 2,
    "follower": 1,
    "receiver": 1,
}
N_DASK_WORKERS = 2
CALM_EPOCHS_S = "10"
"""Time between epochs in a campaign of many changes, seconds."""
DAY_S = 86_400.0
SETTINGS = {
    "host_delay_s": str(DELAY_S),
    "host_concurrency": "1",
    "epoch_interval_s": "2",
    "bandwidth": str(N_HOSTS * PAGES_PER_HOST * DAY_S / PERIOD_S * 1.05),
    "log_level": "warning",
    "webhooks_private": "true",
}


@dataclass
class Outcome:
    """Results of a campaign."""

    verdicts: list[Verdict] = field(default_factory=list)
    harms: Counter[str] = field(default_factory=Counter)
    answers: Counter[str] = field(default_factory=Counter)
    n_starts: int = 0
    settled_s: float = 0.0
    moves: dict[str, int] = field(default_factory=dict)
    """Moves of shards that were completed, runs that were killed, and runs that gave up."""
    lag_s: dict[str, float] = field(default_factory=dict)
    """Time from the commit of a change to its arrival."""
    failures: list[str] = field(default_factory=list)
    """Nemeses that failed to inject or heal their fault."""
    left_out: list[str] = field(default_factory=list)
    """Nemeses that this machine or store does not allow."""

    @property
    def n_violations(self) -> int:
        return sum(len(verdict.violations) for verdict in self.verdicts)


def run(plan: Plan) -> Outcome:
    """Run a campaign to its end and return its outcome."""
    outcome = Outcome()
    with deployed(plan) as (world, supervisor, pages):
        chosen = available(plan.store, world)
        outcome.left_out = [name for name in plan.nemeses if name not in chosen]
        chosen = {name: chosen[name] for name in plan.nemeses if name in chosen}
        for kind, n in (CLIENTS | {"burster": int(plan.bulk > 0)}).items():
            for _ in range(n):
                world.clients.start(kind)
        if plan.n_changes:
            hands = kill_evenly(plan, world, chosen, partial(final.n_changes, urls_of(world)))
        else:
            hands = harass(plan, world, chosen)
        for name in world.clients.of("burster"):
            world.clients.kill(name)
        if world.mover is not None:
            world.mover.finish()
        healed_at = now()
        base = f"http://127.0.0.1:{world.replicas[0].port}"
        outcome.settled_s = settle(plan, pages, healed_at, base)
        for kind in ("crawler", "reporter"):
            for name in world.clients.of(kind):
                world.clients.kill(name)
        await_feed(plan, world)
        world.clients.end()
        supervisor.end()
        verdicts = evidence(plan.folder, urls_of(world), pages, healed_at, outcome)
        if world.mover is not None:
            verdicts.append(moves(world.mover, outcome))
        outcome.harms, outcome.failures = hands.harms, hands.failures
        outcome.n_starts = sum(service.n_starts for service in world.services)
        outcome.verdicts = [*verdicts, tracebacks(world.services), ends(world.services)]
    return outcome


def urls_of(world: World) -> list[str]:
    """Return the databases' own addresses."""
    return [server.url() for server in world.postgres] or [f"sqlite:///{world.file}"]


def moves(mover: Mover, outcome: Outcome) -> Verdict:
    """Check that no move ended with a traceback, and count the moves."""
    outcome.moves = {"moves": mover.n_moves, "killed": mover.n_killed, "stopped": mover.n_stopped}
    return Verdict("moves of shards that ended with a traceback", mover.faults, mover.n_moves)


def evidence(
    folder: Path, urls: Sequence[str], pages: Sequence[int], healed_at: float, outcome: Outcome
) -> list[Verdict]:
    """Check the history and count its answers."""
    history = History.read(folder)
    outcome.answers.update(str(one.status) for one in history.of(Answer))
    outcome.answers["none"] = len(history.of(Silence))
    outcome.lag_s = lags(history)
    return checker.check(history, final.read(urls), pages, DELAY_S, healed_at)


@contextmanager
def deployed(plan: Plan) -> Iterator[tuple[World, Supervisor, list[int]]]:
    """Run the service and yield its world, its supervisor and the pages with a crawl rate."""
    with ExitStack() as stack:
        network = stack.enter_context(Network())
        if plan.store == "postgres":
            small = not plan.n_changes  # so many changes would fill the small disk
            world = on_postgres(plan, network, stack.enter_context(cluster(small=small)))
        elif plan.store == "cluster":
            servers = [stack.enter_context(cluster(small=False)) for _ in NAMES]
            world = on_shards(plan, network, servers)
        else:
            world = on_sqlite(plan, network)
        supervisor = Supervisor([*world.schedulers, *world.dask_workers, *world.services])
        stack.callback(supervisor.end)
        stack.callback(world.clients.end)
        supervisor.start()
        await_ready(world.replicas)
        port = world.replicas[0].port
        pages = registered(port, "crawled", N_HOSTS * PAGES_PER_HOST, DAY_S / PERIOD_S)
        others = registered(port, "reported", N_OTHERS, None)
        bulk = registered(port, "bulk", plan.bulk, None) if plan.bulk else []
        (hook_port,) = free_ports(1)
        hooked = httpx.post(f"http://127.0.0.1:{port}/webhooks", json=webhook(hook_port))
        world.webhook = hooked.raise_for_status().json()["id"]
        fronts = [proxy.port for proxy in world.fronts]
        more = {"bulk": bulk, "hook_port": hook_port, "all_changed": plan.n_changes > 0}
        world.clients.task = partial(task, plan, fronts, pages, others, more)
        if world.is_sharded:
            shards = shards_of_pages(urls_of(world))
            world.mover = Mover(plan.folder / "cluster.toml", shards, plan.seed)
            world.mover.start()
        yield world, supervisor, pages


def on_postgres(plan: Plan, network: Network, server: Cluster) -> World:
    """Return a world of two replicas and two workers on Postgres, each behind its own proxy."""
    migrate(server.url())
    backs = free_ports(4)
    proxies = [network.proxy(port, server.port) for port in backs]
    urls = [server.url(port) for port in backs]
    replicas = [service(plan, f"replica-{i}", urls[i], serve=True) for i in range(2)]
    workers = [service(plan, f"worker-{i}", urls[2 + i], serve=False) for i in range(2)]
    return world_of(plan, network, replicas, workers, backs=proxies, postgres=[server])


def on_shards(plan: Plan, network: Network, servers: list[Cluster]) -> World:
    """Return a world of two replicas, two workers and Dask on databases, each behind a proxy."""
    backs = free_ports(len(servers))
    pairs = zip(backs, servers, strict=True)
    proxies = [network.proxy(port, server.port) for port, server in pairs]
    url = f"cluster:///{create(servers, backs, plan.folder)}"
    schedulers, dask_workers = dask(plan.folder, N_DASK_WORKERS)
    address = f"tcp://127.0.0.1:{schedulers[0].port}"
    replicas = [service(plan, f"replica-{i}", url, serve=True) for i in range(2)]
    workers = [service(plan, f"worker-{i}", url, serve=False, dask=address) for i in range(2)]
    more = {"schedulers": schedulers, "dask_workers": dask_workers, "is_sharded": True}
    return world_of(plan, network, replicas, workers, backs=proxies, postgres=servers, **more)


def on_sqlite(plan: Plan, network: Network) -> World:
    """Return a world of one replica on a SQLite file."""
    file = plan.folder / "campaign.db"
    replicas = [service(plan, "replica-0", f"sqlite:///{file}", serve=True)]
    return world_of(plan, network, replicas, [], file=file)


def service(plan: Plan, name: str, url: str, *, serve: bool, **own: str) -> Service:
    """Return one process of the service, not yet started."""
    (port,) = free_ports(1) if serve else (0,)
    command = ["serve", "--port", str(port)] if serve else ["worker"]
    calm = {"epoch_interval_s": CALM_EPOCHS_S} if plan.n_changes else {}
    settings = SETTINGS | calm | own
    return Service(name, command, settings_of(url, **settings), plan.folder, port)


def world_of(
    plan: Plan, network: Network, replicas: list[Service], workers: list[Service], **more: Any
) -> World:
    """Return a world with proxies in front of the replicas and without clients."""
    ports = free_ports(len(replicas))
    fronts = [network.proxy(p, one.port) for p, one in zip(ports, replicas, strict=True)]
    stores: dict[str, Any] = {"backs": list[Proxy](), "postgres": list[Cluster](), "file": None}
    draw = Random(plan.seed)
    return World(replicas, workers, Clients(), fronts, draw=draw, **(stores | more))


def task(
    plan: Plan,
    ports: Sequence[int],
    pages: Sequence[int],
    others: Sequence[int],
    more: dict[str, Any],
    name: str,
) -> Task:
    """Return the parameters of a client; each client begins at another replica."""
    turn = int(name.rpartition("-")[2]) % len(ports)
    return Task(name, [*ports[turn:], *ports[:turn]], plan.folder, pages, others, plan.seed, **more)


def registered(port: int, name: str, n: int, crawl_rate: float | None) -> list[int]:
    """Register pages, with a fixed crawl rate unless it is None; return their page_ids."""
    rate = (
        {}
        if crawl_rate is None
        else dict.fromkeys(("min_crawl_rate", "max_crawl_rate"), crawl_rate)
    )
    items = [{"url": f"https://{name}{i // PAGES_PER_HOST}.example/{i}", **rate} for i in range(n)]
    answer = httpx.post(f"http://127.0.0.1:{port}/pages", json=items, timeout=30)
    if answer.status_code != 200:
        raise Failed(answer.text)
    page_ids: list[int] = answer.json()["page_ids"]
    return page_ids


def settle(plan: Plan, pages: Sequence[int], healed_at: float, base: str) -> float:
    """Wait until every page was handed out again or time is up; return the seconds.

    Pages whose leases killed crawlers have lost wait, so their crawls are requested.
    """
    while (waited_s := now() - healed_at) < SETTLES_WITHIN_S:
        history = History.read(plan.folder, "crawler-*")
        if not crawled_again(history, pages, healed_at).violations:
            break
        with suppress(httpx.HTTPError):
            httpx.post(f"{base}/pages/recrawl", params={"state": "unfinished"}, json={}, timeout=30)
        time.sleep(1.0)
    return waited_s


def await_feed(plan: Plan, world: World) -> None:
    """Wait until both readers of the feed are at its end, or time is up.

    The webhook may wait after failures, so its owner has it delivered at once.
    """
    await_ready(world.replicas)
    base = f"http://127.0.0.1:{world.replicas[0].port}"
    hook = f"{base}/webhooks/{world.webhook}"
    httpx.post(f"{hook}/redeliver", json={}, timeout=30).raise_for_status()
    ends_at = now() + SETTLES_WITHIN_S + plan.n_changes / LEAST_RATE
    place = plan.folder / PLACE
    while now() < ends_at and not (
        at_end(base, confirmed(hook)) and place.exists() and at_end(base, place.read_text())
    ):
        time.sleep(1.0)


def confirmed(hook: str) -> str:
    """Return the cursor after the last change that the receiver has confirmed."""
    cursor: str = httpx.get(hook, timeout=30).raise_for_status().json()["cursor"]
    return cursor


def at_end(base: str, cursor: str) -> bool:
    """Return whether no change of the feed comes after a cursor."""
    query = {"cursor": cursor, "limit": 1}
    part = httpx.get(f"{base}/changes", params=query, timeout=30).raise_for_status().json()
    return not part["items"] and not part["more"]


def tracebacks(services: Sequence[Service]) -> Verdict:
    """Check that no log contains a traceback."""
    wrong = []
    for one in services:
        lines = one.log.read_text(errors="replace").splitlines()
        for i, line in enumerate(lines):
            if "Traceback (most recent call last)" in line:
                rest = (text for text in lines[i + 1 :] if text[:1].strip())
                wrong.append(f"{one.name}: {next(rest, '')[:300]}")
    return Verdict("tracebacks in the logs", wrong, len(services))


def ends(services: Sequence[Service]) -> Verdict:
    """Check that processes end within the limit when asked to, and never by themselves."""
    wrong = [fault for one in services for fault in one.faults]
    return Verdict("processes that ended by themselves or too late", wrong, len(services))
