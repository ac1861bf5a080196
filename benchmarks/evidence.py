"""Compare policies over real traces with bulk revisions, importance and bandwidth varied.

    python -m benchmarks.evidence --traces DIR [--policies default] [--out evidence.jsonl]
        [--sites SITE …] [--bandwidths .02 .1 .5] [--processes 2] [--days N] [--table]

A cell is a trace, with or without bulk revisions, with equal or log-normal importance, at one of
three bandwidths. Each cell and policy is one line of JSON in --out, written as soon as it is
done. The same command continues after an interruption, or adds further policies.

At the end, or at once with --table, the command prints for each cell the harmonic staleness of
each policy over that of uniform crawling. Then it prints:

- the number of cells in which the default policy is best
- its largest staleness over that of uniform crawling and of the heuristics
- the mean share of the gap between uniform and hindsight that it closes, where that gap is at
  least 10 %
- the calibration of its predictions

After a change of a policy, delete its lines: `--forget recrawl`.
"""

import argparse
import json
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import lru_cache, partial
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from recrawl_lab.policies.lineup import (
    HINDSIGHT,
    LINEUP,
    NOTIFIED,
    RECRAWL,
    UNIFORM,
    Game,
    PolicyKind,
    chosen,
)
from recrawl_lab.replay.comparison import play
from recrawl_lab.replay.measures import measured
from recrawl_lab.worlds.recording import recorded_world
from recrawl_lab.worlds.trace import read_trace
from recrawl_lab.worlds.world import World
from service.runtime.bootstrap import configure_logging

SITES = ("ota-contrib", "oi-wiki", "nodejs-org", "powershell-docs", "php-manual")
BANDWIDTHS = (0.02, 0.1, 0.5)
WEIGHTINGS = ("equal", "lognormal")
SEED = 1
TIE = 1e-9
WIDTH = 180
A_GAP = 0.1
"""Least gap between uniform and hindsight for a cell to count, share of uniform's staleness."""

Line = dict[str, Any]


class Cell(NamedTuple):
    site: str
    bulk: bool
    importance: Any
    bandwidth_per_page: float

    def __str__(self) -> str:
        bulk = "bulk in" if self.bulk else "bulk out"
        return f"{self.site}, {bulk}, {self.importance}, {self.bandwidth_per_page:g}"


@lru_cache(maxsize=1)
def world_of(traces: Path, days: float, site: str, bulk: bool, importance: Any) -> World:
    rng = np.random.default_rng(SEED)
    recording = read_trace(traces / site)
    return recorded_world(recording, rng=rng, days=days, importance=importance, bulk=bulk)


def line(traces: Path, days: float, cell: Cell, policy: str) -> Line:
    """Play one policy in one cell and return the line of the result."""
    world = world_of(traces, days, cell.site, cell.bulk, cell.importance)
    bandwidth = cell.bandwidth_per_page * world.mean_pages
    started = time.process_time()
    outcome = play(policy, Game(world, bandwidth, seed=SEED))
    seconds = time.process_time() - started
    learnt, overall = outcome.calibration_learnt, outcome.calibration
    return {
        **cell._asdict(),
        "policy": policy,
        "n_crawls": outcome.n_crawls,
        "bandwidth_used": outcome.bandwidth_used,
        **measured(outcome.terms)._asdict(),
        "ece": overall and overall.expected_error,
        "ece_learnt": learnt and learnt.expected_error,
        "skill_learnt": learnt and learnt.skill,
        "cpu_seconds": round(seconds, 2),
    }


def read(path: Path) -> list[Line]:
    return [json.loads(text) for text in path.read_text().splitlines()] if path.exists() else []


def cell_of(line: Line) -> Cell:
    return Cell(*(line[field] for field in Cell._fields))


def run(todo: list[tuple[Cell, str]], out: Path, chunk: Any, processes: int) -> None:
    """Play the missing cells and append each line as soon as it is done."""
    quiet = partial(configure_logging, "warning")
    spawn = get_context("spawn")
    with (
        ProcessPoolExecutor(processes, mp_context=spawn, initializer=quiet) as pool,
        out.open("a") as file,
    ):
        waiting = [pool.submit(chunk, cell, policy) for cell, policy in todo]
        for n_done, future in enumerate(as_completed(waiting), start=1):
            done = future.result()
            file.write(json.dumps(done) + "\n")
            file.flush()
            print(
                f"{n_done}/{len(todo)} {cell_of(done)}: {done['policy']} "
                f"{done['harmonic']:.5f} in {done['cpu_seconds']} s",
                flush=True,
            )


# -- the tables


def by_cell(lines: list[Line]) -> dict[Cell, dict[str, Line]]:
    cells: dict[Cell, dict[str, Line]] = defaultdict(dict)
    for each in lines:
        cells[cell_of(each)][each["policy"]] = each
    return {cell: cells[cell] for cell in sorted(cells)}


def rivals(lines: dict[str, Line]) -> list[str]:
    """Return the policies that do not know the future, without Recrawl itself."""
    return [n for n in lines if n != RECRAWL and LINEUP[n].kind is not PolicyKind.bound]


