"""Answers to "what if the bandwidth were …?": plans without an epoch.

The pages are read once after each epoch. `WhatIf` then keeps 38 bytes a page: 54 with bounds of
crawl rates, 62 with noisy pings, 78 with both. It keeps 8 bytes more for each tag of a page.
Reading takes another 200 bytes a page, and a plan 110.
"""

import threading
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from recrawl_client.wire.plan import BudgetPlan, PlanAnswer, PlannedHost, PlannedTag, StarvedPage
from service.budget.in_force import BudgetInForce
from service.budget.plan_notices import behind, failing, planned_budget
from service.budget.shown import importance_waiting
from service.core import prices
from service.core.common_values import alone
from service.epochs.bandwidth_plans import Basis, Members, Ranked, Solved, minima, planned, reduced
from service.epochs.division import (
    NEW,
    PAGES_PER_CRAWL,
    divides,
    n_first_crawled,
    share_crawled,
    sharing,
    wanted_within,
    with_copy,
)
from service.epochs.optimum import priced
from service.epochs.plan import Plan
from service.epochs.requests import read_requests
from service.epochs.windows import load_windows
from service.estimation.estimates import doubted, estimate_rates, rates_from_log
from service.estimation.rules import fitted_last
from service.estimation.shard_rates import EpochFacts, ShardRates
from service.model.amounts import CRAWLS, Amount
from service.model.arrays import Ints, distinct, instant
from service.model.assumed_rates import assumed
from service.model.errors import EpochNotFound, PlanTooLarge
from service.storage import Store, Transaction
from service.storage.clock import Clock

MOST_PAGES = 20_000_000
"""Maximum number of pages of a plan: 0.8 to 1.6 GB in memory, and 4 GB more while reading."""


class Kept(NamedTuple):
    """The input of plans, and the plan of the bandwidth in force."""

    after: tuple[int, int, Amount | None]
    """Epoch in force, the last epoch if that failed, else 0, and the budget."""
    basis: Basis
    in_force: Solved
    notices: list[str]
    """Notices about the schedule in force."""


class WhatIf:
    """Plans of one process, computed one at a time; any thread may ask."""

    def __init__(
        self,
        store: Store,
        plan: Plan,
        now: Clock,
        max_pages: int = MOST_PAGES,
        budget: BudgetInForce | None = None,
    ) -> None:
        self.store, self.now, self.max_pages = store, now, max_pages
        self.own_plan, self.budget = plan, budget
        self.n_questions = 0
        self._turn = threading.Lock()
        self.kept: Kept | None = None
        """Input as the last question read it; None: nothing is kept."""

    @property
    def plan(self) -> Plan:
        """The plan with the budget in force."""
        return self.own_plan.within(self.budget)

    def ask(self, bandwidths: Sequence[float], limit: int) -> PlanAnswer:
        """Return the plans of some bandwidths, each with up to `limit` hosts, tags and pages.

        Raises
        ------
        EpochNotFound
            No epoch has been published yet.
        PlanTooLarge
            The store has more than `max_pages` pages.
        """
        with self._turn:
            self.n_questions += 1
            _, basis, present, notices = self.kept = self._current()
            plans = {basis.in_force.bandwidth: present}
            for each in bandwidths:
                plans[each] = plans.get(each) or planned(basis, self.plan, each)
        solved = [present, *(plans[each] for each in bandwidths)]
        in_force, *items = self._named(basis, solved, limit)
        return PlanAnswer(
            epoch=basis.epoch,
            at=basis.at,
            n_pages=len(basis.pages),
            n_copies=int(np.count_nonzero(basis.has_copy)),
            n_assumed=basis.n_assumed,
            n_assumed_costs=basis.n_assumed_costs,
            n_hosts=len(basis.hosts.ids),
            min_bandwidth=minima(basis.pages, self.plan),
            plan_notices=notices,
            unit=self.plan.unit,
            in_force=in_force,
            items=items,
        )

    def forget(self, n_questions: int) -> None:
        """Free the memory unless another question came after the first `n_questions`."""
        if n_questions == self.n_questions:
            self.kept = None

    def _current(self) -> Kept:
        """Return the input as of the last epoch that ended; read it after each."""
        with self.store.begin(write=False) as tx:
            newest = tx.newest_epoch()
            failed = newest.epoch if newest is not None and newest.reason is not None else 0
            after = tx.number_in_force(), failed, self.plan.budget
        if self.kept is not None and self.kept.after == after:
            return self.kept
        self.kept = None  # first, because two would take twice the memory
        with self.store.read_whole() as tx:
            basis = self._read(tx)
            last = tx.epoch_in_force()
        record, bandwidth = basis.in_force, _bandwidth(basis, self.plan)
        start = record.multiplier if record.unit == self.plan.unit else None
        notices = failing(last, newest), behind(last, self.plan.budget)
        present = planned(basis, self.plan, bandwidth, start)
        return Kept(after, basis, present, [each for each in notices if each])

    def _read(self, tx: Transaction) -> Basis:
        last = tx.epoch_in_force()
        if last is None or last.certificate is None:
            raise EpochNotFound("no epoch has been published yet; ask for one with POST /epochs")
        if last.certificate.n_pages > self.max_pages:
            raise PlanTooLarge(
                f"there are {last.certificate.n_pages:,} pages, and plans take {self.max_pages:,} "
                "at most; try bandwidths on a copy with a part of the hosts"
            )
        now, estimator = self.now(), fitted_last(tx, self.plan.estimator, last)
        pages, from_log = tx.load_columns(), None
        if estimator.needs_history:
            from_log = rates_from_log(tx, pages.page_id, estimator)
        estimator, pages = ShardRates().of_pages(tx, estimator, EpochFacts.of(last), pages)
        estimates = estimate_rates(pages, estimator, instant(now), from_log)
        posterior = doubted(pages, estimator, estimates, instant(now))
        caps = tx.load_caps()
        cost = None
        if self.plan.unit != CRAWLS:
            cost = alone(priced(pages, self.plan.unit, np.inf))[1].of_pages
        requests = read_requests(tx, last, now)
        crawled = share_crawled(n_first_crawled(pages, NEW, instant(now)), requests)
        wants = wanted_within(pages, caps, self.plan.first_share, instant(now), cost, crawled)
        has_copy, of_all = with_copy(pages), float(pages.importance.sum())
        if divides(self.plan.objective, wants):
            pages = sharing(pages)
        # an epoch reads held pages without their importance
        apart = of_all - float(pages.importance.sum()) + importance_waiting(tx)
        n_assumed = int(np.count_nonzero(assumed(pages)))
        n_assumed_costs = 0 if self.plan.unit == CRAWLS else prices.n_assumed(pages.cost)
        pages = reduced(pages)
        return Basis(
            epoch=last.epoch,
            at=now,
            in_force=last.certificate,
            wants=wants,
            pages=pages,
            estimates=estimates,
            posterior=posterior,
            caps=caps,
            windows=load_windows(tx, pages.host_id, self.plan),
            hosts=Members.of(slice(None), pages.host_id),
            tags=_tags(tx, pages.page_id),
            n_assumed=n_assumed,
            n_assumed_costs=n_assumed_costs,
            requests=requests,
            has_copy=has_copy,
            importance_apart=apart,
        )

    def _named(self, basis: Basis, solved: Sequence[Solved], limit: int) -> list[BudgetPlan]:
        """Return the plans with lists of hosts, tags and pages."""
        with self.store.begin(write=False) as tx:
            hosts = tx.host_names(_shown(basis.hosts, [each.hosts for each in solved], limit))
            tags = tx.tag_names(_shown(basis.tags, [each.tags for each in solved], limit))
        return [_listed(basis, each, hosts, tags, limit) for each in solved]


