"""Attack and measure access control.

    python -m benchmarks.access roles --requests 20000
    python -m benchmarks.access timing
    python -m benchmarks.access fairness
    python -m benchmarks.access cost --against ../main/.venv/bin/python

- roles: schemathesis draws requests of every operation, valid and invalid ones, with one key of
  each role. Whatever is above the role must be answered 403 and change nothing, and no answer may
  hold a secret.
- timing: Welch's t of the time to check a right key and a wrong one.
- fairness: one key floods the service; the p99 of another key, and its ratio to quiet hours.
- cost: CPU of the server for a post of one observation, with and without a key, in turns.

The exit status is 1 if a promise was broken.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from benchmarks.access import cost, fairness, roles, timing


def parser() -> argparse.ArgumentParser:
    """Return the options."""
    options = argparse.ArgumentParser(
        prog="python -m benchmarks.access", description=__doc__.splitlines()[0]
    )
    commands = options.add_subparsers(required=True)
    for module in (roles, timing, fairness, cost):
        name = module.__name__.rpartition(".")[2]
        command = commands.add_parser(name, description=module.__doc__)
        module.add_options(command)
        command.set_defaults(run=module.run)
    return options


def main() -> None:
    """Run one of the commands."""
    options = parser().parse_args()
    with tempfile.TemporaryDirectory(prefix="recrawl-access-") as folder:
        sys.exit(0 if options.run(options, Path(folder)) else 1)


if __name__ == "__main__":
    main()
