"""A fleet whose crawls pass the gate: the budget holds on each day, as leases keep it.

The gate is the product's own (`service.core.pace`), and so are epochs, ingest and due times. At
each request the fleet takes first crawls within their room, then the most overdue pages. Urgent
pages on a loan follow, and at last pages ahead of their time. A fleet without a gate
crawls all that is due, like a crawler that reads the schedule without leases.

Between two epochs the fleet knows the next crawls of a page by its rate, and reports all crawls at
the end. A page that fails is tried again after that.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple
from urllib.parse import urlsplit

import numpy as np
from typing_extensions import override

from recrawl_lab.replay.playing import announcements
from recrawl_lab.replay.replay import LocalFleet, Replayed, since_start
from recrawl_lab.replay.staleness import Crawls, merged
from recrawl_lab.replay.turns import Pages, Turn, taken_in_turn
from recrawl_lab.worlds.simulated_time import Clock
from recrawl_lab.worlds.world import World
from service.core.pace import Pace, TakenAmounts, advanced, room, taken
from service.epochs.plan import Plan
from service.leases.due import due_at, ranking_rates
from service.model.arrays import UNSPECIFIED, Bools, Ints
from service.model.calendars import ALWAYS, Calendars, HourRules
from service.model.history import HostEvents

KINDS = "first", "ahead", "on_loan"
"""Kinds of crawls, as fields of `Played`."""
BEFORE = 1e-10
"""Time by which a request at midnight belongs to the day that ends, days."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """Habits of a fleet, and the amounts that it may spend."""

    budget: Callable[[float], float]
    """Crawls a day, by the day."""
    gated: bool = True
    """False for crawlers that read the schedule without leases."""
    loan_days: float = 0.0
    first_share: float = 0.5
    """Share of the budget for first crawls; 0 in a comparison whose first crawls are free."""
    every: float = 1 / 24
    """Time between two requests, days."""
    asks: Callable[[float], bool] = lambda _: True
    """Function of an instant, days since the start: true if the fleet asks then."""
    hours: HourRules = ALWAYS
    """Windows and blackouts of all hosts, in which pages are crawled but not found."""


class Played(NamedTuple):
    """(K,) crawls of a game, in the order of the steps."""

    crawls: Crawls
    first: Bools
    """True for the first crawl of a page."""
    ahead: Bools
    """True for crawls ahead of their time."""
    on_loan: Bools
    """True for crawls beyond the budget of their day."""
    answered: Bools
    """True for crawls that a page answered with content."""


class GatedFleet(LocalFleet):
    """A fleet whose first crawls count, unless they are free."""

    def __init__(self, world: World, clock: Clock, plan: Plan, seed: int, gate: Gate) -> None:
        super().__init__(world, clock, plan, seed)
        self.gate = gate
        self.plan = replace(self.plan, first_share=gate.first_share)
        self.store.clock, self.store.calendars = clock, Calendars(gate.hours)
        self.pace = Pace.starting(gate.budget(0.0), 0.0)
        self.most_first = np.inf
        names, self.host = np.unique(
            [urlsplit(url).hostname for url in world.url], return_inverse=True
        )
        self.hosts = tuple(names.tolist())
        self.cap = np.full(len(names), np.inf)
        """Maximum crawls a day of each host."""
        self.today = Turn.none(len(names))

    @property
    def free_first(self) -> bool:
        """True if the discovery of a page is no crawl of the budget."""
        return self.gate.first_share == 0

    @override
    def discover(self, pages: Ints) -> None:
        """Register pages; the first crawl of each is due from its creation on."""
        if self.free_first:
            super().discover(pages)
        elif len(pages):
            self.register(pages)

    @override
    def new_epoch(self) -> None:
        super().new_epoch()
        certificate = self.certificate
        if certificate is not None and certificate.first_crawls is not None:
            self.most_first = certificate.first_crawls

    def admitted(self, page: Ints) -> Bools:
        """Return which new pages may have their first crawl; the others wait."""
        return np.ones(len(page), np.bool_)

    def pages(self) -> Pages:
        """Return all registered pages as the schedule in force has them."""
        page = np.flatnonzero(self._page_id > 0)
        with self.store.begin(write=False) as tx:
            columns = tx.due_columns(np.sort(self._page_id[page]))
            in_force = tx.lock_states(columns.page_id, scheduled=True).crawl_rate
            moved = tx.shifts(tx.number_in_force()).page_id
        page = self._page[columns.page_id]
        due = due_at(columns)
        rate = ranking_rates(columns, due)
        new = np.isnat(columns.last_crawl_at)
        at = np.where(new, self.world.created[page], since_start(due))
        at[new] = np.where(self.admitted(page[new]), at[new], np.nan)
        last = np.where(new, np.nan, since_start(columns.last_crawl_at))
        # as in the service, a shift by change hours is no reason for a loan
        by_siblings = (in_force > 0) & ~np.isin(columns.page_id, moved, assume_unique=True)
        urgency = np.divide(columns.due_rate, in_force, out=np.ones(len(page)), where=by_siblings)
        hours = self.store.calendars.hours(self.gate.hours, self.store.clock())
        return Pages(
            page=page,
            host=self.host[page],
            due=at,
            last=last,
            rate=np.nan_to_num(rate),
            steady_rate=np.nan_to_num(in_force) * self._budget_factor,
            urgency=urgency,
            first=new,
            shown=columns.n_failures == 0,
            hours=None if isinstance(hours, str) else hours,
        )

    def step_crawls(self, start: float, end: float) -> tuple[Crawls, dict[str, Bools]]:
        """Return the crawls between two epochs, with their kinds."""
        pages, parts = self.pages(), []
        for begin, at in requests(start, end, self.gate.every):
            if not self.gate.asks(at):
                continue
            parts.append(self._take(pages, begin, at))
        kinds = {
            name: np.concatenate([part[1][name] for part in parts] or [np.zeros(0, np.bool_)])
            for name in KINDS
        }
        return merged(Crawls.none(), *(part[0] for part in parts)), kinds

    def _take(self, pages: Pages, begin: float, at: float) -> tuple[Crawls, dict[str, Bools]]:
        """Take the crawls of one request, and note in the columns when the pages are due next."""
        until = pages.open_until(begin, at)
        if until is None:
            return Crawls.none(), dict.fromkeys(KINDS, np.zeros(0, np.bool_))
        at = until
        budget = self.gate.budget(at - BEFORE)
        self.pace = advanced(self.pace, at - BEFORE, budget)
        limits = self.gate.loan_days, self.most_first, pages.kept(at - BEFORE)
        left = room(self.pace, *limits) if self.gate.gated else None
        self.today = self.today.on(int(at - BEFORE))
        turn = taken_in_turn(pages, at, left, self.today, self.cap, self.gate.first_share)
        row = turn.row
        self.pace = taken(
            self.pace,
            TakenAmounts(float(len(row)), float(turn.on_loan.sum()), float(turn.first.sum())),
        )
        self.today.add(pages.host[row], turn.first)
        when = np.where(
            pages.due[row] > begin, np.minimum(pages.due[row], at - BEFORE), at - BEFORE
        )
        pages.crawl(row, when)
        kinds = {"first": turn.first, "ahead": turn.ahead, "on_loan": turn.on_loan}
        return Crawls(pages.page[row], when), kinds

    def lease(self, crawls: Crawls) -> None:
        """Count the leases of crawls, each at its own instant."""
        with self.store.begin() as tx:
            host_id = self.store.pages["host_id"][self._page_id[crawls.page] - 1]
            tx.count(HostEvents("n_leased", host_id))


def requests(start: float, end: float, every: float) -> Iterator[tuple[float, float]]:
    """Yield the begin and the instant of each request within a step; none passes a midnight.

    >>> [(round(a, 2), round(b, 2)) for a, b in requests(0.6, 1.3, 0.5)]
    [(0.6, 1.0), (1.0, 1.3)]
    """
    first, last = int(np.floor(start / every)) + 1, int(np.ceil(end / every - 1e-9))
    edges = [start, *(k * every for k in range(first, last)), end]
    edges += [float(day) for day in range(int(start) + 1, int(np.ceil(end)))]
    ordered = np.unique(np.round(edges, 9))
    yield from zip(ordered[:-1].tolist(), ordered[1:].tolist(), strict=True)


def play_gated(
    fleet: GatedFleet,
    clock: Clock,
    *,
    step: float,
    notices: Crawls | None = None,
    at_epoch: Callable[[GatedFleet, float], None] = lambda *_: None,
) -> Played:
    """Play the world of a fleet step by step and return its crawls.

    `at_epoch` is called before each epoch with the fleet and the day, and may change caps.
    """
    world, gate = fleet.world, fleet.gate
    pings = Crawls.none() if notices is None else notices
    order = np.argsort(pings.at, kind="stable")
    pings = Crawls(pings.page[order], pings.at[order])
    born = np.argsort(world.created, kind="stable")
    created = world.created[born]
    n_born = int(np.searchsorted(created, 0.0, side="right"))
    fleet.discover(np.sort(born[:n_born]))
    start, parts = 0.0, []
    while start < world.days - BEFORE:
        clock.advance(start)
        fleet.plan = replace(fleet.plan, bandwidth=gate.budget(start))
        # a service counts from its start at its own budget (`budget.spending.adopt_budget`)
        fleet.pace = advanced(fleet.pace, start, gate.budget(start))
        at_epoch(fleet, start)
        fleet.new_epoch()
        end = min(start + fleet.step(step), world.days)
        before, n_born = n_born, int(np.searchsorted(created, end, side="right"))
        new = np.sort(born[before:n_born])
        if not fleet.free_first:
            fleet.discover(new)
        first, last = np.searchsorted(pings.at, [start, end])
        fleet.announce(Crawls(pings.page[first:last], pings.at[first:last]))
        crawls, kinds = fleet.step_crawls(start, end)
        clock.advance(end)
        if fleet.free_first:
            fleet.discover(new)
        if gate.gated and len(crawls.page):
            fleet.lease(crawls)
        answered = fleet.status(*crawls) == UNSPECIFIED
        fleet.crawl(crawls)
        parts.append(Played(crawls, **kinds, answered=answered))
        start = end
    columns = [np.concatenate(column) for column in zip(*(p[1:] for p in parts), strict=True)]
    return Played(merged(*(part.crawls for part in parts)), *columns)


def replay_gated(
    world: World,
    bandwidth: float,
    plan: Plan,
    *,
    step: float,
    loan_days: float,
    notices: Crawls | None = None,
    seed: int = 1,
    hours: HourRules = ALWAYS,
    even_epochs: bool = False,
    progress: Callable[[float], None] | None = None,
) -> Replayed:
    """Crawl a world through the gate as `replay.replay` does without it; first crawls are free.

    `hours` has the windows and blackouts of all hosts. The other parameters are as in
    `replay.replay`.
    """
    clock = Clock()
    gate = Gate(budget=lambda _: bandwidth, loan_days=loan_days, first_share=0.0, hours=hours)
    fleet = GatedFleet(world, clock, replace(plan, bandwidth=bandwidth), seed, gate)
    fleet.even_epochs = even_epochs
    pings = announcements(world) if notices is None else notices
    reached = progress or (lambda _: None)
    played = play_gated(
        fleet, clock, step=step, notices=pings, at_epoch=lambda _, day: reached(day)
    )
    reached(world.days)
    return Replayed(played.crawls, fleet.predicted, fleet.idle)
