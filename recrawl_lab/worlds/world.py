"""Worlds: pages with their whole history of changes, and a synthetic world."""

from dataclasses import dataclass, field, replace
from typing import Literal, Self

import numpy as np

from recrawl_lab.worlds.outages import NO_OUTAGES, Outages
from service.model.arrays import Bools, Floats, Ints

LOG_IMPORTANCE = (np.log(10.0), 1.5)
LOG_CHANGE_RATE = (np.log(0.3), 1.2)
"""Mean and deviation of the logarithms of change rates: the heavy tails of K19's corpus."""

Importance = Literal["equal", "lognormal"]


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """(N,) pages over `days` days; instants are float days since the start.

    Changes are in CSR form: those of page i are `changed_at[first[i]:first[i + 1]]`, ascending,
    after `created[i]` and not after `ended[i]`. Creation is not a change.
    """

    name: str
    days: float
    url: tuple[str, ...]
    importance: Floats
    announced: Bools
    """Mask of pages that announce each change by a ping."""
    created: Floats
    ended: Floats
    """End of the page, days; `days` if it outlives the window."""
    changed_at: Floats
    first: Ints
    """(N + 1,) bounds of each page's changes."""
    change_rate: Floats
    """True changes a day; for a trace, the observed changes over the life in the window."""
    notes: tuple[str, ...] = ()
    """Remarks about the data for readers of results."""
    logged_page: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    """(L,) pages of the crawls that were made, without the first of each; none: not recorded."""
    logged_at: Floats = field(default_factory=lambda: np.zeros(0))
    """Instant of each of these crawls."""
    outages: Outages = NO_OUTAGES
    """Hours in which no page shows its content; the pages change all the same."""

    def __len__(self) -> int:
        return len(self.url)

    @property
    def life(self) -> Floats:
        """(N,) lifetime of each page, days."""
        return self.ended - self.created

    @property
    def mean_pages(self) -> float:
        """Number of existing pages, averaged over time."""
        return float(self.life.sum()) / self.days

    @property
    def changed_page(self) -> Ints:
        """(M,) page of each change."""
        return np.repeat(np.arange(len(self)), np.diff(self.first))

    def changes_of(self, page: int) -> Floats:
        """Return the instants at which one page changes."""
        return self.changed_at[self.first[page] : self.first[page + 1]]

    def gone(self, page: Ints, at: Floats) -> Bools:
        """Return a mask of (K,) pages that are deleted at their instants."""
        return (at >= self.ended[page]) & (self.ended[page] < self.days)

    def with_outages(self, rng: np.random.Generator) -> Self:
        """Return the same pages on a site that is away for an hour a week in the mean."""
        outages = Outages.drawn(self.days, rng)
        hours = "an hour" if len(outages) == 1 else f"{len(outages)} separate hours"
        note = f"The site answers 404, 503, 429 or nothing, in turn, for {hours} (--outages)"
        return replace(self, outages=outages, notes=(*self.notes, note))

    def version(self, page: int, at: float) -> int:
        """Return the number of changes of one page up to and including an instant."""
        return int(np.searchsorted(self.changes_of(page), at, side="right"))


def synthetic_world(
    n_pages: int = 2000,
    days: float = 60.0,
    *,
    rng: np.random.Generator,
    complete_share: float = 0.04,
    importance: Importance = "lognormal",
) -> World:
    """Return pages with heavy-tailed importance and change rates; changes come at random."""
    weight = draw_importance(importance, n_pages, rng)
    change_rate = rng.lognormal(*LOG_CHANGE_RATE, n_pages)
    announced = rng.permutation(n_pages) < round(complete_share * n_pages)
    counts = rng.poisson(change_rate * days)
    page = np.repeat(np.arange(n_pages), counts)
    changed_at = days * (1.0 - rng.random(len(page)))
    return World(
        name="synthetic",
        days=days,
        url=tuple(f"https://demo.example/page/{i}" for i in range(n_pages)),
        importance=weight,
        announced=announced,
        created=np.zeros(n_pages),
        ended=np.full(n_pages, days),
        changed_at=in_order(page, changed_at),
        first=offsets(counts),
        change_rate=change_rate,
    )


def draw_importance(kind: Importance, n_pages: int, rng: np.random.Generator) -> Floats:
    """Return (N,) weights: equal or heavy-tailed."""
    return np.ones(n_pages) if kind == "equal" else rng.lognormal(*LOG_IMPORTANCE, n_pages)


def in_order(page: Ints, at: Floats) -> Floats:
    """Return (M,) instants by page, then time: complex numbers take a third of lexsort's time.

    >>> in_order(np.array([0, 1, 0]), np.array([3.0, 1.0, 2.0]))
    array([2., 3., 1.])
    """
    return np.asarray(np.sort(page + 1j * at).imag)


def offsets(counts: Ints) -> Ints:
    """Return the (N + 1,) bounds of rows of these lengths."""
    return np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
