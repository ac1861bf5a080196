"""Run a campaign of faults against the service, and check the history of all its clients.

    python -m benchmarks.faults --minutes 10 --store postgres [--nemeses kill-replica step-clock]

All processes run on this machine. Postgres is a cluster of the campaign's own, with two replicas
and two workers of the service; on SQLite there is one replica. `--store cluster` has three
clusters, each with one database, and epochs on a scheduler and two workers of Dask. A command moves
shards from one database to another all the time. The clients are crawlers
with leases, reporters without leases, pingers, registrars, readers, a follower of the feed of
changes and a receiver of its webhook. Two nemeses at a time inject
faults for some seconds each and heal them. After the last fault all pages must be crawled again.
Then every process is ended, and the checks of `checker` compare the clients' history with the
database. The exit status is 1 when a check counts a violation.

With `--changes 1000000 --kills 100` a client reports so many changes. Processes of the service and
readers of the feed are killed in turn, spread evenly after the first tenth.
"""

import argparse
import json
import signal
import sys
import tempfile
from dataclasses import fields
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.faults import campaign
from benchmarks.faults.hands import Plan
from benchmarks.faults.nemeses import NEMESES
from benchmarks.http.processes import Failed
from benchmarks.http.report import machine

KILLS = ("kill-worker", "kill-receiver", "kill-replica", "kill-follower")
"""Nemeses of a campaign of many changes: both sides of the feed die in turn."""
BULK = 10_000
"""Pages of such a campaign."""


def parser() -> argparse.ArgumentParser:
    """Return the options."""
    options = argparse.ArgumentParser(
        prog="python -m benchmarks.faults", description=__doc__.splitlines()[0]
    )
    options.add_argument("--minutes", type=float, default=1.0, help="duration of the faults")
    options.add_argument("--store", choices=["postgres", "sqlite", "cluster"], default="sqlite")
    options.add_argument("--seed", type=int, default=1, help="seed of all random choices")
    options.add_argument(
        "--nemeses",
        type=names,
        default=[],
        metavar="A,B",
        help=f"nemeses to run, of {', '.join(NEMESES)} (default: all)",
    )
    options.add_argument(
        "--without", type=names, default=[], metavar="A,B", help="nemeses to leave out"
    )
    options.add_argument(
        "--folder", type=Path, help="folder for histories and logs (default: they are deleted)"
    )
    options.add_argument(
        "--bulk", type=int, default=0, help="pages whose changes are reported in bursts of 1,000"
    )
    options.add_argument(
        "--changes",
        type=int,
        default=0,
        help="end after so many changes of 10,000 pages, not after --minutes, and spread --kills",
    )
    options.add_argument("--kills", type=int, default=100, help="number of kills with --changes")
    options.add_argument("--json", type=Path, help="default: bench-out/faults-STORE.json")
    return options


def names(text: str) -> list[str]:
    """Return the names of nemeses in a comma-separated text."""
    chosen = text.split(",")
    if unknown := [name for name in chosen if name not in NEMESES]:
        raise argparse.ArgumentTypeError(f"unknown nemesis: {', '.join(unknown)}; see --help")
    return chosen


def show(outcome: campaign.Outcome, console: Console) -> None:
    """Print the tables of an outcome."""
    table = Table(box=None, pad_edge=False)
    for name in ("check", "checked", "violations", "examples"):
        table.add_column(name, justify="right" if name in ("checked", "violations") else "left")
    for one in outcome.verdicts:
        style = "bold red" if one.violations else "green"
        number = f"[{style}]{len(one.violations):,}[/]"
        table.add_row(one.name, f"{one.checked:,}", number, "\n".join(one.examples)[:600])
    console.print(table)
    for what, counts in (("harms", outcome.harms), ("answers", outcome.answers)):
        console.print(f"{what}: " + ", ".join(f"{k} {n:,}" for k, n in sorted(counts.items())))
    console.print(
        f"{outcome.n_starts} starts of services; all pages handed out again "
        f"{outcome.settled_s:.0f} s after the last harm"
    )
    if outcome.moves:
        console.print("moves of shards: " + ", ".join(f"{k} {n}" for k, n in outcome.moves.items()))
    console.print("lag of changes: " + ", ".join(f"{k} {v:.3g}" for k, v in outcome.lag_s.items()))
    for failure in outcome.failures:
        console.print(f"a nemesis failed: {failure}")
    if outcome.left_out:
        console.print(f"not possible on this store or machine: {', '.join(outcome.left_out)}")


def write(outcome: campaign.Outcome, options: argparse.Namespace, path: Path) -> None:
    """Write counts and examples as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    verdicts = [
        {
            "check": v.name,
            "checked": v.checked,
            "violations": len(v.violations),
            "examples": v.examples,
        }
        for v in outcome.verdicts
    ]
    written = {f.name: getattr(outcome, f.name) for f in fields(outcome)}
    written |= {"verdicts": verdicts, "arguments": vars(options), "machine": machine()}
    path.write_text(json.dumps(written, indent=1, default=str) + "\n")


def main() -> None:
    """Run one campaign."""
    options = parser().parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # clean up, as on Ctrl-C
    console = Console(width=None if sys.stdout.isatty() else 200, highlight=False)
    with tempfile.TemporaryDirectory(prefix="recrawl-campaign-") as temporary:
        folder = (options.folder or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.glob("*.jsonl")):
            sys.exit(f"{folder} contains the history of another campaign; use an empty folder")
        every = KILLS if options.changes else NEMESES
        plan = Plan(
            options.store,
            options.minutes * 60,
            options.seed,
            [name for name in options.nemeses or every if name not in options.without],
            folder,
            console.print,
            options.bulk or (BULK if options.changes else 0),
            options.changes,
            options.kills if options.changes else 0,
        )
        try:
            outcome = campaign.run(plan)
        except Failed as failure:
            sys.exit(f"the campaign could not be run: {failure}")
    show(outcome, console)
    write(outcome, options, options.json or Path(f"bench-out/faults-{options.store}.json"))
    sys.exit(outcome.n_violations > 0 or bool(outcome.failures))


if __name__ == "__main__":
    main()
