"""Measure an epoch over several databases of this machine, and compare the model with it.

    python -m benchmarks.scale.measure [--pages 1000000] [--databases 4] [--json FILE]

A server registers the pages, whose hosts are of very different sizes, and takes two crawls of each.
Then Dask workers of this machine compute epochs.

- One worker that computes one database after the other yields the costs of a page. The share of
  Postgres is the time in which the worker uses no CPU, so nothing else may run.
- Parts with few pages yield the costs of a question, for an actor and for a logical shard.
- A worker for each database is the case that the model must predict from these costs.

--json writes the costs for `python -m benchmarks.scale --figures FILE`.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from benchmarks.http.processes import free_port, postgres_database
from benchmarks.scale.costs import Costs
from benchmarks.scale.epoch import Machines, stages
from benchmarks.scale.hosts import divided, mean_size, sizes
from benchmarks.scale.made import PLAN, Made, cpu_of
from recrawl_cluster.epochs.actors import LOCAL, Actors, Sources
from recrawl_cluster.epochs.databases import for_processes
from recrawl_cluster.sharded import ShardedStore
from recrawl_cluster.store.shard_map import SHIFT
from service.epochs.inputs import Task
from service.epochs.part import Run
from service.epochs.parts import EpochParts
from service.epochs.run import computed, run_epoch
from service.estimation.estimates import width
from service.runtime.bootstrap import configure_logging
from service.storage import CLUSTER, open_store

WIDTH = width(PLAN.estimator)
LOGICAL = 64
WITHIN_S = 240.0
STAGES = ("load", "solve", "write")


class Counted(EpochParts):
    """EpochParts that count questions, and note the time and the CPU seconds of each stage."""

    def __init__(self, parts: EpochParts, pids: Sequence[int]) -> None:
        self.parts, self.n_parts, self.pids = parts, parts.n_parts, pids
        self.n_questions = 0
        self.seconds = dict.fromkeys(STAGES, 0.0)
        self.cpu = dict.fromkeys(STAGES, 0.0)

    def ask(self, question: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        stage = {"load": "load", "prepare": "write"}.get(question, "solve")
        began, before = time.perf_counter(), sum(map(cpu_of, self.pids))
        answers = self.parts.ask(question, arguments)
        self.seconds[stage] += time.perf_counter() - began
        self.cpu[stage] += sum(map(cpu_of, self.pids)) - before
        self.n_questions += stage == "solve"
        return answers

    def renew(self, which: Sequence[int]) -> None:
        self.parts.renew(which)


class Watched:
    """A runner of epochs whose stages are measured."""

    def __init__(self, sources: Sources) -> None:
        self.pool = Actors(sources, LOCAL)
        self.runs: list[Counted] = []

    @contextmanager
    def opened(self, store: Any, lead: Any, task: Task) -> Iterator[EpochParts]:
        """Open the parts of an epoch."""
        with self.pool.opened(store, lead, task) as parts:
            parts.ask_all("learnt")  # starts the workers
            counted = Counted(parts, [actor.pid for actor in parts.actors.values()])
            yield counted
            self.runs.append(counted)


def middle(runs: list[Counted], name: str) -> dict[str, float]:
    """Return the median of each stage over some runs."""
    return {s: float(np.median([getattr(run, name)[s] for run in runs])) for s in STAGES}


def page_costs(run: dict[str, float], cpu: dict[str, float], pages: float) -> dict[str, float]:
    """Return the costs of 10⁶ pages by the epoch of one database alone."""
    million = pages / 1e6
    return {
        "load_database": max(run["load"] - cpu["load"], 0.0) / million,
        "load_actor": cpu["load"] / million,
        "write_database": max(run["write"] - cpu["write"], 0.0) / million,
        "write_actor": cpu["write"] / million,
    }


def question_costs(
    few: Counted, many: Counted, n: int, logical: int, cores: int
) -> dict[str, float]:
    """Return the costs of a question by epochs of nearly no pages over `n` workers.

    `few` has one logical shard in each, `many` has `logical` in all. Their difference is the work
    of logical shards, which the cores share; the rest is the leader's.
    """
    questions = many.n_questions
    parallel = min(cores, n)
    each = (many.seconds["solve"] - few.seconds["solve"]) / questions / (logical - n) * parallel
    rest = few.seconds["solve"] / few.n_questions - each * n / parallel
    return {"questions": questions, "ask_logical": max(each, 0.0), "ask_actor": max(rest, 0.0) / n}


def asked(n: int, logical: int, pages: int = 50) -> tuple[Counted, float]:
    """Return an epoch over `n` workers with few pages, and the bytes of the leader."""
    spans = np.array_split(np.arange(logical), n)
    sources = [Made(tuple(span.tolist()), pages) for span in spans]
    watched = Watched(lambda _: sources)
    for number in range(5):
        with watched.opened(None, None, Task(PLAN, None, datetime.now(UTC))) as parts:
            computed(parts, Run(1, number))
    watched.pool.close()
    runs = sorted(watched.runs[1:], key=lambda run: run.seconds["solve"])
    return runs[len(runs) // 2], watched.pool.n_bytes / len(watched.runs)


@contextmanager
def filled(
    server: str, n: int, pages: int, folder: Path, tell: Callable[[str], None]
) -> Iterator[ShardedStore]:
    """Create `n` databases of one store, with pages that have two crawls each."""
    with ExitStack() as stack:
        name = f"recrawl_scale_{os.getpid()}"
        urls = [stack.enter_context(postgres_database(server, f"{name}_{k}")) for k in range(n)]
        spans = np.array_split(np.arange(LOGICAL), n)
        file = folder / "cluster.toml"
        file.write_text(
            f"logical = {LOGICAL}\n"
            + "".join(
                f'[[databases]]\nname = "{k}"\nurl = "{url}"\nshards = "{span[0]}-{span[-1]}"\n'
                for k, (url, span) in enumerate(zip(urls, spans, strict=True))
            )
        )
        clean = {k: v for k, v in os.environ.items() if not k.startswith("RECRAWL_")}
        environment = {**clean, "RECRAWL_CLUSTER": str(file), "RECRAWL_LOG_LEVEL": "warning"}
        command = [sys.executable, "-m", "service"]
        for words in (["migrate"], ["shards", "add"]):
            subprocess.run(
                [*command, *words], env=environment, check=True, stdout=subprocess.DEVNULL
            )
        port = free_port()
        process = subprocess.Popen([*command, "serve", "--port", str(port)], env=environment)
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=WITHIN_S) as client:
                wait(client)
                fill(client, pages, tell)
        finally:
            process.terminate()
            process.wait(WITHIN_S)
        store = open_store(f"{CLUSTER}:///{file}", WIDTH)
        assert isinstance(store, ShardedStore)
        with closing(store):
            store.prepare()
            yield store


def wait(client: httpx.Client) -> None:
    """Wait until the server is ready."""
    deadline = time.monotonic() + WITHIN_S
    while time.monotonic() < deadline:
        try:
            client.get("/readyz").raise_for_status()
        except httpx.HTTPError:
            time.sleep(0.1)
        else:
            return
    raise TimeoutError("the server did not start")


def fill(client: httpx.Client, n: int, tell: Callable[[str], None]) -> None:
    """Register `n` pages of hosts with a Pareto tail, and report two crawls of each."""
    rng = np.random.default_rng(1)
    tail, largest = 0.8, n / 50
    of_hosts = sizes(rng, int(2 * n / mean_size(tail, largest)), tail, largest).astype(np.int64)
    host = np.repeat(np.arange(len(of_hosts)), of_hosts)[:n]
    urls = [f"https://host{h}.example/page/{i}" for i, h in enumerate(host.tolist())]
    weight = np.exp(rng.normal(0, 1.5, n)).round(4).tolist()
    now = datetime.now(UTC)
    times = [(now - timedelta(days=days)).isoformat() for days in (4, 1)]
    for first in range(0, len(urls), 10_000):
        part = slice(first, first + 10_000)
        pages = [{"url": u, "importance": w} for u, w in zip(urls[part], weight[part], strict=True)]
        ids = client.post("/pages", json=pages).raise_for_status().json()["page_ids"]
        for at in times:
            changed = (rng.random(len(ids)) < 0.3).tolist()
            items = [
                {"page_id": i, "observed_at": at, "changed": c}
                for i, c in zip(ids, changed, strict=True)
            ]
            client.post("/observations", json=items).raise_for_status()
    tell(f"{len(urls):,} pages of {len(np.unique(host)):,} hosts, two crawls each")


def pages_of_shards(store: ShardedStore) -> NDArray[np.float64]:
    """Return the number of pages of each logical shard."""
    with store.read_whole() as tx:
        parts = tx.load_columns().page_id >> SHIFT
    return np.bincount(parts, minlength=LOGICAL).astype(np.float64)


def epochs(store: ShardedStore, n_workers: int, rounds: int) -> list[Counted]:
    """Return epochs in some workers, after one that warms up."""
    watched = Watched(partial(for_processes, n_processes=n_workers))
    for _ in range(1 + rounds):
        record = run_epoch(store, PLAN, store.clock, watched.opened)
        if record.certificate is None:
            raise RuntimeError(f"the epoch failed: {record.reason}")
    watched.pool.close()
    return watched.runs[1:]


def main() -> None:
    """Measure, compare, print and write."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--pages", type=int, default=1_000_000)
    options.add_argument("--databases", type=int, default=4)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--postgres", default="postgresql://127.0.0.1:5432/postgres")
    options.add_argument("--json", type=Path)
    chosen = options.parse_args()
    configure_logging("error")
    n, cores, console = chosen.databases, len(os.sched_getaffinity(0)), Console()
    few, few_bytes = asked(n, n)
    many, many_bytes = asked(n, LOGICAL)
    costs = question_costs(few, many, n, LOGICAL, cores)
    costs["leader_logical"] = (many_bytes - few_bytes) / (LOGICAL - n)
    with (
        tempfile.TemporaryDirectory(prefix="recrawl-scale-") as folder,
        filled(chosen.postgres, n, chosen.pages, Path(folder), console.print) as store,
    ):
        by_shard = pages_of_shards(store)
        per_actor = divided(by_shard, n, 1)
        one = epochs(store, 1, chosen.rounds)
        every = epochs(store, n, chosen.rounds)
    alone, pages = middle(one, "seconds"), float(by_shard.sum())
    costs |= page_costs(alone, middle(one, "cpu"), pages)
    asking = costs["questions"] * (costs["ask_actor"] + costs["ask_logical"] * LOGICAL)
    costs["solve_actor"] = (alone["solve"] - asking) / pages * 1e6
    model = stages(
        per_actor, LOGICAL, Costs().measured(costs, "here"), Machines(shared_cores=cores)
    )
    measured = middle(every, "seconds")
    predicted = {stage: float(getattr(model, stage)) for stage in STAGES}
    show(console, measured, predicted)
    if chosen.json is not None:
        written = {
            "pages": pages,
            "databases": n,
            "cores": cores,
            "costs": costs,
            "measured": measured,
            "predicted": predicted,
        }
        chosen.json.write_text(json.dumps(written, indent=2) + "\n")


def show(console: Console, measured: dict[str, float], predicted: dict[str, float]) -> None:
    """Print the comparison of the model with the measurement."""
    made = Table("stage", "measured s", "model s", "model over measured", box=None)
    total = sum(measured.values()), sum(predicted.values())
    rows = [(stage, measured[stage], predicted[stage]) for stage in STAGES]
    for name, real, said in [*rows, ("all", *total)]:
        made.add_row(name, f"{real:.3f}", f"{said:.3f}", f"{said / real:.2f}")
    console.print(made)


if __name__ == "__main__":
    main()
