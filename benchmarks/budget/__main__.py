"""Play trials of the budget and print how it was kept.

    python -m benchmarks.budget TRIAL … [--loan 3] [--seeds 1 2 3] [--pages 800]

    quiet a b c1 c2 d e   the seven trials: nothing happens; false pings; 30 % new pages a week;
                          30 % of pages, or of crawls, time out; caps; ten times the budget
    readers               without leases: quiet worlds of several sizes, and trial a
    good                  5,000 and 1,000 good new pages for each 1,000 that are known
    junk                  5,000 URLs of one content for each 1,000 pages, in five places
    sites                 real sites, with loans of 1, 3 and 7 days and without a gate

Every trial of the seven runs on the product's own epochs, ingest and pace. A fleet asks each hour,
or with --rarely each six hours. The figures go to --json too.
"""

import argparse
import json
import logging
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import structlog
from rich.console import Console
from rich.table import Table

from benchmarks.budget.game import Game, figures, play
from benchmarks.budget.optimum import least_staleness
from benchmarks.budget.sites import site_lines
from benchmarks.budget.trials import (
    JUNK_PLACES,
    PER_PAGE,
    RATE,
    TRIALS,
    Trial,
    good_new,
    junk,
    pinged,
    quiet,
)

EVERY, RARELY = 1 / 24, 0.25
"""Time between two requests of a fleet, days."""
FIRST_SHARE = 0.5
LEARNT = 20
"""Day from which readers without leases keep the budget."""
WATCHED = LEARNT + 42.0
"""Length of a quiet world of such readers, days: six weeks from then on."""

Line = dict[str, Any]


def parser() -> argparse.ArgumentParser:
    """Return the options."""
    options = argparse.ArgumentParser(
        prog="python -m benchmarks.budget", description=__doc__.splitlines()[0]
    )
    options.add_argument("trials", nargs="+", choices=[*TRIALS, "readers", "good", "junk", "sites"])
    options.add_argument("--loan", type=float, default=0.0, help="days of budget; 0: hard days")
    options.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    options.add_argument("--pages", type=int, default=800, help="pages of a trial at its start")
    options.add_argument("--budgets", type=float, nargs="+", default=[20.0, 160.0])
    options.add_argument("--days-each", type=float, nargs="+", default=[5.0, 10.0, 20.0])
    options.add_argument("--rarely", action="store_true", help="a fleet of every six hours")
    options.add_argument("--places", nargs="+", choices=[*JUNK_PLACES], default=[*JUNK_PLACES])
    options.add_argument("--traces", type=Path, help="folder of traces, for the trial sites")
    options.add_argument("--sites", nargs="+", help="names of traces; default: all")
    options.add_argument("--rates", type=float, nargs="+", default=[0.02, 0.1])
    options.add_argument("--loans", type=float, nargs="+", default=[1.0, 3.0, 7.0])
    options.add_argument("--days", type=float, default=365.0, help="days of a real site")
    options.add_argument("--hours", type=float, help="hours between epochs of sites; default: own")
    options.add_argument("--json", type=Path, default=Path("bench-out/budget.json"))
    return options


def seven(name: str, options: argparse.Namespace) -> Iterator[Line]:
    """Yield the figures of one of the seven trials, a line for each seed."""
    every = RARELY if options.rarely else EVERY
    for seed in options.seeds:
        trial = TRIALS[name](options.pages, seed)
        game = play(trial, seed, loan_days=options.loan, every=every)
        yield {**figures(game), **capped_days(game)}


def capped_days(game: Game) -> Line:
    """Return the most crawls of a capped host on a day, as a share of its cap."""
    last = game.trial.caps(game.trial.world.days)
    if not last:
        return {}
    host = np.array([url.split("/")[2] for url in game.trial.world.url])[game.played.crawls.page]
    day = game.played.crawls.at.astype(np.int64)
    since = min(d for d in range(int(game.trial.world.days)) if game.trial.caps(d))
    most = [
        np.bincount(day[(host == name) & (day >= since)], minlength=1).max() / cap
        for name, cap in last.items()
    ]
    return {"of_cap": float(max(most))}


def readers(_: str, options: argparse.Namespace) -> Iterator[Line]:
    """Yield the figures of crawlers that crawl all that is due, from day `LEARNT` on.

    Each of `--budgets` crawls a day, R, has worlds of n pages with each of `--days-each` as n/R.
    """
    trials: list[tuple[str, Callable[..., Trial]]] = []
    for budget in options.budgets:
        for days in options.days_each:
            name, n = f"quiet, R = {budget:g}, n/R = {days:g}", round(days * budget)
            trials.append((name, partial(quiet, n, days=WATCHED, per_page=1 / days)))
    for name, make in (*trials, ("pinged", partial(pinged, options.pages))):
        for seed in options.seeds:
            game = play(make(seed=seed), seed, gated=False)
            yield {"trial": name, "seed": seed, **kept(game)}


