"""The cells of the evidence, and the lines that `benchmarks.evidence` writes of them."""

import json
from collections.abc import Collection, Iterator
from enum import StrEnum
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

BANDWIDTHS = (0.1, 0.02, 0.5, 1.0)
"""Bandwidths, crawls a day for each page, in the order of play."""
USUAL = BANDWIDTHS[0]
"""Bandwidth of the cells with outages, and with revisions of many pages at once."""
WEIGHTINGS = ("equal", "lognormal")
"""Importance of pages, in the order of play."""
FIRST_SEED = 1
"""Seed of games in which nothing depends on a seed."""
OUTDATED = "outdated"
"""Field of lines whose policy has changed since; they are shown until the policy has played."""

Line = dict[str, Any]
"""Outcome of one policy in one cell with one seed."""


class Kind(StrEnum):
    """What happens in a world beside changes of single pages."""

    plain = "plain"
    """Nothing."""
    revisions = "revisions"
    """Revisions that touch more than 200 pages at once count too."""
    outages = "outages"
    """The site is away for an hour a week."""


N_SEEDS = {Kind.plain: 5, Kind.revisions: 3, Kind.outages: 3}
"""Number of seeds of each kind with equal importance; other importance has one."""
SEEDS = range(FIRST_SEED, FIRST_SEED + max(N_SEEDS.values()))
"""All seeds."""


TWO_YEARS, FIVE_YEARS = 731.0, 1827.0
"""Lengths of windows, days."""


class Site(NamedTuple):
    """Properties of a trace that decide which cells are played and shown."""

    revised_days: float | None = None
    """Length of the window in which revisions touch more than 200 pages at once, days; None: none
    does in any window."""
    shows_live: bool = False
    """True for a trace nearly all of whose pages never change; a table has its live pages alone."""
    days: float = TWO_YEARS
    """Length of the other windows; all end with the trace, days."""

    def window(self, kind: str) -> float:
        """Return the length of the window of a kind of world, days."""
        return self.revised_days or self.days if kind == Kind.revisions else self.days


SITES: dict[str, Site] = {
    "ota-contrib": Site(),
    "oi-wiki": Site(revised_days=FIVE_YEARS),  # the last two years have no such revision
    "nodejs-org": Site(revised_days=TWO_YEARS),
    "powershell-docs": Site(revised_days=TWO_YEARS),
    "php-manual": Site(revised_days=TWO_YEARS),
    "scoop-extras": Site(),
    "data-feeds": Site(shows_live=True),
    "this-week-in-rust": Site(),
    "openstates-people": Site(revised_days=548.0, days=548.0),
}
"""Sites by the name of their trace; a trace that is not listed may have bulk revisions."""


class Cell(NamedTuple):
    """One comparison of policies."""

    site: str
    kind: str
    importance: str
    bandwidth_per_page: float

    def __str__(self) -> str:
        return f"{self.site}, {self.setting}"

    @property
    def setting(self) -> str:
        """Everything but the site, in words."""
        return f"{self.kind}, {self.importance}, R = {self.bandwidth_per_page:g}"

    @property
    def file_name(self) -> str:
        """Name of the file with the lines of the cell."""
        return f"{self.site}-{self.kind}-{self.importance}-{self.bandwidth_per_page:g}.jsonl"


class Choice(NamedTuple):
    """Restrictions of the cells and seeds that are played; None: no restriction."""

    sites: Collection[str] | None = None
    """Traces, which may be others than `SITES`."""
    kinds: Collection[str] | None = None
    importance: Collection[str] | None = None
    bandwidths: Collection[float] | None = None
    seeds: Collection[int] | None = None

    def has(self, cell: Cell, seed: int) -> bool:
        """Return whether a cell with a seed is within the restrictions."""
        values = *cell, seed
        return all(some is None or one in some for some, one in zip(self, values, strict=True))


EVERYTHING = Choice()


def site_of(name: str) -> Site:
    """Return the properties of a trace."""
    return SITES.get(name, Site(revised_days=TWO_YEARS))


def grid(choice: Choice = EVERYTHING) -> Iterator[tuple[Cell, int]]:
    """Yield cells and seeds, the most important first.

    The first seed of all cells comes before the second one. Within a seed, the usual bandwidth
    comes first. Importance that differs comes last.
    """
    names = SITES if choice.sites is None else choice.sites
    for importance, seed, rate in product(WEIGHTINGS, SEEDS, BANDWIDTHS):
        for kind, name in product(Kind, names):
            cell = Cell(name, kind.value, importance, rate)
            if is_planned(cell, seed) and choice.has(cell, seed):
                yield cell, seed


def is_planned(cell: Cell, seed: int) -> bool:
    """Return whether the evidence has a cell with a seed."""
    kind = Kind(cell.kind)
    if kind is Kind.revisions and site_of(cell.site).revised_days is None:
        return False  # the world is that of the plain cell
    if cell.importance != WEIGHTINGS[0]:
        return kind is Kind.plain and seed == FIRST_SEED
    is_usual = kind is Kind.plain or cell.bandwidth_per_page == USUAL
    return is_usual and seed <= N_SEEDS[kind]


def read(*paths: Path) -> list[Line]:
    """Return the lines of files, and of the files of folders; an absent file has none."""
    lines = []
    for path in paths:
        files = sorted(path.glob("*.jsonl")) if path.is_dir() else [path] if path.exists() else []
        lines += [json.loads(text) for file in files for text in file.read_text().splitlines()]
    return lines


def written(line: Line) -> str:
    """Return the text of a line."""
    return json.dumps(line) + "\n"


def cell_of(line: Line) -> Cell:
    """Return the cell of a line."""
    return Cell(*(line[field] for field in Cell._fields))
