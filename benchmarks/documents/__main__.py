"""Score our reader of documents against others, or read mutated documents.

    python -m benchmarks.documents score --rounds 5
    python -m benchmarks.documents fuzz --documents 1000000 --seed 7
    python -m benchmarks.documents speed

The exit status of `score` is 1 if another reader is better on more than one document in a hundred.
"""

import argparse
import json
import logging
import sys
import time
from collections import defaultdict
from statistics import fmean

from rich.console import Console
from rich.table import Table

from benchmarks.documents.fuzz import fuzz
from benchmarks.documents.readers import compared
from benchmarks.documents.score import MAX_BYTES
from service.connectors.sitemap import Sitemap

LEAST = 0.99
MEASURED = 100
"""Number of mutated documents of which the memory of one is measured."""


def parser() -> argparse.ArgumentParser:
    """Return the options."""
    options = argparse.ArgumentParser(
        prog="python -m benchmarks.documents", description=__doc__.splitlines()[0]
    )
    options.add_argument("act", choices=["score", "fuzz", "speed"])
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--documents", type=int, default=20_000)
    options.add_argument("--seed", type=int, default=1)
    return options


def main(arguments: list[str] | None = None) -> int:
    """Run one act; return the exit status."""
    wish = parser().parse_args(arguments)
    if wish.act == "score":
        return score(wish.rounds, wish.seed)
    begun = time.perf_counter()
    result = (
        dict(fuzz(wish.documents, wish.seed, measured=wish.documents // MEASURED))
        if wish.act == "fuzz"
        else speed()
    )
    print(json.dumps({**result, "seconds": round(time.perf_counter() - begun, 1)}))
    return 0


def score(n_rounds: int, seed: int) -> int:
    """Print the mean score of each reader by rule and by format."""
    logging.disable(logging.ERROR)
    rows: defaultdict[str, defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    n_best, n = 0, 0
    for case, scores in compared(n_rounds, seed):
        n += 1
        n_best += scores["ours"] >= max(scores.values())
        for name, value in scores.items():
            if len(case.rules) == 1:
                rows[case.rules[0]][name].append(value)
            rows[f"all: {case.format}"][name].append(value)
    names = ("ours", "scrapy", "ultimate-sitemap-parser", "feedparser")
    table = Table("rule", *names)
    for rule, found in rows.items():
        table.add_row(rule, *(f"{fmean(found[name]):.3f}" if found[name] else "" for name in names))
    Console().print(table)
    print(f"best or as good on {n_best} of {n} documents")
    return int(n_best < LEAST * n)


def speed() -> dict[str, float]:
    """Return the time of a document of 50,000 addresses, seconds of the processor."""
    entry = "  <url>\n    <loc>https://a.example/shop/item/{}?a=1&amp;b=2</loc>\n"
    entry += "    <lastmod>2026-04-30T12:00:00+00:00</lastmod>\n  </url>\n"
    body = "".join(entry.format(number) for number in range(50_000))
    content = f'<?xml version="1.0"?>\n<urlset xmlns="x">\n{body}</urlset>'.encode()
    times = []
    for _ in range(7):
        begun = time.process_time()
        n_entries = sum(1 for _ in Sitemap(content, MAX_BYTES))
        times.append(time.process_time() - begun)
    assert n_entries == 50_000
    return {"cpu_s": sorted(times)[3]}


if __name__ == "__main__":
    sys.exit(main())
