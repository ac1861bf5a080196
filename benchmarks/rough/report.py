"""The report of a run: tables for people, and the same figures as JSON."""

import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.http.report import machine
from benchmarks.rough.checker import Check, by_host, fresh, settled, spells
from benchmarks.rough.run import Plan, Played


def behaviours(played: Played) -> list[dict[str, Any]]:
    """Return a row for each behaviour: what the crawler asked of its hosts, and what it got.

    `wasted` are the requests without content, once the run has settled.
    """
    since = settled(played)
    rows: dict[str, dict[str, Any]] = {}
    requests = by_host(played)
    for host in played.site.world.hosts:
        row = rows.setdefault(
            host.behaviour.name,
            dict.fromkeys(("hosts", "robots", "crawls", "content", "wasted", "longest_block_s"), 0),
        )
        row["hosts"] += 1
        for request in requests.get(host.number, []):
            row["robots" if request.for_robots else "crawls"] += 1
            row["content"] += request.content and not request.for_robots
            late = since <= request.at < played.seconds
            row["wasted"] += late and not request.content and not request.for_robots
    for spell in spells(played):
        row = rows[spell.host.behaviour.name]
        row["longest_block_s"] = max(row["longest_block_s"], round(spell.end - spell.start, 1))
    return [{"behaviour": name, **row} for name, row in rows.items()]


def show(checks: list[Check], played: Played, console: Console, *, all_behaviours: bool) -> None:
    """Print the checks, and the behaviours if they are wanted."""
    table = Table(box=None, pad_edge=False)
    for name in ("check", "figure", "target", "", "examples"):
        table.add_column(name, justify="right" if name in ("figure", "target") else "left")
    for one in checks:
        bound = ("≥ " if one.at_least else "≤ ") + f"{one.target:.4g}"
        verdict = "[green]ok[/]" if one.passed else "[bold red]failed[/]"
        verdict = verdict if one.judged else "too short to judge"
        table.add_row(one.name, f"{one.figure:.4g}", bound, verdict, "\n".join(one.examples))
    console.print(table)
    if not all_behaviours:
        return
    rows = behaviours(played)
    table = Table(box=None, pad_edge=False)
    for name in rows[0]:
        table.add_column(name, justify="left" if name == "behaviour" else "right")
    for row in rows:
        table.add_row(*(str(value) for value in row.values()))
    console.print(table)


def document(plan: Plan, checks: list[Check], rough: Played, calm: Played | None) -> dict[str, Any]:
    """Return all figures as values of JSON."""
    return {
        "arguments": {
            "minutes": plan.seconds / 60,
            "store": plan.store,
            "crawler": plan.crawler,
            "seed": plan.seed,
        },
        "checks": [
            {
                "check": one.name,
                "figure": one.figure,
                "target": one.target,
                "passed": one.passed,
                "judged": one.judged,
                "examples": list(one.examples),
            }
            for one in checks
        ],
        "fresh": {"rough": fresh(rough), "calm": None if calm is None else fresh(calm)},
        "n_junk": rough.n_junk,
        "n_requests": len(rough.site.log),
        "behaviours": behaviours(rough),
        "machine": machine(),
    }


def write(made: dict[str, Any], path: Path) -> None:
    """Write the figures to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(made, indent=1) + "\n")
