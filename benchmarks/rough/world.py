"""The world of a run: hosts on addresses of the loopback, pages, and the instants of their changes.

Times are seconds since the start of the run.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from benchmarks.rough.behaviours import BEHAVIOURS, WELL_BEHAVED, Behaviour
from recrawl_lab.replay.staleness import Crawls, staleness
from recrawl_lab.worlds.world import World, in_order, offsets

N_HOSTS = 100
PAGES_PER_HOST = 10
CRAWL_EVERY_S = 30.0
"""Time in which the budget pays for one crawl of each page, seconds."""
SHORTEST_S, LONGEST_S = 5.0, 600.0
"""Bounds of a page's mean time between changes, seconds; its logarithm is uniform between them."""
OUTAGE_S = 15.0
"""Length of an outage, seconds."""
OUTAGE_EVERY_S = 90.0
"""Mean time from the start of a host's outage to the start of its next one, seconds."""
FIRST_OUTAGE_S = (10.0, 40.0)
"""Bounds of the start of a host's first outage, seconds."""
DAY_S = 86_400.0

Seconds = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Host:
    """A host with an address of its own."""

    number: int
    behaviour: Behaviour
    outage_at: Seconds
    """(K,) starts of its outages, ascending."""

    @property
    def address(self) -> str:
        """Address of the loopback, which is the name of the host too."""
        return f"127.45.{self.number // 250}.{self.number % 250 + 1}"

    def outage(self, at: float) -> tuple[float, float] | None:
        """Return the start and the end of the outage around an instant; None outside."""
        turn = int(np.searchsorted(self.outage_at, at, side="right")) - 1
        if not self.behaviour.in_outages or turn < 0 or at >= self.outage_at[turn] + OUTAGE_S:
            return None
        return float(self.outage_at[turn]), float(self.outage_at[turn]) + OUTAGE_S


@dataclass(frozen=True)
class RoughWorld:
    """Hosts and pages; the page `k` of host `h` has the number `h * PAGES_PER_HOST + k`."""

    hosts: tuple[Host, ...]
    changed_at: Seconds
    """(M,) instants of changes, by page, then time."""
    first: NDArray[np.int64]
    """(N + 1,) bounds of each page's changes."""
    seconds: float

    def __len__(self) -> int:
        return len(self.first) - 1

    def path(self, page: int) -> str:
        """Return the path of a page on its host."""
        return f"/p{page % PAGES_PER_HOST}"

    def version(self, page: int, at: float) -> int:
        """Return the number of changes of a page up to and including an instant."""
        changes = self.changed_at[self.first[page] : self.first[page + 1]]
        return int(np.searchsorted(changes, at, side="right"))

    def fresh(self, page: NDArray[np.int64], at: Seconds, pages: NDArray[np.int64]) -> float:
        """Return the share of the time in which the copies of `pages` were up to date.

        `page` and `at` are the (K,) requests that showed the content of a page. The copies of the
        start are up to date.
        """
        crawls = Crawls(page, at / DAY_S)
        whole = self._as_world
        n = np.diff(self.first)
        kept = np.isin(np.repeat(np.arange(len(self)), n), pages)
        row, known = np.zeros(len(self), np.int64), np.isin(page, pages)
        row[pages] = np.arange(len(pages))
        part = World(
            name="rough",
            days=whole.days,
            url=tuple(whole.url[p] for p in pages.tolist()),
            importance=whole.importance[pages],
            announced=whole.announced[pages],
            created=whole.created[pages],
            ended=whole.ended[pages],
            changed_at=whole.changed_at[kept],
            first=offsets(n[pages]),
            change_rate=whole.change_rate[pages],
        )
        return 1.0 - staleness(part, Crawls(row[page[known]], crawls.at[known])).binary

    @cached_property
    def _as_world(self) -> World:
        n, days = len(self), self.seconds / DAY_S
        return World(
            name="rough",
            days=days,
            url=tuple(f"{self.hosts[p // PAGES_PER_HOST].address}{self.path(p)}" for p in range(n)),
            importance=np.ones(n),
            announced=np.zeros(n, np.bool_),
            created=np.zeros(n),
            ended=np.full(n, days),
            changed_at=self.changed_at / DAY_S,
            first=self.first,
            change_rate=np.diff(self.first) / days,
        )


def made(seed: int, seconds: float, *, rough: bool, n_hosts: int = N_HOSTS) -> RoughWorld:
    """Return the world of a seed; the changes are the same whether its half is rough or not.

    The even hosts behave well. The odd ones take the behaviours of the table in turn, or behave
    well too.
    """
    rng = np.random.default_rng([seed, 1])
    n = n_hosts * PAGES_PER_HOST
    mean_s = np.exp(rng.uniform(np.log(SHORTEST_S), np.log(LONGEST_S), n))
    counts = rng.poisson(seconds / mean_s)
    page = np.repeat(np.arange(n), counts)
    changed_at = in_order(page, seconds * (1.0 - rng.random(len(page))))
    outages = np.random.default_rng([seed, 2])
    listed = list(BEHAVIOURS.values())
    hosts = []
    for number in range(n_hosts):
        gaps = outages.exponential(OUTAGE_EVERY_S - OUTAGE_S, int(seconds / OUTAGE_S))
        start = np.cumsum([outages.uniform(*FIRST_OUTAGE_S), *(gaps + OUTAGE_S)])
        bad = rough and number % 2
        behaviour = listed[number // 2 % len(listed)] if bad else WELL_BEHAVED
        hosts.append(Host(number, behaviour, start[start < seconds]))
    return RoughWorld(tuple(hosts), changed_at, offsets(counts), seconds)
