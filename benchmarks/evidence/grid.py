"""Compare policies over real traces with bulk revisions, importance, bandwidth and seed varied.

    python -m benchmarks.evidence --traces DIR [--policies default,parts] [--out evidence.jsonl]
        [--sites SITE …] [--bandwidths .02 .1 .5] [--seeds 1 2 3] [--processes 2] [--days N]
        [--table]

A cell is a trace, with or without bulk revisions, with equal or log-normal importance, at one of
the site's bandwidths. A trace without bulk revisions is played once, as without them. Each cell,
seed and policy is one line of JSON in --out, written as soon as it is done. The same command
continues after an interruption, or adds further policies and seeds. A line without a seed counts
as seed 1. The seed draws log-normal importance and the jitter of Recrawl's crawls.

At the end, or at once with --table, the command prints two ratios for each cell. One is the
harmonic staleness of each policy over that of uniform crawling. The other is that of Recrawl over
the best of its own variants. Several seeds are averaged, with the standard error. Then it prints:

- the number of cells in which the default policy is best
- its largest staleness over that of uniform crawling and of the heuristics
- median, mean and least share of the gap between uniform and hindsight that it closes, where that
  gap is at least 10 %
- the number of cells in which a variant of our own is better, and the worst
- the calibration of its predictions
- the staleness of the live pages alone, where nearly all pages of a site never change

After a change of a policy, delete its lines with `--forget recrawl`, or keep them until they are
played again with `--outdate recrawl`; the page shows then which are old.
"""

import argparse
import json
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import lru_cache, partial
from itertools import groupby, product
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.evidence.cells import (
    FIRST_SEED,
    OUTDATED,
    SITES,
    WEIGHTINGS,
    Cell,
    Line,
    cell_of,
    grid,
    read,
)
from benchmarks.evidence.figures import Cells, Mean, Played, against, by_cell, live, summary
from recrawl_lab.policies.lineup import LINEUP, UNIFORM, Game, chosen
from recrawl_lab.replay.comparison import play
from recrawl_lab.replay.measures import Terms, measured
from recrawl_lab.worlds.recording import recorded_world
from recrawl_lab.worlds.trace import read_trace
from recrawl_lab.worlds.world import World
from service.runtime.bootstrap import configure_logging

LIVE_RATE = 0.1
"""Minimum mean change rate of a live page, 1/day."""
WIDTH = 180


class Task(NamedTuple):
    """A policy to play in a cell with a seed."""

    cell: Cell
    seed: int
    policy: str


@lru_cache(maxsize=1)
def world_of(
    traces: Path, days: float, site: str, *, bulk: bool, importance: Any, seed: int
) -> World:
    rng = np.random.default_rng(seed)
    recording = read_trace(traces / site)
    return recorded_world(recording, rng=rng, days=days, importance=importance, bulk=bulk)


def line(traces: Path, days: float, task: Task) -> Line:
    """Play one policy in one cell and return the line of the result."""
    cell, seed, policy = task
    world = world_of(traces, days, cell.site, bulk=cell.bulk, importance=cell.importance, seed=seed)
    bandwidth = cell.bandwidth_per_page * world.mean_pages
    started = time.process_time()
    outcome = play(policy, Game(world, bandwidth, seed=seed))
    seconds = time.process_time() - started
    learnt, overall = outcome.calibration_learnt, outcome.calibration
    return {
        **cell._asdict(),
        "seed": seed,
        "policy": policy,
        "n_crawls": outcome.n_crawls,
        "bandwidth_used": outcome.bandwidth_used,
        **measured(outcome.terms)._asdict(),
        **of_live_pages(world, outcome.terms),
        "ece": overall and overall.expected_error,
        "ece_learnt": learnt and learnt.expected_error,
        "skill_learnt": learnt and learnt.skill,
        "cpu_seconds": round(seconds, 2),
    }


def of_live_pages(world: World, terms: Terms) -> Line:
    """Return both measures over the pages with `LIVE_RATE`; null without such a page."""
    is_live = world.change_rate >= LIVE_RATE
    if not is_live.any():
        return {"n_live": 0, "harmonic_live": None, "binary_live": None}
    measures = measured(Terms(terms.above[is_live], terms.below[is_live]))
    return {
        "n_live": int(is_live.sum()),
        "harmonic_live": measures.harmonic,
        "binary_live": measures.binary,
    }


def tasks(cells: list[Cell], seeds: list[int], policies: tuple[str, ...]) -> list[Task]:
    """Return the tasks, so that those with the same world follow each other."""
    by_world = groupby(cells, key=lambda cell: (cell.site, cell.bulk, cell.importance))
    return [
        Task(cell, seed, policy)
        for _, alike in by_world
        for seed, cell, policy in product(seeds, list(alike), policies)
    ]


