"""The cells of the evidence, and the lines that `benchmarks.evidence` writes of them."""

import json
from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

BANDWIDTHS = (0.02, 0.1, 0.5)
"""Default bandwidths, crawls a day for each page."""
WEIGHTINGS = ("equal", "lognormal")
"""Importance of pages."""
FIRST_SEED = 1
"""Seed of lines without the field `seed`."""
OUTDATED = "outdated"
"""Field of lines whose policy has changed since; they are shown until the policy has played."""

Line = dict[str, Any]
"""Outcome of one policy in one cell with one seed."""


class Site(NamedTuple):
    """Properties of a trace that decide which cells are played and shown."""

    has_bulk: bool = True
    """False for a trace without bulk revisions: its worlds with and without them are the same."""
    shows_live: bool = False
    """True for a trace nearly all of whose pages never change; a table has its live pages alone."""
    bandwidths: tuple[float, ...] = BANDWIDTHS
    """Crawls a day for each page."""


SITES: dict[str, Site] = {
    "ota-contrib": Site(has_bulk=False),
    "oi-wiki": Site(),
    "nodejs-org": Site(),
    "powershell-docs": Site(),
    "php-manual": Site(),
    "scoop-extras": Site(has_bulk=False, bandwidths=(*BANDWIDTHS, 1.0)),
    "data-feeds": Site(has_bulk=False, shows_live=True, bandwidths=(*BANDWIDTHS, 1.0)),
}
"""Sites by the name of their trace; a trace that is not listed has the default properties."""


class Cell(NamedTuple):
    """One comparison of policies."""

    site: str
    bulk: bool
    importance: str
    bandwidth_per_page: float

    def __str__(self) -> str:
        bulk = {"in": "bulk in", "out": "bulk out", "none": "no bulk"}[self.bulk_label]
        return f"{self.site}, {bulk}, {self.importance}, {self.bandwidth_per_page:g}"

    @property
    def bulk_label(self) -> str:
        """The words in, out, or none for a site without bulk revisions."""
        if not site_of(self.site).has_bulk:
            return "none"
        return "in" if self.bulk else "out"

    @property
    def repeats(self) -> bool:
        """True for a cell whose world is that of the cell without bulk revisions."""
        return self.bulk and not site_of(self.site).has_bulk


def site_of(name: str) -> Site:
    """Return the properties of a trace."""
    return SITES.get(name, Site())


def grid(
    sites: Iterable[str], weightings: Iterable[str], bandwidths: Iterable[float] | None
) -> Iterator[Cell]:
    """Yield the cells of sites; `bandwidths` None: those of each site."""
    weightings, chosen = tuple(weightings), None if bandwidths is None else tuple(bandwidths)
    for name in sites:
        per_page = site_of(name).bandwidths if chosen is None else chosen
        cells = (Cell(name, *rest) for rest in product((False, True), weightings, per_page))
        yield from (cell for cell in cells if not cell.repeats)


def read(path: Path) -> list[Line]:
    """Return the lines of a file, with a seed each; an absent file has none."""
    if not path.exists():
        return []
    return [{"seed": FIRST_SEED, **json.loads(text)} for text in path.read_text().splitlines()]


def cell_of(line: Line) -> Cell:
    """Return the cell of a line."""
    return Cell(*(line[field] for field in Cell._fields))
