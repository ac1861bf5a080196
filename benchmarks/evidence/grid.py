"""Compare policies over real traces: kinds of worlds, importance, bandwidth and seed varied.

    python -m benchmarks.evidence --traces DIR [--out FOLDER] [--minutes 60] [--processes 1]
        [--sites SITE …] [--kinds plain revisions outages] [--importance equal lognormal]
        [--bandwidths .02 .1 .5 1] [--seeds 1 2 3] [--policies NAMES]
    python -m benchmarks.evidence --left      # what is not played yet, and how long it takes
    python -m benchmarks.evidence --table     # the tables of what is played

A cell is a site, a kind of world, an importance and a bandwidth. Every policy plays in every cell,
over the last two years of its trace, or longer for revisions. The options restrict what is played.
Recrawl's crawls pass the gate of the service, with its default loan, so each day keeps the budget.

Each game is one line of JSON in the file of its cell in --out, written as soon as it is done. The
same command goes on after an interruption, with the most important games first. It begins with the
games that are left and their time. With --minutes no game begins later. Games in --known, which may
be docs/evidence.jsonl, are not played again. A variant without a part that had no effect in the
game of the default is not played either: it has the figures of that game.

After a change of a policy, delete its lines with `--forget recrawl`, or keep them until they are
played again with `--outdate recrawl`; the page shows then which are old.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from functools import lru_cache, partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.evidence.cells import (
    BANDWIDTHS,
    FIRST_SEED,
    OUTDATED,
    SEEDS,
    WEIGHTINGS,
    Cell,
    Choice,
    Kind,
    Line,
    cell_of,
    read,
    site_of,
    written,
)
from benchmarks.evidence.figures import Cells, Mean, Played, against, by_cell, live, summary
from benchmarks.evidence.left import (
    COMPARED,
    Task,
    duration,
    left,
    seconds,
    sentences,
    task_of,
    tasks,
)
from recrawl_lab.cli.replay_run import OUTAGE_STREAM
from recrawl_lab.policies.lineup import (
    LINEUP,
    RECRAWL,
    UNIFORM,
    Game,
    chosen,
    plays_as_default,
)
from recrawl_lab.replay.comparison import play
from recrawl_lab.replay.measures import Terms, measured
from recrawl_lab.worlds.recording import recorded_world
from recrawl_lab.worlds.trace import read_trace
from recrawl_lab.worlds.world import World
from service.runtime.bootstrap import configure_logging

LIVE_RATE = 0.1
"""Minimum mean change rate of a live page, 1/day."""
WIDTH = 180
FOLDER = Path("bench-out/evidence")


@lru_cache(maxsize=1)
def world_of(traces: Path, cell: Cell) -> World:
    """Return the world of a cell, which is the same for all seeds and bandwidths."""
    world = recorded_world(
        read_trace(traces / cell.site),
        rng=np.random.default_rng(FIRST_SEED),
        days=site_of(cell.site).window(cell.kind),
        importance="lognormal" if cell.importance == "lognormal" else "equal",
        bulk=cell.kind == Kind.revisions,
    )
    if cell.kind == Kind.outages:
        world = world.with_outages(np.random.default_rng([FIRST_SEED, OUTAGE_STREAM]))
    return world


def line(traces: Path, commit: str, task: Task) -> Line:
    """Play one policy in one cell and return the line of the result."""
    cell, seed, policy = task
    world = world_of(traces, cell._replace(bandwidth_per_page=0.0))
    bandwidth = cell.bandwidth_per_page * world.mean_pages
    started = time.process_time()
    outcome = play(policy, Game(world, bandwidth, seed=seed))
    spent = time.process_time() - started
    learnt, overall = outcome.calibration_learnt, outcome.calibration
    return {
        **cell._asdict(),
        "seed": seed,
        "policy": policy,
        "commit": commit,
        "n_crawls": outcome.n_crawls,
        "bandwidth_used": outcome.bandwidth_used,
        **measured(outcome.terms)._asdict(),
        **of_live_pages(world, outcome.terms),
        "idle": sorted(outcome.idle),
        "ece": overall and overall.expected_error,
        "ece_learnt": learnt and learnt.expected_error,
        "skill_learnt": learnt and learnt.skill,
        "cpu_seconds": round(spent, 2),
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


def run(
    todo: list[Task],
    folder: Path,
    chunk: Callable[[Task], Line],
    pool: Executor,
    at_once: int = 1,
    last: float = np.inf,
    played: Iterable[Line] = (),
) -> Iterator[Line]:
    """Play games, add each line to the file of its cell, and yield it; none begins after `last`.

    `last` is an instant of `time.monotonic`. The first games begin in any case. A variant that
    leaves out a part which was idle in the default's game has that game; `played` has earlier games
    of the same code.
    """
    folder.mkdir(parents=True, exist_ok=True)
    queue, running, may_begin = iter(todo), set[Future[Line]](), True
    defaults = {task_of(each): each for each in played if each["policy"] == RECRAWL}
    while True:
        while may_begin and len(running) < at_once and (task := next(queue, None)):
            if same := copied(task, defaults.get(task._replace(policy=RECRAWL))):
                yield _added(same, folder)
            else:
                running.add(pool.submit(chunk, task))
        if not running:
            return
        done, running = wait(running, return_when=FIRST_COMPLETED)
        for future in done:
            result = _added(future.result(), folder)
            if result["policy"] == RECRAWL:
                defaults[task_of(result)] = result
            yield result
        may_begin = time.monotonic() < last


def copied(task: Task, default: Line | None) -> Line | None:
    """Return the line of a game that is the default's, of which `default` is the line; or None."""
    if default is None or not plays_as_default(task.policy, default.get("idle", ())):
        return None
    return {**default, "policy": task.policy, "cpu_seconds": 0.0}


