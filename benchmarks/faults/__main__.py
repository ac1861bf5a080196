"""A campaign of faults against the service, and a check of the history of all its clients.

    python -m benchmarks.faults --minutes 10 --store postgres [--nemeses kill-replica step-clock]

What runs, all on this machine: on Postgres (a cluster of its own) two replicas and two workers,
on SQLite one replica; crawlers with leases, reporters without, pingers, registrars, readers. Two
nemeses at a time do harm for some seconds each and heal it. After the last one all pages must be
crawled again; then every process is ended, and the checks of `checker` read what clients wrote
down and what is in the database. The status is 1 when a check counts a violation.
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
from benchmarks.faults.nemeses import NEMESES
from benchmarks.http.processes import Failed
from benchmarks.http.report import machine


def parser() -> argparse.ArgumentParser:
    """Return the options."""
    options = argparse.ArgumentParser(
        prog="python -m benchmarks.faults", description=__doc__.splitlines()[0]
    )
    options.add_argument("--minutes", type=float, default=1.0, help="time of the nemeses")
    options.add_argument("--store", choices=["postgres", "sqlite"], default="sqlite")
    options.add_argument("--seed", type=int, default=1, help="of the dice of nemeses and clients")
    options.add_argument(
        "--nemeses",
        type=names,
        default=[],
        metavar="A,B",
        help=f"some of {', '.join(NEMESES)} (default: all)",
    )
    options.add_argument(
        "--without", type=names, default=[], metavar="A,B", help="nemeses to leave out"
    )
    options.add_argument(
        "--folder", type=Path, help="keep histories and logs here (default: none are kept)"
    )
    options.add_argument("--json", type=Path, help="default: bench-out/faults-STORE.json")
    return options


def names(text: str) -> list[str]:
    """Read names of nemeses."""
    chosen = text.split(",")
    if unknown := [name for name in chosen if name not in NEMESES]:
        raise argparse.ArgumentTypeError(f"no nemesis is called {', '.join(unknown)}")
    return chosen


def show(outcome: campaign.Outcome, console: Console) -> None:
    """Print the tables."""
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
    for failure in outcome.failures:
        console.print(f"a nemesis failed: {failure}")
    if outcome.left_out:
        console.print(f"left out on this store or machine: {', '.join(outcome.left_out)}")


def write(outcome: campaign.Outcome, options: argparse.Namespace, path: Path) -> None:
    """Write counts and examples down."""
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
    """Run a campaign."""
    options = parser().parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # clean up, as on Ctrl-C
    console = Console(width=None if sys.stdout.isatty() else 200, highlight=False)
    with tempfile.TemporaryDirectory(prefix="recrawl-campaign-") as temporary:
        folder = (options.folder or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.glob("*.jsonl")):
            sys.exit(f"{folder} holds the history of another campaign; name an empty folder")
        plan = campaign.Plan(
            options.store,
            options.minutes * 60,
            options.seed,
            [name for name in options.nemeses or NEMESES if name not in options.without],
            folder,
            console.print,
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
