"""Made worlds whose demand for crawls departs from the plan, and the budgets that they have.

Pages change at random, with log-normal rates around .3 a day. Trials "a" to "e" and "quiet" are
those that showed how feedback alone loses the budget.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from recrawl_lab.replay.staleness import Crawls
from recrawl_lab.worlds.world import World, in_order, offsets
from service.model.arrays import UNSPECIFIED, Bools, Codes, Floats, Ints

RATE, SIGMA = 0.3, 1.2
"""Median change rate, 1/day, and the deviation of its logarithm."""
PER_PAGE = 0.2
"""Crawls a day for each page."""
HOSTS, DIRECTORIES = 10, 5
CAP = 6.0
"""Cap of five hosts in trial d, crawls a day, for each 800 pages."""
LOSES = 0.3
"""Share of pages, or of crawls, that time out."""

Down = Callable[[Ints, Floats], Bools]


@dataclass(frozen=True)
class Trial:
    """One world and the demands on its fleet."""

    world: World
    budget: Callable[[float], float]
    """Crawls a day, by the day."""
    notices: Crawls | None = None
    down: Down | None = None
    """Whether a crawl of a page at an instant times out."""
    caps: Callable[[float], dict[str, float]] = lambda _: {}
    """Caps of hosts by the day, crawls a day."""
    watched: Bools | None = None
    """Pages whose staleness counts; None: all."""
    breaks: tuple[float, ...] = ()
    """Days at which the budget changes tenfold."""
    junk: Bools | None = None
    """Pages that all show the same content; None: none."""

    def status(self, page: Ints, at: Floats) -> Codes:
        """Return the statuses of crawls."""
        if self.down is None:
            return np.full(len(page), UNSPECIFIED, np.int16)
        return np.where(self.down(page, at), 0, UNSPECIFIED).astype(np.int16)


def world_of(
    rate: Floats, url: list[str], days: float, rng: np.random.Generator, **life: Floats
) -> World:
    """Return pages that change at random; `created` and `ended` default to the whole time."""
    created = life.get("created", np.zeros(len(rate)))
    ended = life.get("ended", np.full(len(rate), days))
    lived = np.maximum(ended - created, 0.0)
    n_changes = rng.poisson(rate * lived)
    page = np.repeat(np.arange(len(rate)), n_changes)
    changed_at = created[page] + lived[page] * (1.0 - rng.random(len(page)))
    return World(
        name="budget",
        days=days,
        url=tuple(url),
        importance=np.ones(len(rate)),
        announced=np.zeros(len(rate), np.bool_),
        created=created,
        ended=ended,
        changed_at=in_order(page, changed_at),
        first=offsets(n_changes),
        change_rate=rate,
    )


def sites(n: int, *, begin: int = 0, folder: str = "d") -> list[str]:
    """Return URLs on some hosts with some directories each."""
    return [
        f"https://h{i % HOSTS}.example/{folder}{i // HOSTS % DIRECTORIES}/p{i}"
        for i in range(begin, begin + n)
    ]


def rates(n: int, rng: np.random.Generator, median: float = RATE) -> Floats:
    """Return change rates, 1/day."""
    return rng.lognormal(np.log(median), SIGMA, n)


def quiet(n: int, seed: int, days: float = 60.0, per_page: float = PER_PAGE) -> Trial:
    """Return pages among which nothing happens but changes."""
    rng = np.random.default_rng(seed)
    return Trial(world_of(rates(n, rng), sites(n), days, rng), lambda _: per_page * n)


def pinged(n: int, seed: int, days: float = 80.0, begin: float = 40.0) -> Trial:
    """Half of the pages ping; from a day on ten times as often, falsely."""
    rng = np.random.default_rng(seed)
    world = world_of(rates(n, rng), sites(n), days, rng)
    pings = rng.random(n) < 0.5
    page = world.changed_page
    real = pings[page] & (rng.random(len(page)) < 0.8)
    pages, at = [page[real]], [world.changed_at[real] + 1e-4]
    for first, last, times in ((0.0, begin, 1.0), (begin, days, 19.0)):
        false = rng.poisson(np.where(pings, world.change_rate * 0.8 * times, 0.0) * (last - first))
        pages.append(np.repeat(np.arange(n), false))
        at.append(first + (last - first) * rng.random(false.sum()))
    notices = Crawls(np.concatenate(pages), np.minimum(np.concatenate(at), days - 1e-6))
    return Trial(world, lambda _: PER_PAGE * n, notices)


def renewed(n: int, seed: int, days: float = 70.0) -> Trial:
    """30 % of the pages are new each week, and as many end."""
    rng = np.random.default_rng(seed)
    a_day, life = int(0.3 * n / 7), 7 / 0.3
    born = [np.zeros(n)] + [day + rng.random(a_day) for day in range(int(days))]
    created = np.concatenate(born)
    ended = np.minimum(created + life * rng.exponential(1.0, len(created)), days)
    rate = rates(len(created), rng)
    world = world_of(rate, sites(len(created)), days, rng, created=created, ended=ended)
    return Trial(world, lambda _: PER_PAGE * n)


def dead(n: int, seed: int, days: float = 120.0, begin: float = 40.0) -> Trial:
    """30 % of the pages time out for good from a day on."""
    base = quiet(n, seed, days)
    lost = np.random.default_rng([seed, 1]).random(n) < LOSES
    return Trial(
        base.world, base.budget, down=lambda page, at: lost[page] & (at > begin), watched=~lost
    )


def flickering(n: int, seed: int, days: float = 120.0, begin: float = 40.0) -> Trial:
    """30 % of all crawls time out from a day on."""
    base = quiet(n, seed, days)

    def down(page: Ints, at: Floats) -> Bools:
        noise = np.sin(page * 12.9898 + np.floor(at * 1e5) * 78.233) * 43758.5453
        return (at > begin) & (np.modf(np.abs(noise))[0] < LOSES)

    return Trial(base.world, base.budget, down=down)


def capped(n: int, seed: int, days: float = 90.0, begin: float = 40.0) -> Trial:
    """Five of ten hosts have a cap of about half of their crawls from a day on."""
    base = quiet(n, seed, days)
    cap = CAP * n / 800
    hosts = {f"h{i}.example": cap for i in range(HOSTS // 2)}
    return Trial(base.world, base.budget, caps=lambda day: hosts if day >= begin else {})


def tenfold(
    n: int, seed: int, days: float = 120.0, begin: float = 40.0, end: float = 80.0
) -> Trial:
    """The budget is ten times as large for some days."""
    base = quiet(n, seed, days)
    return Trial(
        base.world,
        lambda day: 0.5 * PER_PAGE * n * (10 if begin <= day < end else 1),
        breaks=(begin, end),
    )


def good_new(n: int, seed: int, n_new: int, median: float = RATE, begin: float = 30.0) -> Trial:
    """Good new pages come at once on a day; the staleness is that of the others."""
    rng = np.random.default_rng(seed)
    budget = PER_PAGE * n
    days = begin + max(30.0, float(np.ceil(1.4 * n_new / (0.5 * budget))))
    created = np.concatenate([np.zeros(n), np.full(n_new, begin)])
    url = sites(n) + sites(n_new, begin=n, folder="new")
    world = world_of(rates(n + n_new, rng, median), url, days, rng, created=created)
    return Trial(world, lambda _: budget, watched=np.arange(n + n_new) < n)


JUNK_PLACES: dict[str, Callable[[int], str]] = {
    "directory": lambda i: f"https://h0.example/search/list?id={i}",
    "among": lambda i: f"https://h0.example/d0/list?id={i}",
    "alike": lambda i: f"https://h0.example/d0/p{10**6 + i}",
    "directories": lambda i: f"https://h0.example/t/{letters(i)}/list?id={i}",
    "hosts": lambda i: f"https://h{i % HOSTS}.example/search/list?id={i}",
}
"""URLs of junk: in a directory of their own, among changing pages, with the same shape as these, in
directories of their own under one that is new, and on ten hosts."""


def letters(number: int) -> str:
    """Return a number with a letter for each digit, so that its name is no number to the ladder."""
    return "".join(chr(ord("a") + int(digit)) for digit in str(number))


def junk(n: int, seed: int, n_junk: int, place: str = "directory", begin: float = 30.0) -> Trial:
    """URLs of one content come at once, 30 days before the end, in one of `JUNK_PLACES`."""
    days, rng = begin + 30.0, np.random.default_rng(seed)
    created = np.concatenate([np.zeros(n), np.full(n_junk, begin)])
    rate = np.concatenate([rates(n, rng), np.zeros(n_junk)])
    url = sites(n) + [JUNK_PLACES[place](i) for i in range(n_junk)]
    world = world_of(rate, url, days, rng, created=created)
    real = np.arange(n + n_junk) < n
    return Trial(world, lambda _: PER_PAGE * n, watched=real, junk=~real)


TRIALS: dict[str, Callable[..., Trial]] = {
    "quiet": quiet,
    "a": pinged,
    "b": renewed,
    "c1": dead,
    "c2": flickering,
    "d": capped,
    "e": tenfold,
}
"""The seven trials by name: number of pages and seed to the trial."""