def kept(game: Game) -> Line:
    """Return how the days and weeks of a game keep the budget from day `LEARNT` on."""
    off = (game.by_day / game.budgets - 1)[LEARNT:]
    weeks = off[: len(off) // 7 * 7].reshape(-1, 7).mean(1)
    return {
        "worst_day": float(np.abs(off).max()),
        "allowed_day": 0.04 + 3 / float(np.sqrt(game.budgets[0])),
        "worst_week": float(np.abs(weeks).max()),
        "used": float(1 + off.mean()),
        "staleness": float(game.staleness(8)[4:].mean()),
    }


def good(_: str, options: argparse.Namespace) -> Iterator[Line]:
    """Yield how soon good new pages are fetched, and what the others lose meanwhile."""
    n, budget = options.pages, PER_PAGE * options.pages
    for n_new, seed in ((each, s) for each in (5 * n, n) for s in options.seeds):
        trial = good_new(n, seed, n_new, RATE)
        game = play(trial, seed, loan_days=options.loan, first_share=FIRST_SHARE)
        yield {"new": n_new, **fetched(trial, game, n, n_new, budget)}


def junk_urls(_: str, options: argparse.Namespace) -> Iterator[Line]:
    """Yield the first crawls of junk, and the staleness of the others over that without junk."""
    n = options.pages
    for seed in options.seeds:
        alone = play(junk(n, seed, 0), seed, loan_days=options.loan).staleness(12)[6:]
        for place in options.places:
            game = play(junk(n, seed, 5 * n, place), seed, loan_days=options.loan)
            first = game.played.first & (game.played.crawls.page >= n)
            by_day = np.bincount(game.played.crawls.at[first].astype(int), minlength=60)
            beside = game.staleness(12)[6:]
            yield {
                "place": place,
                "first_day": int(by_day[30]),
                "second_day": int(by_day[31]),
                "later": float(by_day[32:].mean() / (PER_PAGE * n)),
                "worst_5_days": float((beside / alone).max()),
                "staleness": float(beside.mean() / alone.mean()),
            }


def fetched(trial: Trial, game: Game, n: int, n_new: int, budget: float) -> Line:
    """Return the figures of good new pages."""
    played, days = game.played, int(trial.world.days)
    at = played.crawls.at[played.first & (played.crawls.page >= n)] - 30.0
    foreseen = n_new / (FIRST_SHARE * budget)
    curve, until = game.staleness(days), 30 + max(int(foreseen), 1)
    rate = trial.world.change_rate
    known = rate[:n]
    while_waiting = np.mean(
        [
            least_staleness(np.append(known, rate[n : n + k]), (1 - FIRST_SHARE) * budget)[
                :n
            ].mean()
            for k in np.linspace(0, n_new, 11).astype(int)
        ]
    )
    return {
        "fetched": len(at) / n_new,
        "days": float(at.max(initial=0.0)) / foreseen,
        "most_first": float(game.first_by_day[31:].max()) / (FIRST_SHARE * budget),
        "staleness": float(curve[30:until].mean() / while_waiting),
        "known_before": float(curve[10:30].mean() / least_staleness(known, budget).mean()),
    }


def sites(_: str, options: argparse.Namespace) -> Iterator[Line]:
    """Yield the staleness of real sites through the gate over that without it."""
    chosen = (options.sites, options.rates, options.loans, options.seeds, options.days)
    yield from site_lines(options.traces, *chosen, options.hours)


def shown(line: Line) -> list[str]:
    """Return the cells of a row."""
    return [f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in line.values()]


def main() -> None:
    """Play the trials, one after the other."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    options = parser().parse_args()
    console, lines = Console(width=200, highlight=False), []
    others: dict[str, Callable[[str, argparse.Namespace], Iterator[Line]]] = {
        "readers": readers,
        "good": good,
        "junk": junk_urls,
        "sites": sites,
    }
    for name in options.trials:
        table = None
        begun = time.process_time()
        for line in others.get(name, seven)(name, options):
            lines.append({"name": name, "loan": options.loan, **line})
            table = table or Table(*line, title=f"{name}, loan of {options.loan:g} days")
            table.add_row(*shown(line))
            options.json.parent.mkdir(parents=True, exist_ok=True)
            options.json.write_text(json.dumps(lines, indent=1) + "\n", "utf-8")
        if table is not None:
            console.print(table)
        console.print(f"{time.process_time() - begun:.0f} s of CPU")


if __name__ == "__main__":
    main()