def _bandwidth(basis: Basis, plan: Plan) -> float:
    """Return the amount a day with which the next epoch plans."""
    if plan.bandwidth is not None:
        return plan.bandwidth
    record = basis.in_force
    if planned_budget(record) is None:
        return record.bandwidth
    return (basis.wants.n_copies or len(basis.pages)) / PAGES_PER_CRAWL


def _tags(tx: Transaction, page_id: Ints) -> Members:
    """Return the pages by tag; pages that came or went meanwhile do not count."""
    tags = tx.load_tags()
    row = page_id.searchsorted(tags.page_id)
    # a tag of a page that is newer than the last one read; `there` leaves it out
    row[row == len(page_id)] = 0
    there = page_id[row] == tags.page_id if len(page_id) else np.zeros(len(row), np.bool_)
    return Members.of(row[there].astype(np.int32), tags.tag_id[there])


def _shown(members: Members, ranked: Sequence[Ranked], limit: int) -> Ints:
    """Return the ids of the hosts or tags that some plans list."""
    return distinct(members.ids[np.concatenate([each.position[:limit] for each in ranked])])


def _listed(
    basis: Basis, solved: Solved, hosts: dict[int, str], tags: dict[int, str], limit: int
) -> BudgetPlan:
    """Return a plan with its lists, without hosts and tags that were deleted meanwhile."""
    caps = dict(zip(basis.caps.host_id.tolist(), basis.caps.max_crawl_rate.tolist(), strict=True))
    starved = solved.starved[:limit]
    return msgspec.structs.replace(
        solved.figures,
        hosts=[
            PlannedHost(
                host=hosts[host_id],
                n_pages=n_pages,
                crawl_rate=crawl_rate,
                max_crawl_rate=_or_none(caps.get(host_id)),
                at_cap=host_id in solved.at_cap,
            )
            for host_id, n_pages, crawl_rate in _rows(basis.hosts, solved.hosts, limit)
            if host_id in hosts
        ],
        tags=[
            PlannedTag(tag=tags[tag_id], n_pages=n_pages, crawl_rate=crawl_rate)
            for tag_id, n_pages, crawl_rate in _rows(basis.tags, solved.tags, limit)
            if tag_id in tags
        ],
        starved=[
            StarvedPage(page_id=page_id, min_crawl_rate=rate)
            for page_id, rate in zip(
                basis.pages.page_id[starved].tolist(),
                basis.pages.min_crawl_rate[starved].tolist(),
                strict=True,
            )
        ],
    )


def _rows(members: Members, ranked: Ranked, limit: int) -> list[tuple[int, int, float]]:
    """Return id, number of pages and crawls a day of hosts or tags."""
    position = ranked.position[:limit]
    columns = members.ids[position], members.n_pages[position], ranked.crawl_rate[:limit]
    return list(zip(*(column.tolist() for column in columns), strict=True))


def _or_none(cap: float | None) -> float | None:
    return None if cap is None or np.isnan(cap) else cap
