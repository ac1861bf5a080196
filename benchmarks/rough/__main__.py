"""Run a crawler and the service on a rough web, and check what happened.

    python -m benchmarks.rough --minutes 10 --store sqlite --crawler example

A hundred hosts of ten pages stand on addresses of the loopback (127.45.0.0/16, so on Linux). Pages
change by Poisson processes, each at its own mean time between 5 s and 10 minutes; the budget pays
for one crawl of a page in 30 s. Half of the hosts behave well. Each of the others has one of the
behaviours of `benchmarks.rough.behaviours`: outages, redirects, heads and bodies that break
crawlers, robots.txt that fails, traps. The service and the crawler run as their users start them.
A crawler that reads no links has an extractor of links beside it, which registers those of traps.

Then the same changes are played with a calm half, unless `--no-pair`. The freshness of the
well-behaved pages must hardly differ. The other checks are those of `benchmarks.rough.checker`. The
exit status is 1 when one of them fails.
"""

import argparse
import signal
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from benchmarks.http.processes import Failed
from benchmarks.rough.checker import checks
from benchmarks.rough.report import document, show, write
from benchmarks.rough.run import Plan, play

POSTGRES = "postgresql://postgres@127.0.0.1:5432/postgres"


def parser() -> argparse.ArgumentParser:
    """Return the options."""
    options = argparse.ArgumentParser(
        prog="python -m benchmarks.rough", description=__doc__.splitlines()[0]
    )
    options.add_argument("--minutes", type=float, default=1.0, help="duration of each run")
    options.add_argument("--store", choices=["sqlite", "postgres"], default="sqlite")
    options.add_argument("--crawler", choices=["example", "scrapy", "asyncio"], default="example")
    options.add_argument("--seed", type=int, default=1, help="seed of changes and outages")
    options.add_argument(
        "--pair",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="play the calm half too, to compare the freshness",
    )
    options.add_argument("--server", default=POSTGRES, help="Postgres of --store postgres")
    options.add_argument("--folder", type=Path, help="folder for databases and logs, which is kept")
    options.add_argument("--json", type=Path, help="default: bench-out/rough-STORE-CRAWLER.json")
    return options


def main() -> None:
    """Play and check."""
    options = parser().parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # clean up, as on Ctrl-C
    console = Console(width=None if sys.stdout.isatty() else 200, highlight=False)
    with tempfile.TemporaryDirectory(prefix="recrawl-rough-") as temporary:
        folder = (options.folder or Path(temporary)).resolve()
        plan = Plan(
            seconds=options.minutes * 60,
            store=options.store,
            crawler=options.crawler,
            seed=options.seed,
            server=options.server,
            folder=folder,
        )
        try:
            rough = play(plan, rough=True)
            calm = play(plan, rough=False) if options.pair else None
        except (Failed, FileExistsError) as failure:
            sys.exit(f"the run could not be made: {failure}")
    found = checks(rough, calm)
    show(found, rough, console, all_behaviours=True)
    path = options.json or Path(f"bench-out/rough-{plan.store}-{plan.crawler}.json")
    write(document(plan, found, rough, calm), path)
    sys.exit(not all(check.passed for check in found))


if __name__ == "__main__":
    main()