def show(lines: list[Line], console: Console) -> None:
    cells = by_cell(lines)
    played = {each["policy"] for each in lines}
    names = [name for name in LINEUP if name in played]
    view = Table("cell", *names, "gap closed", title="Harmonic staleness over that of uniform")
    for cell, got in cells.items():
        base = got[UNIFORM]["harmonic"] if UNIFORM in got else np.nan
        able = [name for name in got if LINEUP[name].kind is not PolicyKind.bound]
        least = min((got[name]["harmonic"] for name in able), default=np.nan)
        ratios = [
            _bold(f"{got[n]['harmonic'] / base:.3f}", n in able and got[n]["harmonic"] == least)
            if n in got
            else ""
            for n in names
        ]
        closed = gap_closed(got)
        view.add_row(str(cell), *ratios, "" if closed is None else f"{closed:.2f}")
    console.print(view)
    for sentence in summary(cells):
        console.print(sentence, highlight=False)
    view = Table("policy", "cells", "as good as it in", "median", "at worst", title="Recrawl over")
    for one in against(cells):
        figures = (str(one.n_cells), str(one.n_won), f"{one.median:.3f}", f"{one.worst:.3f}")
        view.add_row(one.name, *figures)
    console.print(view)


def won(cells: dict[Cell, dict[str, Line]], rivals: list[str]) -> int:
    """Return the number of cells in which Recrawl is as good as the best of the rivals."""
    return sum(
        got[RECRAWL]["harmonic"]
        <= (1 + TIE) * min((got[n]["harmonic"] for n in rivals if n in got), default=np.inf)
        for got in cells.values()
    )


class Against(NamedTuple):
    """Recrawl's staleness over that of a rival, in the cells that both have played."""

    name: str
    n_cells: int
    n_won: int
    median: float
    worst: float


def against(cells: dict[Cell, dict[str, Line]]) -> Iterator[Against]:
    for name in LINEUP:
        ratio = [
            got[RECRAWL]["harmonic"] / got[name]["harmonic"]
            for got in cells.values()
            if RECRAWL in got and name in rivals(got)
        ]
        if ratio:
            n_won = int(np.count_nonzero(np.array(ratio) <= 1 + TIE))
            yield Against(name, len(ratio), n_won, float(np.median(ratio)), max(ratio))


def summary(cells: dict[Cell, dict[str, Line]]) -> Iterator[str]:
    full = {c: got for c, got in cells.items() if RECRAWL in got and rivals(got)}
    if not full:
        return
    names = dict.fromkeys(n for got in full.values() for n in rivals(got))
    today = [name for name in names if LINEUP[name].kind is PolicyKind.today]
    better = f"in {won(full, today)} of {len(full)} cells"
    if len(today) < len(names):
        better += f", than all policies without foresight in {won(full, list(names))}"
    yield f"Recrawl is better than all policies of today's crawlers {better}"
    for name in (RECRAWL, NOTIFIED):
        closed = [
            gap
            for got in full.values()
            if (gap := gap_closed(got, name)) is not None
            and got[HINDSIGHT]["harmonic"] <= (1 - A_GAP) * got[UNIFORM]["harmonic"]
        ]
        if closed:
            yield (
                f"gap closed by {name}, mean of the {len(closed)} cells where hindsight is at "
                f"least {A_GAP:.0%} better than uniform: {np.mean(closed):.3f} (least "
                f"{min(closed):.2f})"
            )
    for site in dict.fromkeys(c.site for c in full):
        errors = [got[RECRAWL]["ece_learnt"] for c, got in full.items() if c.site == site]
        known_errors = [error for error in errors if error is not None]
        if known_errors:
            yield (
                f"expected calibration error after the first quarter, {site}: mean "
                f"{np.mean(known_errors):.3f}, worst {max(known_errors):.3f}"
            )


def gap_closed(got: dict[str, Line], name: str = RECRAWL) -> float | None:
    if not {UNIFORM, HINDSIGHT, name} <= got.keys():
        return None
    worst, best = got[UNIFORM]["harmonic"], got[HINDSIGHT]["harmonic"]
    return (worst - got[name]["harmonic"]) / (worst - best) if worst > best else None


def _bold(text: str, requested: bool) -> str:
    return f"[bold]{text}[/]" if requested else text


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--traces", type=Path, required=True)
    parser.add_argument("--policies", default="default")
    parser.add_argument("--out", type=Path, default=Path("evidence.jsonl"))
    parser.add_argument("--sites", nargs="+", default=SITES)
    parser.add_argument("--bandwidths", nargs="+", type=float, default=BANDWIDTHS)
    parser.add_argument("--importance", nargs="+", default=WEIGHTINGS)
    parser.add_argument("--days", type=float, default=np.inf)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--table", action="store_true", help="print the tables of --out and stop")
    parser.add_argument("--forget", nargs="*", default=(), help="policies to delete and play again")
    arguments = parser.parse_args()
    lines = read(arguments.out)
    if arguments.forget:
        lines = [each for each in lines if each["policy"] not in arguments.forget]
        arguments.out.write_text("".join(json.dumps(each) + "\n" for each in lines))
    if not arguments.table:
        done = {(cell_of(each), each["policy"]) for each in lines}
        cells = (
            Cell(*one)
            for one in product(
                arguments.sites, (False, True), arguments.importance, arguments.bandwidths
            )
        )
        todo = [both for both in product(cells, chosen(arguments.policies)) if both not in done]
        run(
            todo,
            arguments.out,
            partial(line, arguments.traces, arguments.days),
            arguments.processes,
        )
        lines = read(arguments.out)
    show(lines, Console(width=None if sys.stdout.isatty() else WIDTH))


if __name__ == "__main__":
    main()