def _added(result: Line, folder: Path) -> Line:
    """Add a line to the file of its cell and return it."""
    with (folder / cell_of(result).file_name).open("a") as file:
        file.write(written(result))
    return result


def processes(n: int) -> ProcessPoolExecutor:
    """Return processes that log warnings only."""
    quiet = partial(configure_logging, "warning")
    return ProcessPoolExecutor(n, mp_context=get_context("spawn"), initializer=quiet)


def show_left(todo: list[Task], n_all: int, lines: list[Line]) -> None:
    """Print the games that are left, and their time."""
    time_left = duration(seconds(todo, lines))
    print(f"{len(todo)} of {n_all} games are left, about {time_left} on one core; not played:")
    for sentence in sentences(todo):
        print(f"- {sentence}")


def commit_in_force() -> str:
    """Return the commit of the code that plays, with "+" where files differ from it."""
    root = Path(__file__).parents[2]

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(root), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "service", "recrawl_lab")
    return git("rev-parse", "--short=8", "HEAD") + ("+" if changed else "")


def rewrite(folder: Path, forget: list[str], outdate: list[str]) -> None:
    """Delete lines of policies in all files of a folder, and mark others as outdated."""
    for path in sorted(folder.glob("*.jsonl")):
        kept = [each for each in read(path) if each["policy"] not in forget]
        marked = [{**each, OUTDATED: True} if each["policy"] in outdate else each for each in kept]
        path.write_text("".join(map(written, marked)))


# -- the tables


def show(lines: list[Line], console: Console) -> None:
    cells = by_cell(lines)
    names = [name for name in LINEUP if any(name in played for played in cells.values())]
    console.print(_ratios(cells, names))
    for sentence in summary(cells):
        console.print(sentence, highlight=False)
    view = Table("policy", "median", "at worst", "cells", "at most 1 in", title="Recrawl over")
    for one in against(cells):
        figures = (f"{one.median:.3f}", f"{one.worst:.3f}", str(one.n_cells), str(one.n_won))
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


def options() -> argparse.ArgumentParser:
    """Return the options."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.evidence",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--traces", type=Path, help="folder of the traces; needed to play")
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder with a file for each cell")
    parser.add_argument("--known", type=Path, nargs="*", default=[], help="other files of lines")
    parser.add_argument("--policies", type=chosen, default=COMPARED)
    parser.add_argument("--sites", nargs="+")
    parser.add_argument("--kinds", nargs="+", choices=[kind.value for kind in Kind])
    parser.add_argument("--importance", nargs="+", choices=WEIGHTINGS)
    parser.add_argument("--bandwidths", nargs="+", type=float, choices=BANDWIDTHS)
    parser.add_argument("--seeds", nargs="+", type=int, choices=SEEDS)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=np.inf)
    parser.add_argument("--left", action="store_true", help="print what is left and stop")
    parser.add_argument("--table", action="store_true", help="print the tables of --out and stop")
    parser.add_argument("--forget", nargs="*", default=[], help="policies to delete and play again")
    parser.add_argument(
        "--outdate", nargs="*", default=[], help="policies to play again, with old lines until then"
    )
    return parser


def main() -> None:
    """Play what is left, and print the tables."""
    parser = options()
    asked = parser.parse_args()
    if asked.forget or asked.outdate:
        rewrite(asked.out, asked.forget, asked.outdate)
    choice = Choice(asked.sites, asked.kinds, asked.importance, asked.bandwidths, asked.seeds)
    every, lines = tasks(choice, asked.policies), read(asked.out, *asked.known)
    todo = left(every, lines)
    if not asked.table:
        show_left(todo, len(every), lines)
    if asked.left:
        return
    if not asked.table:
        if asked.traces is None:
            parser.error("--traces is missing: name the folder of the traces, or use --table")
        commit = commit_in_force()
        chunk = partial(line, asked.traces, commit)
        # files that differ from a commit may differ in another way than those of a line
        same_code = [
            each
            for each in lines
            if each["commit"] == commit and "+" not in commit and OUTDATED not in each
        ]
        last = time.monotonic() + 60.0 * asked.minutes
        with processes(asked.processes) as pool:
            games = run(todo, asked.out, chunk, pool, asked.processes, last, same_code)
            for n_done, done in enumerate(games, start=1):
                lines.append(done)
                rest = duration(seconds(todo[n_done:], lines))
                print(
                    f"{n_done}/{len(todo)} {cell_of(done)}: {done['policy']}, seed "
                    f"{done['seed']}: {done['harmonic']:.5f} in {done['cpu_seconds']} s; about "
                    f"{rest} left",
                    flush=True,
                )
        lines = read(asked.out, *asked.known)
    show(lines, Console(width=None if sys.stdout.isatty() else WIDTH))