def run(todo: list[Task], out: Path, chunk: Any, processes: int) -> None:
    """Play the missing cells and append each line as soon as it is done."""
    quiet = partial(configure_logging, "warning")
    spawn = get_context("spawn")
    with (
        ProcessPoolExecutor(processes, mp_context=spawn, initializer=quiet) as pool,
        out.open("a") as file,
    ):
        waiting = [pool.submit(chunk, task) for task in todo]
        for n_done, future in enumerate(as_completed(waiting), start=1):
            done = future.result()
            file.write(json.dumps(done) + "\n")
            file.flush()
            print(
                f"{n_done}/{len(todo)} {cell_of(done)}: {done['policy']}, seed {done['seed']}: "
                f"{done['harmonic']:.5f} in {done['cpu_seconds']} s",
                flush=True,
            )


# -- the tables


def show(lines: list[Line], console: Console) -> None:
    cells = by_cell(lines)
    names = [name for name in LINEUP if any(name in played for played in cells.values())]
    console.print(_ratios(cells, names))
    for sentence in summary(cells):
        console.print(sentence, highlight=False)
    view = Table("policy", "cells", "as good as it in", "median", "at worst", title="Recrawl over")
    for one in against(cells):
        figures = (str(one.n_cells), str(one.n_won), f"{one.median:.3f}", f"{one.worst:.3f}")
        view.add_row(one.name, *figures)
    console.print(view)
    if of_live := live(cells):
        view = Table("cell", *names, title=f"Staleness of pages with {LIVE_RATE:g} changes a day")
        for cell, played in of_live.items():
            staleness = (_text(played.measure(name, "harmonic_live")) for name in names)
            view.add_row(str(cell), *staleness)
        console.print(view)


def _ratios(cells: Cells, names: list[str]) -> Table:
    title = "Harmonic staleness over that of uniform"
    view = Table("cell", *names, "over own best", "gap closed", title=title)
    for cell, played in cells.items():
        best = _least(played)
        ratios = (
            _bold(_text(played.over(name, UNIFORM)), requested=name == best) for name in names
        )
        last = _text(played.over_variant()), _text(played.gap_closed(), 2)
        view.add_row(str(cell), *ratios, *last)
    return view


def _least(played: Played) -> str | None:
    """Return the policy without knowledge of the future that has the least staleness."""
    staleness = {name: figure.value for name in played.able if (figure := played.measure(name))}
    return min(staleness, key=staleness.__getitem__, default=None)


def _text(figure: Mean | None, digits: int = 3) -> str:
    return "" if figure is None else figure.text(digits)


def _bold(text: str, *, requested: bool) -> str:
    return f"[bold]{text}[/]" if requested and text else text


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.evidence",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--traces", type=Path, required=True)
    parser.add_argument("--policies", default="default")
    parser.add_argument("--out", type=Path, default=Path("evidence.jsonl"))
    parser.add_argument("--sites", nargs="+", default=list(SITES))
    parser.add_argument("--bandwidths", nargs="+", type=float, help="default: those of each site")
    parser.add_argument("--importance", nargs="+", default=WEIGHTINGS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[FIRST_SEED])
    parser.add_argument("--days", type=float, default=np.inf)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--table", action="store_true", help="print the tables of --out and stop")
    parser.add_argument("--forget", nargs="*", default=(), help="policies to delete and play again")
    parser.add_argument(
        "--outdate", nargs="*", default=(), help="policies to play again, with old lines until then"
    )
    arguments = parser.parse_args()
    lines = read(arguments.out)
    if arguments.forget or arguments.outdate:
        lines = [each for each in lines if each["policy"] not in arguments.forget]
        lines = [
            {**each, OUTDATED: True} if each["policy"] in arguments.outdate else each
            for each in lines
        ]
        arguments.out.write_text("".join(json.dumps(each) + "\n" for each in lines))
    if not arguments.table:
        current = (each for each in lines if OUTDATED not in each)
        done = {Task(cell_of(each), each["seed"], each["policy"]) for each in current}
        cells = list(grid(arguments.sites, arguments.importance, arguments.bandwidths))
        every = tasks(cells, arguments.seeds, chosen(arguments.policies))
        run(
            [task for task in every if task not in done],
            arguments.out,
            partial(line, arguments.traces, arguments.days),
            arguments.processes,
        )
        lines = read(arguments.out)
    show(lines, Console(width=None if sys.stdout.isatty() else WIDTH))
