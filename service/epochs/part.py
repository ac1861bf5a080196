"""A part of an epoch: the columns of one database, and what the epoch computes from them.

The unit of computing is the logical shard, which one database has whole. Each logical shard runs
the same stages on its own columns (`core.common_values`). Therefore no number depends on which
database has which logical shards. A store that was never sharded is one logical shard.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from service.core.age_evidence import AgeEvidence
from service.core.common_values import Contribution, Joint
from service.core.estimators.base import Estimator, from_columns
from service.core.ping_feeds import PingFeeds
from service.core.recalibration import Recalibration
from service.core.shared_changes import ShareEvidence
from service.core.twins import discounted_among
from service.core.wide_revisions import WideRevisions
from service.epochs.ages import UNLEARNT, learn_ages
from service.epochs.change_hours import learn_hours
from service.epochs.group_tables import (
    FewRates,
    LearntHours,
    PartShare,
    SharedGroups,
    shared_groups,
)
from service.epochs.inputs import Input, Task
from service.epochs.recalibration import recalibrated
from service.epochs.solve import Problem, solve
from service.epochs.urgency import LastEpoch
from service.epochs.wide_revisions import revised
from service.estimation.ages import at_ages
from service.estimation.estimates import doubted, estimate_rates, ping_feeds
from service.model.arrays import instant
from service.model.columns import (
    RARE,
    ChangeHours,
    EpochColumns,
    GroupHours,
    GroupScreens,
    ScheduleColumns,
)
from service.model.domain import Certificate, Observability
from service.model.urls import n_buckets
from service.storage.epochs.contract import GroupTables, Learnt
from service.storage.epochs.schedule_blocks import seldom, short


class Run(NamedTuple):
    """One computation of an epoch."""

    epoch: int
    attempt: int = 0
    """Number of times that the epoch has begun anew after a loss of parts."""


class PartSource(Protocol):
    """The database of a part."""

    def load(self, task: Task) -> "dict[int, Input]":
        """Return the input of each logical shard, as of one instant."""

    def prepare(self, run: Run, schedule: ScheduleColumns, learnt: Learnt) -> None:
        """Write the schedule of an epoch and what it learnt; no reader sees the schedule yet."""


def refit(
    estimator: Estimator[Any],
    pages: EpochColumns,
    last: Estimator[Any] | None = None,
    n_groups: int | None = None,
) -> Joint[Estimator[Any]]:
    """Return the estimator with its prior fitted to the pages that are not `complete`.

    Pages without importance do not count, nor do pages that are gone. `n_groups` is the number of
    buckets of URL groups; None: by the number of pages.
    """
    if estimator.needs_history:
        return estimator
    counted = (pages.observability != Observability.complete) & (pages.importance > 0)
    state = from_columns(estimator, pages.estimate[counted])
    groups = pages.url_group[counted], n_groups or n_buckets(len(pages))
    if estimator.aging is not None and not counted.all():
        estimator = estimator.of_ages(estimator.aging.take(np.flatnonzero(counted)))
    fitted: Estimator[Any] = yield from estimator.fitted(state, *groups, last)
    return fitted


EVIDENCE = (
    "n_pings",
    "recent_pings",
    "pings_since",
    "last_ping_at",
    "real_pings",
    "false_pings",
    "trust",
    "last_age",
)
"""Columns that only estimates need, beside `estimate`; one value for all pages takes no memory."""


def without_evidence(pages: EpochColumns) -> EpochColumns:
    """Return pages as an allocation needs them."""
    n = len(pages)
    none: dict[str, NDArray[Any]] = {name: np.broadcast_to(RARE[name], n) for name in EVIDENCE}
    return replace(pages, estimate=np.broadcast_to(0.0, (n, 1)), **none)


class Stages:
    """The stages of an epoch on the columns of one logical shard.

    A stage frees what no later stage needs, because a process has all of its parts in memory.
    """

    prior: dict[str, float]
    """Numbers of the fit."""
    recalibration: Recalibration
    ages: AgeEvidence | None
    """Evidence of the age profile; None: none is learnt."""
    rates: FewRates | None = None
    change_hours: LearntHours | None = None
    """Hosts and URL groups that have learnt change hours."""
    evidence: ShareEvidence | None = None
    revisions: WideRevisions | None = None
    shared: SharedGroups | None = None
    """Buckets of URL groups that parts have in common; None: the shard is whole."""
    feeds: PingFeeds
    schedule: ScheduleColumns

    def __init__(self, task: Task, columns: Input) -> None:
        self.task, self.now = task, instant(task.at)
        self.loaded = columns
        self.problem: Problem | None = None
        """The problem of the stage `allocate`."""

    def estimate(self) -> Joint[int]:
        """Estimate change rates and change hours; return the number of all pages."""
        pages, caps, fitted, evidence, change_hours, from_log, requests = self.loaded[:7]
        revisions, windows, digest, outcomes = self.loaded[7:]
        del self.loaded
        plan, last, n_groups = self.task.plan, self.task.last, None
        if digest is not None:
            worth = yield from discounted_among(pages.importance, digest)
            pages, digest = replace(pages, importance=worth), None
            self.shared = yield from shared_groups(pages)
            evidence, n_groups = self.shared.evidence(evidence), len(self.shared.n_own)
        learnt = UNLEARNT
        if plan.ages:
            learnt = yield from learn_ages(pages, fitted, last, self.now)
        aged = at_ages(plan.estimator.with_profile(learnt.profile), pages, self.now)
        estimator = yield from refit(aged, pages, fitted, n_groups)
        estimator = estimator.with_profile(aged.profile).of_ages(aged.aging)
        self.ages = learnt.evidence
        self.recalibration = yield from recalibrated(outcomes, last, self.now)
        self.feeds = ping_feeds(pages, self.now)
        estimates = estimate_rates(pages, estimator, self.now, from_log, self.feeds)
        if change_hours is not None:
            change_hours = learn_hours(pages, estimator, change_hours, last, self.now)
            self.change_hours = (
                change_hours.learnt,
                change_hours.records,
                change_hours.screens,
            )
        hazard = None
        if plan.with_urgency and plan.wide_revisions:
            began = LastEpoch.of(last).started_at
            self.revisions, hazard = revised(pages, estimator, revisions, began, self.now)
        self.prior, self.rates = estimator.corpus(), FewRates.of(estimator)
        self.problem = Problem(
            pages=without_evidence(pages),
            estimates=estimates,
            plan=plan,
            last=last,
            caps=caps,
            now=self.now,
            evidence=evidence,
            change_hours=change_hours,
            requests=requests,
            hazard=hazard,
            profile=learnt.profile,
            n_groups=n_groups,
            posterior=doubted(pages, estimator, estimates, self.now),
            windows=windows,
        )
        return len(pages)

    def allocate(self) -> Joint[Certificate]:
        """Allocate the bandwidth; return the certificate of all parts."""
        assert self.problem is not None  # noqa: S101 - for mypy
        solving, self.problem = solve(self.problem), None
        self.schedule, certificate, self.evidence = yield from solving
        packed = () if self.ages is None else tuple(self.ages.packed().tolist())
        line = tuple(self.recalibration)
        return replace(certificate, prior=self.prior, age_evidence=packed, recalibration=line)

    def tables(self) -> GroupTables:
        """Return what the epoch learnt about URL groups."""
        rates = None if self.rates is None else self.rates.whole()
        feeds = self.feeds if self.feeds.host_id.size else None
        return GroupTables(rates, self.evidence, self.revisions, feeds)


STRETCH = 1 << 16
"""Pages of a part between two page_ids that the leader learns."""


class Contributions(NamedTuple):
    """The answer of a part to a question of the leader."""

    shards: tuple[int, ...]
    """Logical shards of the values, ascending."""
    values: tuple[Any, ...]
    """Share of each logical shard in the common value, or at the end of a stage its result."""
    combine: Callable[[Sequence[Any]], Any] | None
    """As in `core.common_values.Contribution`; None at the end of a stage."""
    own_reply: bool = False
    exact: bool = False


class EpochPart:
    """The part of an epoch that one process computes."""

    def __init__(self, source: PartSource, task: Task) -> None:
        self.source, self.task = source, task
        self.inputs: dict[int, Input] = {}
        self.stages: dict[int, Stages] = {}
        self.running: dict[int, Joint[Any]] = {}

    def load(self) -> int:
        """Read the columns, unless no stage has begun yet; return the number of pages."""
        self.inputs = self.inputs or self.source.load(self.task)
        return sum(len(part.pages) for part in self.inputs.values())

    def census(self, takes_part: bool) -> None:  # noqa: FBT001 - a question has no keywords
        """Begin the epoch from the columns that were loaded; a part without pages may stay out."""
        self.running, self.stages = {}, {}
        if takes_part:
            self.stages = {n: Stages(self.task, part) for n, part in self.inputs.items()}
        self.inputs = {}  # each stage frees what it no longer needs; another attempt loads again

    def begin(self, stage: str) -> Contributions:
        """Begin a stage of all logical shards; return their first shares in a common value."""
        self.running = {n: getattr(stages, stage)() for n, stages in self.stages.items()}
        return self.resume(None)

    def resume(self, reply: Any, each: dict[int, Any] | None = None) -> Contributions:
        """Go on with a common value; `each` has a reply for each logical shard instead."""
        shares: list[Contribution] = []
        results: list[Any] = []
        for n, running in self.running.items():
            try:
                shares.append(running.send(reply if each is None else each[n]))
            except StopIteration as end:
                results.append(end.value)
        shards = tuple(self.running)
        if not shares:
            self.running = {}
            return Contributions(shards, tuple(results), None)
        _, combine, own_reply, exact = shares[0]
        values = tuple(share.value for share in shares)
        # values that combine without rounding are combined here, so that only one is sent
        if exact:
            shards, values = shards[:1], (combine(values),)
        return Contributions(shards, values, combine, own_reply, exact)

    def prepare(self, run: Run) -> None:
        """Write this part's rows of the schedule and what the epoch learnt."""
        parts = [stages.schedule for stages in self.stages.values()]
        self.source.prepare(run, ScheduleColumns.concatenate(parts), self.learnt())

    def share(self) -> PartShare | None:
        """Return all that the leader writes but the rows; None: the part has no pages."""
        for one in self.stages.values():
            assert one.shared is not None  # noqa: S101 - for mypy
            tables = one.shared.share(one.rates, one.evidence, one.revisions, one.feeds)
            ids = one.schedule.page_id[::STRETCH]
            return PartShare(tables, one.change_hours, ids, seldom(one.schedule))
        return None

    def rows(self, first: int, end: int, names: list[str]) -> dict[str, NDArray[Any]]:
        """Return the rows of the schedule with page_ids from `first` to before `end`."""
        for one in self.stages.values():
            row = slice(*one.schedule.page_id.searchsorted([first, end]).tolist())
            return short(one.schedule.take(row), names)
        return {}

    def learnt(self) -> Learnt:
        """Return what the epoch learnt in all logical shards."""
        tables = {n: stages.tables() for n, stages in self.stages.items()}
        learnt = [s.change_hours for s in self.stages.values() if s.change_hours is not None]
        if not learnt:
            return Learnt(tables)
        hosts, records, screens = zip(*learnt, strict=True)
        return Learnt(
            tables,
            ChangeHours.concatenate(hosts),
            GroupHours.concatenate(records),
            GroupScreens.concatenate(screens),
        )
